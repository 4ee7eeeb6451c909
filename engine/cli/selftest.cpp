// strata selftest: what a model's state costs, and whether it comes back exactly.
#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iostream>

#include "core/limits.hpp"
#include "core/posix/clock.hpp"
#include "engine/cli/commands.hpp"
#include "engine/cli/logging.hpp"
#include "engine/cli/options.hpp"
#include "engine/runtime/model_file.hpp"
#include "engine/runtime/state_test.hpp"

namespace strata::cli {
namespace {

constexpr uint32_t kPromptTokens = 384;  // more than a block, and short enough for a slow machine

int complain(const Error& error) {
  std::cerr << "strata: " << error.message << '\n';
  return 1;
}

std::string speed(uint64_t bytes, uint64_t ns) {
  return fmt::format("{:.2f} GB/s",
                     static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(ns, 1)));
}

void print(const ModelInfo& info, const StateTestReport& report) {
  const uint64_t bytes = report.block_bytes + report.checkpoint_bytes;
  std::cout << fmt::format("model       {}, {:.1f}M parameters, context {}\n", info.name,
                           static_cast<double>(info.parameters) / 1e6, info.context_tokens);
  std::cout << (info.state_in_blocks
                    ? fmt::format("state       in blocks of {} tokens\n", info.tokens_per_block)
                    : std::string("state       whole\n"));
  std::cout << fmt::format("size        {:.0f} bytes a token, checkpoint {}\n", report.bytes_per_token,
                           info.needs_checkpoints
                               ? fmt::format("{} bytes at {} tokens", report.checkpoint_bytes, report.tokens)
                               : "none");
  std::cout << fmt::format("restored    {}\n",
                           report.equal ? "exact: logits equal, bit for bit"
                           : info.exact_import
                               ? "NOT exact, though the model declares it"
                               : "not exact: logits differ in their last bits (with several threads "
                                 "sums round by their place in the cache; --model-option threads=1)");
  std::cout << fmt::format("control     {}\n",
                           report.control_refused ? "refused, as it must be: the model checks what it imports"
                           : report.control_differs ? "differs, as it must"
                                                    : "does not differ: the comparison proves nothing");
  std::cout << fmt::format("speed       read {:.0f} tokens/s, export {}, import {}, digest {}\n",
                           report.tokens * 1e9 / static_cast<double>(std::max<uint64_t>(report.read_ns, 1)),
                           speed(bytes, report.export_ns), speed(bytes, report.import_ns),
                           speed(bytes, report.digest_ns));
}

int run_selftest(Settings settings) {
  settings.model.slots = std::max(settings.model.slots, 2U);
  const EngineSettings engine = engine_settings(settings);
  LogSettings warnings;
  warnings.level = "warning";
  const auto log = open_log(warnings);
  if (!log.ok()) return complain(log.error());
  PosixClock clock;
  PluginRegistry registry(**log, clock);
  if (const Status loaded = load_plugins(registry, engine); !loaded.ok()) return complain(loaded.error());
  const auto device = registry.make_device(engine.device, {});
  if (!device.ok()) return complain(device.error());
  const auto model = registry.make_model(model_plugin(engine), model_options(engine), **device);
  if (!model.ok()) return complain(model.error());
  if (const Status fits = check_context(engine, **model); !fits.ok()) return complain(fits.error());
  const uint32_t tokens = std::min(kPromptTokens, (*model)->info().context_tokens / 2);
  const auto report = test_state(**model, **device, clock, tokens);
  if (!report.ok()) return complain(report.error());
  print((*model)->info(), *report);
  const bool as_declared = report->equal || !(*model)->info().exact_import;
  return as_declared && report->control_holds() ? 0 : 1;
}

}  // namespace

void add_selftest_command(CLI::App& app, int& exit_status, Settings& settings) {
  CLI::App* command = app.add_subcommand(
      "selftest", "loads a model and says what its state costs and whether it comes back exactly");
  add_model_options(*command, settings);
  command->callback([&exit_status, &settings] {
    refuse_contradiction(settings);
    exit_status = run_selftest(settings);
  });
}

}  // namespace strata::cli
