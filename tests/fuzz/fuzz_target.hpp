// What every fuzz target offers: libFuzzer's entry, called with one input. Aborts when a property does not
// hold.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
