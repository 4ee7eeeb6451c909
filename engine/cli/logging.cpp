#include "engine/cli/logging.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <chrono>
#include <string>
#include <vector>

#include "core/json_writer.hpp"

namespace strata::cli {
namespace {

constexpr std::string_view kName = "strata: ";  // plugins and libraries leave it out

const char* name_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
  }
  return "info";
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

LogLevel level_of(std::string_view name) {
  for (const LogLevel level : {LogLevel::debug, LogLevel::warning, LogLevel::error})
    if (name == name_of(level)) return level;
  return LogLevel::info;
}

std::string json_line(LogLevel level, std::string_view line) {
  const auto now = std::chrono::system_clock::now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  JsonWriter json;
  json.begin_object();
  json.member("time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(ms / 1000), ms % 1000));
  json.member("level", name_of(level)).member("message", line).end_object();
  return json.take();
}

class SpdlogLog final : public Log {
 public:
  SpdlogLog(std::vector<spdlog::sink_ptr> sinks, LogLevel least, bool json)
      : logger_("strata", sinks.begin(), sinks.end()), json_(json) {
    logger_.set_level(spdlog_level(least));
    logger_.flush_on(spdlog::level::info);
  }

  void write(LogLevel level, std::string_view line) override {
    const auto importance = spdlog_level(level);
    if (!logger_.should_log(importance)) return;
    const bool named = line.starts_with(kName);
    const std::string text = json_ ? json_line(level, line.substr(named ? kName.size() : 0))
                                   : fmt::format("{}{}", named ? "" : kName, line);
    logger_.log(importance, spdlog::string_view_t(text.data(), text.size()));
  }

 private:
  spdlog::logger logger_;
  const bool json_;
};

}  // namespace

Result<std::unique_ptr<Log>> open_log(const LogSettings& settings) {
  std::vector<spdlog::sink_ptr> sinks{std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  sinks.back()->set_pattern("%v");
  if (!settings.file.empty()) {
    try {
      sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(settings.file));
    } catch (const spdlog::spdlog_ex& error) {
      return make_error(ErrorCode::invalid, fmt::format("--log-file: {}", error.what()));
    }
    sinks.back()->set_pattern(settings.json ? "%v" : "%Y-%m-%d %H:%M:%S.%e %v");
  }
  return std::unique_ptr<Log>(
      std::make_unique<SpdlogLog>(std::move(sinks), level_of(settings.level), settings.json));
}

}  // namespace strata::cli
