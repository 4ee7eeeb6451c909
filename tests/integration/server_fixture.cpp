#include "tests/integration/server_fixture.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace strata::test {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);

std::string new_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "strata-server-XXXXXX").string();
  return ::mkdtemp(name.data()) == nullptr ? std::string() : name;
}

}  // namespace

bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

ServerProcess::ServerProcess(const ServerSetup& setup) : folder_(new_folder()) {
  std::vector<std::string> arguments = {STRATA_TEST_SERVER};
  arguments.insert(arguments.end(), setup.server.begin(), setup.server.end());
  for (const std::string& part :
       {std::string("--"), std::string(STRATA_FAKE_ENGINE), std::string("--journal"), folder_ + "/journal"})
    arguments.push_back(part);
  arguments.insert(arguments.end(), setup.engine.begin(), setup.engine.end());
  for (std::string& argument : arguments)
    if (const size_t at = argument.find("{folder}"); at != std::string::npos)
      argument.replace(at, 8, folder_);
  start(arguments);
  port_ = setup.wait_ready ? announced_port() : logged_port();
  if (setup.wait_ready && port_ != 0) {
    EXPECT_TRUE(eventually([this] { return get("/health").status == 200; })) << log();
  }
}

void ServerProcess::start(const std::vector<std::string>& arguments) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (folder_ + "/log").c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  ASSERT_EQ(::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  output_ = ends[0];
}

// What stands on standard output once the engine is ready; nothing when the server has ended.
uint16_t ServerProcess::announced_port() const {
  std::string line;
  for (char c = 0; ::read(output_, &c, 1) == 1 && c != '\n';) line += c;
  const size_t colon = line.rfind(':');
  return colon == std::string::npos ? 0 : static_cast<uint16_t>(std::stoul(line.substr(colon + 1)));
}

// What the log says before that.
uint16_t ServerProcess::logged_port() const {
  constexpr std::string_view kBehind = "/health answers 503";
  std::string said;
  const auto ended = [this] {
    pollfd output{output_, POLLIN, 0};
    return ::poll(&output, 1, 0) > 0 && (output.revents & POLLHUP) != 0;
  };
  const bool found = eventually([&] {
    const bool last = ended();
    said = log();
    return last || said.find(kBehind) != std::string::npos;
  });
  const size_t end = said.find(kBehind);
  if (!found || end == std::string::npos) return 0;
  return static_cast<uint16_t>(std::stoul(said.substr(said.rfind(':', end) + 1, end)));
}

ServerProcess::~ServerProcess() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    int status = 0;
    if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) != 0; })) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, &status, 0);
    }
  }
  if (output_ >= 0) ::close(output_);
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

void ServerProcess::signal(int number) const { ::kill(pid_, number); }

int ServerProcess::wait_exit() {
  int status = 0;
  if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) != 0; })) return -1000;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string ServerProcess::journal() const { return read_file(folder_ + "/journal"); }
std::string ServerProcess::log() const { return read_file(folder_ + "/log"); }

bool ServerProcess::wait_for_journal(const std::string& text) const {
  return eventually([&] { return journal().find(text) != std::string::npos; });
}

bool ServerProcess::wait_for_log(const std::string& text) const {
  return eventually([&] { return log().find(text) != std::string::npos; });
}

HttpAnswer ServerProcess::get(const std::string& target, const std::string& headers) const {
  return test::get(port_, target, headers);
}

HttpAnswer ServerProcess::post(const std::string& target, const std::string& body,
                               const std::string& headers) const {
  return test::post(port_, target, body, headers);
}

HttpAnswer ServerProcess::chat(const std::string& message, const std::string& extra) const {
  return post("/v1/chat/completions", chat_body(message, extra));
}

std::string chat_body(const std::string& message, const std::string& extra) {
  return R"({"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":")" + message +
         "\"}]" + extra + "}";
}

std::string normalized(std::string body) {
  for (const std::string prefix : {"chatcmpl-", "cmpl-", "call_", "msg_", "resp_", "fc_", "rs_"}) {
    for (size_t at = body.find(":\"" + prefix); at != std::string::npos;
         at = body.find(":\"" + prefix, at + 1)) {
      const size_t begin = at + 2 + prefix.size();
      body.replace(begin, body.find('"', begin) - begin, "X");
    }
  }
  for (const std::string key : {"\"created\":", "\"created_at\":"}) {
    for (size_t at = body.find(key); at != std::string::npos; at = body.find(key, at + 1)) {
      const size_t begin = at + key.size();
      body.replace(begin, body.find_first_not_of("0123456789", begin) - begin, "0");
    }
  }
  return body;
}

void expect_golden(const std::string& name, const std::string& content) {
  const std::string path = std::string(STRATA_SOURCE_DIR) + "/tests/golden/http/" + name;
  const char* update = std::getenv("STRATA_UPDATE_GOLDEN");
  if (update != nullptr && std::string(update) == "1") std::ofstream(path, std::ios::binary) << content;
  EXPECT_EQ(content, read_file(path)) << "golden file " << path << "; STRATA_UPDATE_GOLDEN=1 writes it";
}

}  // namespace strata::test
