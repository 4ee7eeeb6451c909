#include "engine/server/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <deque>

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace strata {
namespace asio = boost::asio;
namespace {

constexpr size_t kReadBytes = 64 * 1024;
constexpr auto kReapEvery = std::chrono::milliseconds(10);
constexpr int kReapTries = 500;  // 5 s after it closed its output; then it is killed

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "pipe to the engine");
  return Pipe{ends[0], ends[1]};
}

void close_both(const Pipe& pipe) {
  ::close(pipe.read_end);
  ::close(pipe.write_end);
}

Result<pid_t> spawn(const std::vector<std::string>& argv, int child_in, int child_out) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_out, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;  // the server ignores SIGPIPE, and a child would inherit that
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return errno_error(failed, "cannot start the engine " + argv[0]);
  return pid;
}

std::string describe(int status) {
  if (WIFEXITED(status)) return fmt::format("exited with status {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) return fmt::format("ended by signal {}", WTERMSIG(status));
  return "ended";
}

}  // namespace

// One process from start to end. Pending handlers share it, so it outlives a restart until they have run.
struct ChildProcess::Run : std::enable_shared_from_this<Run> {
  Run(asio::io_context& io, ChildProcess& process_owner)
      : owner(&process_owner), input(io), output(io), reaper(io) {}

  ChildProcess* owner;  // null once nobody wants to hear of it any more
  pid_t pid = 0;
  asio::posix::stream_descriptor input;
  asio::posix::stream_descriptor output;
  asio::steady_timer reaper;
  std::deque<std::string> to_send;
  std::array<char, kReadBytes> chunk{};
  std::string partial;
  int reap_tries = 0;
  bool too_long = false;  // it sent a line above the limit

  void read() {
    output.async_read_some(asio::buffer(chunk), [self = shared_from_this()](const auto& error, size_t bytes) {
      if (self->owner == nullptr) return;
      if (error) return self->reap();
      if (self->take({self->chunk.data(), bytes})) self->read();
    });
  }

  // False when nothing more shall be read.
  bool take(std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t end = bytes.find('\n');
      partial += bytes.substr(0, end);
      if (partial.size() > owner->max_line_bytes_) {
        too_long = true;
        ::kill(pid, SIGKILL);
        reap();
        return false;
      }
      if (end == std::string_view::npos) return true;
      bytes.remove_prefix(end + 1);
      const std::string line = std::exchange(partial, {});
      owner->on_line(line);
      if (owner == nullptr) return false;
    }
    return true;
  }

  void write() {
    asio::async_write(
        input, asio::buffer(to_send.front()), [self = shared_from_this()](const auto& error, size_t) {
          if (self->owner == nullptr) return;
          if (error)
            return self->to_send.clear();  // it does not read any more; its end is seen on its output
          self->to_send.pop_front();
          if (!self->to_send.empty()) self->write();
        });
  }

  void reap() {
    int status = 0;
    const pid_t done = ::waitpid(pid, &status, WNOHANG);
    if (done == 0) {
      if (++reap_tries == kReapTries) ::kill(pid, SIGKILL);
      reaper.expires_after(kReapEvery);
      reaper.async_wait([self = shared_from_this()](const auto& error) {
        if (!error && self->owner != nullptr) self->reap();
      });
      return;
    }
    pid = 0;
    ChildProcess& process = *std::exchange(owner, nullptr);
    close();
    process.run_.reset();
    process.on_end(too_long ? "sent a line that is too long" : done < 0 ? "ended" : describe(status));
  }

  void close() {
    boost::system::error_code ignored;
    input.close(ignored);
    output.close(ignored);
    reaper.cancel();
  }
};

ChildProcess::ChildProcess(asio::io_context& io, std::vector<std::string> argv, size_t max_line_bytes)
    : io_(io), argv_(std::move(argv)), max_line_bytes_(max_line_bytes) {}

ChildProcess::~ChildProcess() {
  if (!run_) return;
  run_->owner = nullptr;
  run_->close();
  if (run_->pid > 0) {
    ::kill(run_->pid, SIGKILL);
    ::waitpid(run_->pid, nullptr, 0);
  }
}

Status ChildProcess::start() {
  if (argv_.empty()) return make_error(ErrorCode::invalid, "no engine to start");
  STRATA_ASSIGN(const Pipe to_child, make_pipe());
  Result<Pipe> from_child = make_pipe();
  if (!from_child.ok()) {
    close_both(to_child);
    return from_child.error();
  }
  Result<pid_t> pid = spawn(argv_, to_child.read_end, from_child->write_end);
  ::close(to_child.read_end);
  ::close(from_child->write_end);
  auto run = std::make_shared<Run>(io_, *this);
  run->input.assign(to_child.write_end);
  run->output.assign(from_child->read_end);
  if (!pid.ok()) return pid.error();
  run->pid = *pid;
  run_ = std::move(run);
  run_->read();
  return {};
}

void ChildProcess::send(std::string line) {
  if (!run_) return;
  line += '\n';
  run_->to_send.push_back(std::move(line));
  if (run_->to_send.size() == 1) run_->write();
}

void ChildProcess::kill() {
  if (run_ && run_->pid > 0) ::kill(run_->pid, SIGKILL);
}

}  // namespace strata
