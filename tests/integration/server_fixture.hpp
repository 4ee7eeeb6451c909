// Starts the test server with a scripted engine in a folder of its own and stops it at the end. All waits are
// for a condition and end after 20 s.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/integration/http_client.hpp"

namespace strata::test {

struct ServerSetup {
  std::vector<std::string> server;  // options of the test server
  std::vector<std::string> engine;  // options of the scripted engine
  bool wait_ready = true;
};

class ServerProcess {
 public:
  explicit ServerProcess(const ServerSetup& setup = {});
  ~ServerProcess();  // SIGTERM; SIGKILL when that does not help
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  [[nodiscard]] uint16_t port() const { return port_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  void signal(int number) const;
  int wait_exit();                            // exit status, or −signal
  [[nodiscard]] std::string journal() const;  // commands the engine got
  [[nodiscard]] std::string log() const;      // the server's stderr
  bool wait_for_journal(const std::string& text) const;
  bool wait_for_log(const std::string& text) const;

  [[nodiscard]] HttpAnswer get(const std::string& target, const std::string& headers = "") const;
  [[nodiscard]] HttpAnswer post(const std::string& target, const std::string& body,
                                const std::string& headers = "") const;
  // One user message; extra: more JSON members, with a leading comma.
  [[nodiscard]] HttpAnswer chat(const std::string& message, const std::string& extra = "") const;

 private:
  void start(const std::vector<std::string>& arguments);
  [[nodiscard]] uint16_t announced_port() const;
  [[nodiscard]] uint16_t logged_port() const;
  std::string folder_;
  pid_t pid_ = -1;
  int output_ = -1;
  uint16_t port_ = 0;
};

bool eventually(const std::function<bool()>& condition);
std::string read_file(const std::string& path);
std::string chat_body(const std::string& message, const std::string& extra = "");
// Ids and times are not the same twice: "chatcmpl-…", "msg_…" and the like and the number after "created"
// become X and 0.
std::string normalized(std::string body);
// Compares with tests/golden/http/<name>; STRATA_UPDATE_GOLDEN=1 writes it instead.
void expect_golden(const std::string& name, const std::string& content);

}  // namespace strata::test
