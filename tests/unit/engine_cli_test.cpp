// The command line (design 11): one line for whatever is wrong, exit status 2, nothing started or touched;
// where values come from; and the help texts, golden.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "core/limits.hpp"
#include "engine/cli/command_line.hpp"
#include "engine/cli/options.hpp"
#include "engine/cli/settings.hpp"
#include "engine/cli/value_sources.hpp"
#include "tests/support/golden.hpp"

namespace strata::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  int status = 0;
  std::string out, err;
};

Outcome run(const std::vector<std::string>& arguments,
            const std::map<std::string, std::string>& variables = {}) {
  std::ostringstream out, err;
  const Environment environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  const int status = run_program(arguments, environment, out, err);
  return {status, out.str(), err.str()};
}

class CommandLine : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "strata-cli-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write_file(const std::string& text) {
    const std::string path = (folder_ / "strata.toml").string();
    std::ofstream(path) << text;
    return path;
  }

  // Wrong use: status 2, exactly one line, and it names what is wrong.
  void expect_refused(const std::vector<std::string>& arguments, const std::string& part,
                      const std::map<std::string, std::string>& variables = {}) {
    const Outcome outcome = run(arguments, variables);
    EXPECT_EQ(outcome.status, 2) << part;
    EXPECT_THAT(outcome.err, AllOf(StartsWith("strata: "), HasSubstr(part)));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }

  std::filesystem::path folder_;
};

TEST_F(CommandLine, UnknownOptionsAreNamed) {
  for (const char* command : {"serve", "engine"})
    expect_refused({command, "--bogus"}, "unknown option: --bogus");
  expect_refused({"serve", "stray"}, "unexpected argument: stray");
  expect_refused({"nonsense"}, "unknown command: nonsense");
  expect_refused({}, "a command is needed");
}

TEST_F(CommandLine, ValuesOutOfRangeNameTheOptionAndTheRange) {
  expect_refused({"serve", "--port", "99999"}, "--port: '99999' is not a number from 0 to 65535");
  expect_refused({"serve", "--port=-1"}, "--port: '-1' is not a number from 0 to 65535");
  expect_refused({"engine", "--slots", "0"}, "--slots: '0' is not a number from 1 to 256");
  expect_refused({"engine", "--slots", "four"}, "--slots: 'four' is not a number from 1 to 256");
  expect_refused({"engine", "--slots", "4.5"}, "--slots: '4.5' is not a number from 1 to 256");
  expect_refused({"engine", "--slots="}, "--slots");
  expect_refused({"engine", "--session-min-free-mib", "-1"}, "--session-min-free-mib");
  expect_refused({"engine", "--slots"}, "--slots");
  expect_refused({"engine", "--io", "magic"}, "--io: 'magic' is none of auto, uring, posix");
  for (const char* command : {"serve", "engine", "selftest"})
    expect_refused({command, "--state-granularity", "half"},
                   "--state-granularity: 'half' is none of auto, blocks, whole");
  expect_refused({"engine", "--log-level", "loud"},
                 "--log-level: 'loud' is none of debug, info, warning, error");
  expect_refused({"engine", "--model-option", "layout"},
                 "--model-option: 'layout' is not of the form KEY=VALUE");
  expect_refused({"engine", "--conversation-cache-mib", "99999999999999999999"}, "--conversation-cache-mib");
  expect_refused({"engine", "--slots", "1", "--slots", "2"}, "--slots");
}

TEST_F(CommandLine, ContradictionsNameBothOptionsAndTouchNothing) {
  const std::string disk = (folder_ / "disk").string();
  expect_refused({"engine", "--conversation-disk-dir", disk},
                 "--conversation-disk-dir needs --conversation-cache-mib");
  expect_refused({"serve", "--conversation-disk-dir", disk, "--conversation-cache-mib", "0"},
                 "--conversation-disk-dir needs --conversation-cache-mib");
  expect_refused({"engine", "--conversation-disk-persist"},
                 "--conversation-disk-persist requires --conversation-disk-dir");
  expect_refused({"engine", "--conversation-disk-ttl-min=5"},
                 "--conversation-disk-ttl-min requires --conversation-disk-dir");
  for (const char* command : {"serve", "engine", "selftest"}) {
    expect_refused({command, "--model-option=slots=3"}, "--model-option slots contradicts --slots");
    expect_refused({command, "--model-option=context=9"}, "--model-option context contradicts --context");
    expect_refused({command, "--state-granularity=whole", "--model-option=state_granularity=blocks"},
                   "--model-option state_granularity contradicts --state-granularity");
  }
  expect_refused(
      {"engine", "--conversation-cache-disk-mib=9"},
      "--conversation-cache-disk-mib needs --conversation-disk-dir: the model reference has no folder");
  const std::string mode = "--conversation-cache-disk-mib=9";
  expect_refused({"serve", mode, "--conversation-disk-dir", disk, "--conversation-cache-mib", "5"},
                 "--conversation-cache-disk-mib contradicts --conversation-cache-mib");
  expect_refused({"serve", mode, "--conversation-disk-dir", disk, "--conversation-disk-mib", "5"},
                 "--conversation-disk-mib");
  expect_refused({"serve", mode, "--conversation-disk-dir", disk, "--conversation-disk-ttl-min", "5"},
                 "--conversation-disk-ttl-min");
  expect_refused({"engine", "--conversation-cache-days=3"},
                 "--conversation-cache-days requires --conversation-cache-disk-mib");
  expect_refused({"engine", "--disk-write-policy=idle"}, "--disk-write-policy needs --conversation-disk-dir");
  EXPECT_FALSE(std::filesystem::exists(disk));
}

