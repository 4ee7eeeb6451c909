#include "bench/disk/fio.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <vector>

extern char** environ;

namespace strata::bench {
namespace {

// Of `--output-format=terse --terse-version=3`, counted from 0: KiB moved and milliseconds.
constexpr size_t kReadKib = 5;
constexpr size_t kReadMs = 8;
constexpr size_t kWriteKib = 46;
constexpr size_t kWriteMs = 49;

struct Finished {
  int status = -1;
  std::string output;
};

Finished run(const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  Finished finished;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; failed == 0 && (got = ::read(ends[0], piece.data(), piece.size())) > 0;)
    finished.output.append(piece.data(), static_cast<size_t>(got));
  ::close(ends[0]);
  if (failed == 0) ::waitpid(child, &finished.status, 0);
  return finished;
}

std::string field(const std::string& line, size_t index) {
  size_t at = 0;
  for (; index > 0 && at != std::string::npos; --index) {
    at = line.find(';', at);
    if (at != std::string::npos) ++at;
  }
  return at == std::string::npos ? "" : line.substr(at, line.find(';', at) - at);
}

}  // namespace

bool fio_is_there() { return run({"fio", "--version"}).status == 0; }

std::optional<double> run_fio(const FioJob& job) {
  const bool writes = job.direction == Direction::write;
  std::vector<std::string> arguments = {"fio",
                                        "--name=witness",
                                        "--filename=" + job.file,
                                        std::string("--rw=") + (writes ? "write" : "read"),
                                        "--bs=" + std::to_string(job.block_bytes),
                                        "--size=" + std::to_string(job.bytes),
                                        "--direct=1",
                                        "--ioengine=io_uring",
                                        "--iodepth=" + std::to_string(job.depth),
                                        "--end_fsync=1",
                                        "--output-format=terse",
                                        "--terse-version=3"};
  if (job.buffers == Buffers::registered) arguments.push_back("--fixedbufs");
  const Finished finished = run(arguments);
  if (finished.status != 0) return std::nullopt;
  const double kib = std::strtod(field(finished.output, writes ? kWriteKib : kReadKib).c_str(), nullptr);
  const double ms = std::strtod(field(finished.output, writes ? kWriteMs : kReadMs).c_str(), nullptr);
  if (kib <= 0 || ms <= 0) return std::nullopt;
  return kib * 1024.0 / (ms / 1000.0);
}

}  // namespace strata::bench
