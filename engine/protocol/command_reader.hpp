// CommandReader: the thread that owns the engine's standard input. It decodes lines there, so that a long one
// costs the engine loop nothing, and turns the end of the input and SIGTERM into messages. Ownership: the
// mailbox outlives the reader; the file descriptors stay open until it is destroyed.
#pragma once

#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "core/lines.hpp"
#include "engine/runtime/mailbox.hpp"

namespace strata {

struct BadLine {
  std::optional<uint64_t> id;  // of the GEN line, when that much could be read
  std::string reason;
};
struct EndOfInput {};
struct Terminate {};  // SIGTERM
using Input = std::variant<lines::Command, BadLine, EndOfInput, Terminate>;
using InputMailbox = Mailbox<Input>;

// One line as a message; nullopt for an empty line.
[[nodiscard]] std::optional<Input> parse_input(std::string_view line);

class CommandReader {
 public:
  // signals: a signalfd that becomes readable at SIGTERM, or −1.
  CommandReader(int input, int signals, InputMailbox& mailbox);
  ~CommandReader();  // ends the thread, whatever it waits for
  CommandReader(const CommandReader&) = delete;
  CommandReader& operator=(const CommandReader&) = delete;

 private:
  void run();

  const int input_, signals_;
  InputMailbox& mailbox_;
  int stop_event_ = -1;
  std::thread thread_;
};

}  // namespace strata
