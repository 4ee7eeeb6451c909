#include <csignal>
#include <cstdlib>
#include <iostream>

#include "engine/cli/command_line.hpp"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that went away is an error of the write
  const auto environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  return strata::cli::run_program({argv + 1, argv + argc}, environment, std::cout, std::cerr);
}
