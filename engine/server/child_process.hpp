// The engine as a real child process: argv is started with pipes for stdin and stdout, stderr is inherited.
// Lines have a limit: a longer one ends the process. The io_context must outlive the object; one thread. The
// program must ignore SIGPIPE.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <vector>

#include "engine/server/engine_process.hpp"

namespace strata {

class ChildProcess final : public EngineProcess {
 public:
  ChildProcess(boost::asio::io_context& io, std::vector<std::string> argv, size_t max_line_bytes);
  ~ChildProcess() override;  // kills what still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  Status start() override;
  void send(std::string line) override;
  void kill() override;

 private:
  struct Run;
  boost::asio::io_context& io_;
  std::vector<std::string> argv_;
  size_t max_line_bytes_;
  std::shared_ptr<Run> run_;
};

}  // namespace strata
