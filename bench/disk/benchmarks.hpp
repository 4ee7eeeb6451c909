// The measurements, by requirement of docs/benchmarks.md. Each adds its rows, checks the bytes it moved, and
// has a control. They make their files in settings.folder and leave none behind. One thread; each ends the
// program when a step fails.
#pragma once

#include "bench/disk/report.hpp"
#include "bench/disk/settings.hpp"

namespace strata::bench {

void measure_transfers(const Settings& settings, Report& report);      // P-1, P-2, P-9, P-10
void measure_conversations(const Settings& settings, Report& report);  // P-3, P-4, P-5
void measure_sharing(const Settings& settings, Report& report);        // P-6
void measure_intake(const Settings& settings, Report& report);         // P-8

}  // namespace strata::bench
