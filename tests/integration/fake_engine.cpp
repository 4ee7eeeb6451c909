// An engine that plays a script instead of running a model: what a request does stands in its prompt as @name
// or
// @name(argument), the last one counts. Every command it gets is written to a journal, so that a test can see
// it.
//
//   @say(text)  answers that text · @hex(…) answers those bytes · @die ends at once · @die_mid ends after two
//   tokens
//   @silent never answers · @hold says "ab" and waits for STOP · @wait waits for STOP before anything
//   @refuse(reason) ERR · @fatal(reason) FATAL · @raw(line) says that line · @too_many more tokens than asked
//   @slow(ms) announces a wait with SWAIT and answers after it
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/lines.hpp"

namespace {

using namespace strata;

struct Options {
  uint32_t context = 4096;
  uint32_t slots = 2;
  std::string journal;
  std::string fail_start;   // ERR - <reason>, then exit
  std::string disk_off;     // INFO disk_off_reason
  std::string start_after;  // READY only when this file exists
  uint32_t drains = 0;      // DRAIN lines at QUIT
  bool ignore_quit = false;
  std::string die_at_starts;  // a file with a number: as many starts fail
};

struct Directive {
  std::string name = "say";
  std::string argument = "Hello";
};

struct Running {
  lines::Generate request;
};

Options options;
std::map<uint64_t, Running> held;

void say(const lines::Event& event) { std::cout << lines::encode(event) << '\n' << std::flush; }

void journal(const std::string& line) {
  if (options.journal.empty()) return;
  std::ofstream(options.journal, std::ios::app) << line << '\n' << std::flush;
}

Directive directive_of(const lines::Generate& request) {
  std::string text;
  for (const Token token : request.tokens) text += token < 256 ? static_cast<char>(token) : '?';
  const size_t at = text.rfind('@');
  if (at == std::string::npos) return {};
  Directive found;
  size_t end = at + 1;
  while (end < text.size() && (std::isalpha(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_'))
    ++end;
  found.name = text.substr(at + 1, end - at - 1);
  found.argument.clear();
  if (end < text.size() && text[end] == '(')
    if (const size_t close = text.find(')', end); close != std::string::npos)
      found.argument = text.substr(end + 1, close - end - 1);
  return found;
}

std::string unhex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

void emit_token(const lines::Generate& request, Token token) {
  say(lines::TokenLine{request.id, token});
  if (!request.sampling.logprobs) return;
  lines::LogProbs line{request.id, token, -0.5, {}};
  for (uint32_t i = 0; i < *request.sampling.logprobs; ++i)
    line.top.emplace_back(static_cast<Token>('a' + i), -0.5 - i);
  say(line);
}

void begin(const lines::Generate& request) {
  const auto total = static_cast<uint32_t>(request.tokens.size());
  const uint32_t reused = request.use_cache ? total / 2 : 0;
  say(lines::Resume{request.id, reused, reused > 0 ? Tier::ram : Tier::none, 2.5, 1});
  say(lines::PromptProgress{request.id, reused, total, 0});
  say(lines::PromptProgress{request.id, total, total, 20});
}

void done(const lines::Generate& request, lines::Finish finish, uint32_t generated) {
  lines::Done line;
  line.id = request.id;
  line.finish = finish;
  line.prompt = static_cast<uint32_t>(request.tokens.size());
  line.reused = request.use_cache ? line.prompt / 2 : 0;
  line.read = line.prompt - line.reused;
  line.generated = generated;
  line.slot = 1;
  line.prompt_ms = 20;
  line.decode_ms = 10.0 * generated;
  line.cache_ms = 2.5;
  line.tier = line.reused > 0 ? Tier::ram : Tier::none;
  line.reason = line.reused > 0 ? "prefix_changed@3" : "new";
  say(line);
}

void answer(const lines::Generate& request, const std::string& bytes) {
  begin(request);
  uint32_t generated = 0;
  for (const char byte : bytes) {
    if (generated == request.max_tokens) break;
    emit_token(request, static_cast<unsigned char>(byte));
    ++generated;
  }
  done(request, generated == request.max_tokens ? lines::Finish::length : lines::Finish::stop, generated);
}

void hold(const lines::Generate& request) {
  begin(request);
  emit_token(request, 'a');
  emit_token(request, 'b');
  held[request.id] = {request};
}

void generate(const lines::Generate& request) {
  const Directive play = directive_of(request);
  if (play.name == "say") return answer(request, play.argument);
  if (play.name == "hex") return answer(request, unhex(play.argument));
  if (play.name == "die_early") std::_Exit(3);
  if (play.name == "die") {
    begin(request);
    std::_Exit(3);
  }
  if (play.name == "silent") return;
  if (play.name == "hold") return hold(request);
  if (play.name == "wait") held[request.id] = {request};
  if (play.name == "refuse") return say(lines::Failed{request.id, play.argument});
  if (play.name == "fatal") {
    say(lines::Fatal{play.argument});
    std::_Exit(1);
  }
  if (play.name == "raw") std::cout << play.argument << '\n' << std::flush;
  if (play.name == "die_mid") {
    begin(request);
    emit_token(request, 'a');
    emit_token(request, 'b');
    std::_Exit(3);
  }
  if (play.name == "too_many") {
    begin(request);
    for (uint32_t i = 0; i <= request.max_tokens; ++i) emit_token(request, 'x');
  }
  if (play.name == "slow") {
    say(lines::SessionWait{"transfer", 60});
    std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(play.argument)));
    answer(request, "slow");
  }
}

void stop(uint64_t id) {
  const auto found = held.find(id);
  if (found == held.end()) return;
  done(found->second.request, lines::Finish::cancel, 0);
  held.erase(found);
}

// What a named file answers with instead of succeeding; nothing for the others.
std::optional<lines::SlotError> slot_error(const std::string& name) {
  if (name == "no-memory") return lines::SlotError{"memory", false, "not enough RAM"};
  if (name == "no-room") return lines::SlotError{"storage", false, "not enough disk"};
  if (name == "no-device") return lines::SlotError{"io", false, "the device failed"};
  if (name == "torn") return lines::SlotError{"io", true, "the folder could not be flushed"};
  if (name == "damaged") return lines::SlotError{"invalid", false, "a digest differs"};
  // The text of one kind with another kind: nobody may read the text.
  if (name == "misleading") return lines::SlotError{"storage", false, "invalid: not found, out of memory"};
  return std::nullopt;
}

// Names after which there is no engine, or the server ends it.
void break_off(const std::string& name) {
  if (name == "crash") std::_Exit(3);
  if (name != "crash-mid" && name != "fatal" && name != "backwards") return;
  say(lines::SessionProgress{0, 100});
  say(lines::SessionProgress{50, 100});
  if (name == "backwards") say(lines::SessionProgress{49, 100});
  if (name == "fatal") {
    say(lines::Fatal{"the transfer failed after device writes began"});
    say(lines::SlotError{"io", false, "the engine is shutting down"});
    say(lines::Bye{});
    std::_Exit(1);
  }
  std::_Exit(3);
}

void finish_slot_action(lines::SlotActionKind kind, bool empty) {
  switch (kind) {
    case lines::SlotActionKind::save:
      return say(lines::Saved{empty ? 0u : 12u, empty ? 0u : 4096u, 1.5});
    case lines::SlotActionKind::restore:
      return say(lines::Restored{12, 11, 4096, 1.5});
    case lines::SlotActionKind::erase:
      return say(lines::Erased{7});
  }
}

// The last part of the path says what to do, as a prompt's directive does for a request. "held" goes on when
// a file of that name with ".go" is there, "silent" never.
void slot_action(const lines::SlotAction& action) {
  const std::string name = action.path.substr(action.path.rfind('/') + 1);
  if (const auto error = slot_error(name)) return say(*error);
  break_off(name);
  if (name == "silent") return;
  if (name == "other-answer") return finish_slot_action(lines::SlotActionKind::erase, false);
  if (action.kind != lines::SlotActionKind::erase) {
    say(lines::SessionProgress{0, 100});
    while (name == "held" && ::access((action.path + ".go").c_str(), F_OK) != 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    say(lines::SessionProgress{100, 100});
  }
  finish_slot_action(action.kind, name == "empty");
}

void status() {
  std::string slots;
  for (uint32_t i = 0; i < options.slots; ++i) {
    const bool busy = i < held.size();
    slots += (i == 0 ? "" : ",") + std::string("{\"id\":") + std::to_string(i) +
             ",\"n_ctx\":" + std::to_string(options.context) +
             ",\"is_processing\":" + (busy ? "true" : "false") + ",\"conversation\":null,\"tokens\":0";
    if (busy) {
      auto entry = held.begin();
      std::advance(entry, i);
      slots += ",\"id_task\":" + std::to_string(entry->first) +
               ",\"n_prompt_tokens\":9,\"n_prompt_tokens_processed\":4,\"n_prompt_tokens_cache\":5";
    }
    slots += "}";
  }
  say(lines::StatusReport{"{\"slots\":[" + slots +
                          "],\"tiers\":{\"ram\":{\"on\":true,\"bytes\":1}},"
                          "\"metrics\":\"# HELP strata_x x\\n# TYPE strata_x counter\\nstrata_x 1\\n\"}"});
}

void quit() {
  if (options.ignore_quit) return;
  while (!held.empty()) stop(held.begin()->first);
  for (uint32_t i = 1; i <= options.drains; ++i) say(lines::Drain{i, options.drains});
  say(lines::Bye{});
  journal("BYE");
  std::exit(0);
}

void handle(const lines::Command& command) {
  if (const auto* request = std::get_if<lines::Generate>(&command)) generate(*request);
  if (const auto* ended = std::get_if<lines::Stop>(&command)) stop(ended->id);
  if (const auto* action = std::get_if<lines::SlotAction>(&command)) slot_action(*action);
  if (std::holds_alternative<lines::QueryStatus>(command)) status();
  if (std::holds_alternative<lines::Quit>(command)) quit();
}

// Takes one from the number in the file; true while it was above zero.
bool shall_fail(const std::string& path) {
  if (path.empty()) return false;
  int left = 0;
  std::ifstream(path) >> left;
  if (left > 0) std::ofstream(path) << left - 1;
  return left > 0;
}

void parse(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--context") options.context = static_cast<uint32_t>(std::stoul(value));
    if (name == "--slots") options.slots = static_cast<uint32_t>(std::stoul(value));
    if (name == "--journal") options.journal = value;
    if (name == "--fail-start") options.fail_start = value;
    if (name == "--disk-off") options.disk_off = value;
    if (name == "--start-after") options.start_after = value;
    if (name == "--drains") options.drains = static_cast<uint32_t>(std::stoul(value));
    if (name == "--ignore-quit") options.ignore_quit = value == "1";
    if (name == "--die-at-starts") options.die_at_starts = value;
  }
}

}  // namespace

int main(int argc, char** argv) {
  parse(argc, argv);
  ::signal(SIGINT, SIG_IGN);
  journal("START");
  if (!options.fail_start.empty() || shall_fail(options.die_at_starts)) {
    say(lines::Failed{std::nullopt, options.fail_start.empty() ? "told to fail" : options.fail_start});
    return 1;
  }
  say(lines::Info{{{"engine", "9.9"}, {"model", "bytes"}, {"disk_off_reason", options.disk_off}}});
  while (!options.start_after.empty() && ::access(options.start_after.c_str(), F_OK) != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  say(lines::Ready{options.context, options.slots});
  for (std::string line; std::getline(std::cin, line);) {
    const Result<lines::Command> command = lines::decode_command(line);
    journal(line);
    if (!command.ok()) return 4;
    handle(*command);
  }
  journal("EOF");
  return 0;
}
