// The server alone, with a byte vocabulary and whatever engine the command line names after "--".
#include <cstdio>
#include <map>
#include <string>

#include "engine/server/server.hpp"
#include "tests/integration/chat_vocabulary.hpp"
#include "tests/support/byte_vocabulary.hpp"

namespace {

class StderrLog final : public strata::Log {
 public:
  void write(strata::LogLevel, std::string_view line) override {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  }
};

uint32_t number(const std::string& text) { return static_cast<uint32_t>(std::stoul(text)); }

void set(strata::ServerOptions& options, const std::string& name, const std::string& value) {
  if (name == "--port") options.port = static_cast<uint16_t>(number(value));
  if (name == "--host") options.host = value;
  if (name == "--alias") options.alias = value;
  if (name == "--api-key") options.api_keys.push_back(value);
  if (name == "--api-key-file") options.api_key_file = value;
  if (name == "--allowed-host") options.allowed_hosts.push_back(value);
  if (name == "--slot-save-path") options.slot_save_path = value;
  if (name == "--max-body-mib") options.max_body_mib = number(value);
  if (name == "--persist") options.persist = value == "1";
  if (name == "--silence-s") options.engine_silence_s = number(value);
  if (name == "--drain-s") options.engine_drain_s = number(value);
  if (name == "--ping-ms") options.ping_ms = number(value);
  if (name == "--tick-ms") options.tick_ms = number(value);
  if (name == "--max-connections") options.max_connections = number(value);
  if (name == "--header-timeout-ms") options.header_timeout_ms = number(value);
  if (name == "--body-timeout-ms") options.body_idle_timeout_ms = number(value);
}

}  // namespace

int main(int argc, char** argv) {
  strata::ServerOptions options;
  options.port = 0;
  options.tick_ms = 20;
  options.model_path = "/models/bytes";
  int at = 1;
  bool chat = false;  // a vocabulary with a chat format
  for (; at + 1 < argc && std::string(argv[at]) != "--"; at += 2) {
    if (std::string(argv[at]) == "--chat") chat = std::string(argv[at + 1]) == "1";
    set(options, argv[at], argv[at + 1]);
  }
  for (++at; at < argc; ++at) options.engine_argv.emplace_back(argv[at]);
  strata::test::ByteVocabulary plain;
  strata::test::ChatVocabulary formatted;
  StderrLog log;
  return strata::run_server(options, chat ? formatted : plain, log);
}