TEST_F(CommandLine, ABadValueFromElsewhereSaysWhereItCameFrom) {
  expect_refused({"serve"}, "--port: '77777' is not a number from 0 to 65535 (from STRATA_PORT)",
                 {{"STRATA_PORT", "77777"}});
  const std::string file = write_file("port = 88888\n");
  expect_refused({"serve", "--config", file}, "(from " + file + ")");
  expect_refused({"serve", "--config", file, "--port=99999"}, "'99999'");
}

TEST_F(CommandLine, ABadFileIsRefused) {
  expect_refused({"serve", "--config", (folder_ / "missing").string()}, "--config: cannot read ");
  expect_refused({"serve", "--config", write_file("ports = 1\n")}, "unknown option ports");
  expect_refused({"serve", "--config", write_file("[serve]\nport = 1\n")}, "unknown option serve.port");
  expect_refused({"serve", "--config", write_file("slots = 3\nslots = 4\n")},
                 "--slots: At Most 1 required but received 2 (from ");
}

// What serve would start the engine with, from whatever source.
class Values : public CommandLine {
 protected:
  Settings parse(const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& variables = {}) {
    Settings settings;
    CLI::App app;
    CLI::App* command = app.add_subcommand("serve");
    add_source_options(*command, settings);
    add_http_options(*command, settings);
    add_engine_options(*command, settings, RamDefault::quarter);
    std::vector<std::string> all{"serve"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    auto complete = complete_arguments(all, *command, {command}, [&](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
    EXPECT_TRUE(complete.ok());
    app.parse(std::vector<std::string>(complete->arguments.rbegin(), complete->arguments.rend()));
    return settings;
  }
};

TEST_F(Values, TheCommandLineWinsOverTheEnvironmentOverTheFileOverTheDefault) {
  const std::string file = write_file(
      "slots = 5\ncontext = 500\nport = 5000\nconversation_cache_mib = 512\nmodel-option = "
      "[\"layout=hybrid\", \"dim=64\"]\n"
      "log-json = true\n");
  const Settings settings =
      parse({"--config", file, "--slots=7"},
            {{"STRATA_SLOTS", "6"}, {"STRATA_CONTEXT", "600"}, {"STRATA_PROMPT_CACHE_SPREAD", "false"}});
  EXPECT_EQ(settings.model.slots, 7U);
  EXPECT_EQ(settings.model.context_tokens, 600U);
  EXPECT_EQ(settings.http.port, 5000);
  EXPECT_EQ(settings.ram.cache_mib, 512U);
  EXPECT_EQ(settings.ram.min_free_mib, 2560U);
  EXPECT_THAT(settings.model.options, ElementsAre("layout=hybrid", "dim=64"));
  EXPECT_TRUE(settings.log.json);
  EXPECT_FALSE(settings.ram.checkpoint_spread);
}

TEST_F(Values, TheFileMayBeNamedByTheEnvironment) {
  EXPECT_EQ(parse({}, {{"STRATA_CONFIG", write_file("slots = 9\n")}}).model.slots, 9U);
}

TEST_F(Values, OnlyTheCommandLineCountsWhenSaidSo) {
  EXPECT_EQ(parse({"--only-command-line"}, {{"STRATA_SLOTS", "9"}}).model.slots, 4U);
}

// DISK-4: 30 minutes without persistence, no limit with it.
TEST_F(Values, TheLifeTimeDependsOnPersistence) {
  constexpr uint64_t kMinuteNs = 60'000'000'000;
  EXPECT_EQ(engine_settings(parse({"--conversation-disk-dir=d"})).tiers.disk_ttl_ns, 30 * kMinuteNs);
  EXPECT_EQ(
      engine_settings(parse({"--conversation-disk-dir=d", "--conversation-disk-persist"})).tiers.disk_ttl_ns,
      0U);
  EXPECT_EQ(engine_settings(parse({"--conversation-disk-dir=d", "--conversation-disk-persist",
                                   "--conversation-disk-ttl-min=7"}))
                .tiers.disk_ttl_ns,
            7 * kMinuteNs);
}

TEST_F(Values, TheEngineGetsWhatServeWasGiven) {
  const std::vector<std::string> given{"--model-option=layout=hybrid",
                                       "--slots=3",
                                       "--state-granularity=whole",
                                       "--context=1000",
                                       "--conversation-cache-mib=77",
                                       "--conversation-disk-dir=/x y",
                                       "--conversation-disk-persist",
                                       "--prompt-cache-spread=false",
                                       "--io=posix",
                                       "--log-level=debug",
                                       "--session-min-free-mib=5",
                                       "--session-save-reclaim",
                                       "--conversation-disk-foreign=keep"};
  const Settings served = parse(given, {{"STRATA_PROMPT_CACHE", "9"}});
  const Settings again = parse(engine_arguments(served), {{"STRATA_SLOTS", "200"}});
  EXPECT_EQ(again.model.options, served.model.options);
  EXPECT_EQ(again.model.slots, 3U);
  EXPECT_EQ(again.model.state_granularity, "whole");
  EXPECT_EQ(again.disk.folder, "/x y");
  EXPECT_EQ(again.ram.checkpoints, 9U);
  EXPECT_EQ(engine_settings(again).tiers.session_min_free_bytes, 5U << 20);  // SES-2
  EXPECT_TRUE(engine_settings(again).tiers.session_save_reclaim);            // RAM-7
  EXPECT_EQ(engine_arguments(again), engine_arguments(served));
}

// Every model plugin gets the same option; one that does not know it is not bothered with the default.
TEST_F(Values, TheModelIsToldHowItsStateIsKept) {
  for (const char* granularity : {"blocks", "whole"}) {
    const Settings settings = parse({std::string("--state-granularity=") + granularity});
    EXPECT_EQ(model_options(engine_settings(settings)).at("state_granularity"), granularity);
  }
  EXPECT_EQ(model_options(engine_settings(parse({}))).count("state_granularity"), 0U);
  EXPECT_EQ(parse({}, {{"STRATA_STATE_GRANULARITY", "whole"}}).model.state_granularity, "whole");
}

// DM-1, DM-3: beside the model file, for seven days; the engine gets the same.
TEST_F(Values, DiskModeLiesBesideTheModel) {
  const Settings served = parse({"--model=/pack/model.gguf", "--conversation-cache-disk-mib=500"});
  const TierOptions tiers = engine_settings(served).tiers;
  EXPECT_TRUE(tiers.disk_mode);
  EXPECT_TRUE(tiers.disk_persist);
  EXPECT_FALSE(tiers.disk_empty_at_start);
  EXPECT_EQ(tiers.ram_budget_bytes, 0U);
  EXPECT_EQ(tiers.disk_budget_bytes, 500 * limits::kMiB);
  EXPECT_EQ(tiers.disk_folder, "/pack/conversation_cache");
  EXPECT_EQ(tiers.disk_ttl_ns, 7 * 24 * 60 * uint64_t{60'000'000'000});
  const Settings again = parse(engine_arguments(served));
  EXPECT_EQ(engine_settings(again).tiers.disk_folder, tiers.disk_folder);
  EXPECT_EQ(engine_arguments(again), engine_arguments(served));
}

TEST_F(Values, DiskModeOfZeroDaysEndsWithTheRun) {
  const TierOptions tiers =
      engine_settings(parse({"--conversation-cache-disk-mib=500", "--conversation-disk-dir=/d",
                             "--conversation-cache-days=0", "--disk-write-policy=through"}))
          .tiers;
  EXPECT_TRUE(tiers.disk_empty_at_start);
  EXPECT_FALSE(tiers.disk_persist);
  EXPECT_EQ(tiers.disk_ttl_ns, 0U);
  EXPECT_EQ(tiers.write_policy, WritePolicy::through);
}

TEST_F(CommandLine, HelpGolden) {
  const std::map<std::string, std::vector<std::string>> commands{{"help", {"--help"}},
                                                                 {"serve_help", {"serve", "--help"}},
                                                                 {"engine_help", {"engine", "--help"}},
                                                                 {"plugins_help", {"plugins", "--help"}},
                                                                 {"sessions_help", {"sessions", "--help"}}};
  for (const auto& [name, arguments] : commands) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.err, "");
    testing::expect_golden("cli/" + name + ".txt", outcome.out);
  }
}

TEST_F(CommandLine, VersionNamesReleaseCommitCompilerAndPlugins) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.status, 0);
  for (const char* part : {"strata ", "compiler: ", "plugin: device", "plugin: model", "plugin: io"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
}

}  // namespace
}  // namespace strata::cli
