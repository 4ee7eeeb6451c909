// How the disk is reached: by which I/O queue, and past the page cache (O_DIRECT) or through it. What a
// system promises when a file is opened is not what it keeps when it is written (network and FUSE file
// systems, container rules), so each way is tried with a real write, flush, read and comparison, by a queue
// of the kind used later, and the first one that works is taken: the preferred queue direct, the next one
// direct, then through the page cache. Ownership: results are values; queues made for a trial end with it.
// Thread-safety: one call at a time; blocks. Errors: never for a way that does not work; a folder that is
// full, read-only or in use is left to the disk tier to report.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/file_system.hpp"
#include "core/io_queue.hpp"
#include "core/result.hpp"

namespace strata {

struct IoCandidate {
  std::string name;         // of the plugin
  std::string unavailable;  // why it cannot run here; empty: it can be tried
};

using MakeIo = std::function<Result<std::unique_ptr<IoQueue>>(const std::string& name)>;

struct DiskRoute {
  std::string io;  // the plugin's name
  bool direct = true;
  std::string note;  // what does not work and what is used instead; empty when the first choice works
};

// candidates: best first, at least one that can be tried.
[[nodiscard]] DiskRoute choose_disk_route(FileSystem& files, const std::string& folder,
                                          const std::vector<IoCandidate>& candidates, const MakeIo& make);

// One way, tried: write, flush, read, compare. The file is removed again. Errors: unsupported when the file
// system refuses O_DIRECT at opening, else what failed.
[[nodiscard]] Status try_disk_route(FileSystem& files, IoQueue& queue, const std::string& folder,
                                    Caching caching);

}  // namespace strata
