// `strata serve`: the HTTP server with the engine as its child process (docs/http-api.md). run_server blocks
// until SIGTERM, Ctrl+C or a failure and returns the exit status: 0 after an orderly end, 1 when it could not
// start or the engine did not end properly, 130 when a second signal cut the shutdown short. It handles
// SIGINT, SIGTERM and SIGPIPE of the whole process. The vocabulary and the log must outlive the call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/log.hpp"
#include "core/model.hpp"

namespace strata {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free one, printed
  std::vector<std::string> api_keys;
  std::string api_key_file;  // one key a line
  std::vector<std::string> allowed_hosts;
  std::string slot_save_path;  // made when it is not there; empty: slot actions answer 501
  uint32_t max_body_mib = 64;
  bool no_page = false;
  std::string alias;       // empty: the model's name
  std::string model_path;  // for /props
  std::vector<std::string> engine_argv;
  bool persist =
      false;  // --conversation-disk-persist: the engine may take long to write everything at its end

  uint32_t engine_silence_s = 300;
  uint32_t engine_start_s = 1800;
  uint32_t engine_drain_s = 0;  // 0: 300 with persist, 20 without
  uint32_t ping_ms = 15'000;    // a comment line in a stream that is silent for so long
  uint32_t tick_ms = 1'000;     // how often time limits are looked at
  uint32_t max_connections = 512;
  uint32_t header_timeout_ms = 15'000;
  uint32_t body_idle_timeout_ms = 30'000;
};

// Prints "strata: listening on http://HOST:PORT" on stdout once the engine is ready. Connections are accepted
// before that, so that /health can be asked; the log names the address at once.
int run_server(const ServerOptions& options, Model& vocabulary, Log& log);

}  // namespace strata
