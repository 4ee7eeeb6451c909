#include "engine/protocol/command_reader.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <vector>

#include "core/check.hpp"
#include "core/limits.hpp"
#include "engine/protocol/line_splitter.hpp"

namespace strata {
namespace {

constexpr size_t kReadBytes = 64 * limits::kKiB;

std::optional<uint64_t> request_id(std::string_view line) {
  constexpr std::string_view kGenerate = "GEN ";
  if (!line.starts_with(kGenerate)) return std::nullopt;
  line.remove_prefix(kGenerate.size());
  line = line.substr(0, line.find(' '));
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), id);
  if (error != std::errc() || end != line.data() + line.size()) return std::nullopt;
  return id;
}

}  // namespace

std::optional<Input> parse_input(std::string_view line) {
  if (line.empty()) return std::nullopt;
  Result<lines::Command> command = lines::decode_command(line);
  if (!command.ok()) return BadLine{request_id(line), command.error().message};
  return std::move(*command);
}

CommandReader::CommandReader(int input, int signals, InputMailbox& mailbox)
    : input_(input), signals_(signals), mailbox_(mailbox), stop_event_(eventfd(0, EFD_CLOEXEC)) {
  STRATA_CHECK(stop_event_ >= 0);
  thread_ = std::thread([this] { run(); });
}

CommandReader::~CommandReader() {
  const uint64_t one = 1;
  STRATA_CHECK(write(stop_event_, &one, sizeof(one)) == sizeof(one));
  mailbox_.close();
  thread_.join();
  close(stop_event_);
}

void CommandReader::run() {
  LineSplitter splitter(limits::kMaxLineBytes, [this](std::string_view line, bool cut) {
    if (cut)
      mailbox_.post(BadLine{request_id(line.substr(0, 64)), "line longer than the limit"});
    else if (auto input = parse_input(line))
      mailbox_.post(std::move(*input));
  });
  std::vector<char> buffer(kReadBytes);
  std::array<pollfd, 3> waits{{{stop_event_, POLLIN, 0}, {signals_, POLLIN, 0}, {input_, POLLIN, 0}}};
  while (true) {
    if (poll(waits.data(), waits.size(), -1) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    if (waits[0].revents != 0) return;
    if (waits[1].revents != 0) {
      signalfd_siginfo received{};
      if (read(signals_, &received, sizeof(received)) > 0) mailbox_.post(Terminate{});
    }
    if (waits[2].revents == 0) continue;
    const ssize_t count = read(input_, buffer.data(), buffer.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count > 0) {
      splitter.feed({buffer.data(), static_cast<size_t>(count)});
      continue;
    }
    splitter.end();
    mailbox_.post(EndOfInput{});
    waits[2].fd = -1;  // signals still count while the engine shuts down
  }
}

}  // namespace strata
