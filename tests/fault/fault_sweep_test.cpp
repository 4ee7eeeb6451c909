// Every operation, every call, every kind of error: EIO, ENOSPC, EINTR, a short transfer, and a hang of 10 s;
// at the ports of files, I/O queue, device and model. What must hold is in fault_sweep.hpp.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/fault/fault_sweep.hpp"

namespace strata::testing {
namespace {

struct Layout {
  const char* name;
  int stages;
};
constexpr Layout kLayouts[] = {{"attention", 1}, {"hybrid", 2}};

using Case = std::tuple<const Scenario*, Layout>;

std::vector<const Scenario*> all_scenarios() {
  std::vector<const Scenario*> all;
  for (const Scenario& scenario : scenarios()) all.push_back(&scenario);
  return all;
}

std::string case_name(const ::testing::TestParamInfo<Case>& swept) {
  return std::string(std::get<0>(swept.param)->name) + "_" + std::get<1>(swept.param).name;
}

class Sweep : public FaultSweep, public ::testing::WithParamInterface<Case> {
 protected:
  [[nodiscard]] const Scenario& scenario() const { return *std::get<0>(GetParam()); }
  void sweep_all(const SweptFault& fault) {
    sweep(scenario(), std::get<1>(GetParam()).name, std::get<1>(GetParam()).stages, fault);
  }
};

SweptFault file_fault(const std::string& name, FileFault fault) {
  return {name,
          [fault](StackWorld& world, uint64_t nth) mutable {
            fault.nth = nth;
            world.faulty_files().set_plan({fault});
          },
          [](StackWorld& world) { return world.faulty_files().faults(); },
          [](StackWorld& world) { world.faulty_files().set_plan({}); }};
}

// Of the reader's queue or of the writer's.
SweptFault queue_fault(IoKind kind, int os_errno) {
  const bool reads = kind == IoKind::read;
  const auto queue = [reads](StackWorld& world) -> FakeIoQueue& {
    return reads ? world.reader() : world.writer_io();
  };
  return {std::string(reads ? "queued read" : "queued write") + ", errno " + std::to_string(os_errno),
          [queue, kind, os_errno](StackWorld& world, uint64_t nth) {
            queue(world).set_faults({{kind, nth, os_errno}});
          },
          [queue](StackWorld& world) { return queue(world).faults_hit(); },
          [queue](StackWorld& world) { queue(world).set_faults({}); }};
}

TEST_P(Sweep, FileCallsFailWithEIO) { sweep_all(file_fault("EIO", {FileCall::any, 1, EIO})); }
TEST_P(Sweep, FileCallsFailWithENOSPC) { sweep_all(file_fault("ENOSPC", {FileCall::any, 1, ENOSPC})); }
TEST_P(Sweep, FileCallsFailWithEINTR) { sweep_all(file_fault("EINTR", {FileCall::any, 1, EINTR})); }

TEST_P(Sweep, FileTransfersAreShort) {
  FileFault read{FileCall::read, 1, 0};
  read.keep_bytes = 100;
  sweep_all(file_fault("short read", read));
  FileFault write{FileCall::write, 1, ENOSPC};
  write.keep_bytes = 512;
  sweep_all(file_fault("write torn by ENOSPC", write));
}

TEST_P(Sweep, QueuedTransfersFail) {
  if (scenario().starts) GTEST_SKIP() << "the queues are made by the start";
  for (const int os_errno : {EIO, ENOSPC, EINTR}) {
    sweep_all(queue_fault(IoKind::read, os_errno));
    sweep_all(queue_fault(IoKind::write, os_errno));
  }
}

TEST_P(Sweep, ModelCallsFail) {
  if (scenario().starts) GTEST_SKIP() << "the model is made by the start";
  for (const ModelCall call : {ModelCall::export_block, ModelCall::export_checkpoint, ModelCall::import_begin,
                               ModelCall::import_block, ModelCall::import_checkpoint,
                               ModelCall::import_commit, ModelCall::truncate, ModelCall::clear}) {
    SweptFault fault{"model call " + std::to_string(static_cast<int>(call)),
                     [call](StackWorld& world, uint64_t nth) {
                       ModelFault one;
                       one.call = call;
                       one.at = nth;
                       world.faulty_model().set_fault(one);
                     },
                     [](StackWorld& world) { return world.faulty_model().injected(); },
                     [](StackWorld& world) { world.faulty_model().set_fault({}); }};
    fault.request_may_fail = call == ModelCall::truncate || call == ModelCall::clear;
    sweep_all(fault);
  }
}

TEST_P(Sweep, DeviceCallsFail) {
  if (scenario().starts) GTEST_SKIP() << "the device is made by the start";
  for (uint64_t DeviceFaults::*which : {&DeviceFaults::fail_record_at, &DeviceFaults::fail_finish_at,
                                        &DeviceFaults::fail_register_at, &DeviceFaults::fail_allocate_at}) {
    sweep_all({"device call",
               [which](StackWorld& world, uint64_t nth) {
                 DeviceFaults faults;
                 faults.*which = nth;
                 world.faulty_device().set_faults(faults);
               },
               [](StackWorld& world) { return world.faulty_device().injected(); },
               [](StackWorld& world) { world.faulty_device().set_faults({}); }});
  }
}

// The first, second, third … job of the writer hangs for 10 s: no request is felt to wait for it (DISK-1).
TEST_P(Sweep, AWriteHangsForTenSeconds) {
  constexpr uint64_t kHangNs = 10'000'000'000;
  const Layout layout = std::get<1>(GetParam());
  if (scenario().starts || std::string(scenario().name) == "shutdown")
    GTEST_SKIP() << "nothing but the end waits for these writes";
  if (scenario().disk_mode) GTEST_SKIP() << "in disk mode a switch is a write";
  bool hung = true;
  for (uint64_t nth = 1; hung && !HasFailure(); ++nth) {
    prepare(scenario(), layout.name, layout.stages);
    hung = false;
    uint64_t jobs = 0;
    uint64_t until_ns = 0;
    world_->options().writes_run = false;
    world_->after_step = [&](StackWorld& world) {
      SteppedWriteQueue& writer = world.writer();
      if (until_ns != 0) {
        if (world.clock().monotonic_ns() >= until_ns) writer.hang(false);
        (void)writer.run_all();
        return;
      }
      while (writer.waiting() > 0 && ++jobs < nth) (void)writer.run_one();
      if (jobs < nth || !writer.start_one()) return;
      hung = true;
      until_ns = world.clock().monotonic_ns() + kHangNs;
      writer.hang(true);
    };
    for (uint64_t i = 0; i < 4; ++i) {
      const Answer answer = ask(prompt_of(90 + i, 60), request);
      EXPECT_LT(answer.placement.placing_ns, kHangNs / 10) << "request " << i;
    }
    EXPECT_LT(ask(next_of(0), request).placement.placing_ns, kHangNs / 10);
    world_->clock().advance(kHangNs);
    world_->settle();
    check_what_is_left(scenario());
    if (HasFailure()) ADD_FAILURE() << scenario().name << ", job " << nth;
    ASSERT_LT(nth, 200u);
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, Sweep,
                         ::testing::Combine(::testing::ValuesIn(all_scenarios()),
                                            ::testing::ValuesIn(kLayouts)),
                         case_name);

// The first, second, third … read of a fetch hangs for 10 s: who needs nothing of it is served meanwhile, and
// who waited gets it in the end.
class HangingRead : public FaultSweep, public ::testing::WithParamInterface<Layout> {};

TEST_P(HangingRead, OthersAreServedMeanwhile) {
  constexpr uint64_t kHangNs = 10'000'000'000;
  const Scenario& fetch = scenarios()[1];
  ASSERT_STREQ(fetch.name, "fetch");
  uint64_t hung = 1;
  for (uint64_t nth = 1; hung > 0 && !HasFailure(); ++nth) {
    prepare(fetch, GetParam().name, GetParam().stages);
    world_->reader().set_faults({{IoKind::read, nth, 0, false, kHangNs}});
    std::vector<InFlight> requests;
    requests.push_back(world_->launch(next_of(0), kGenerate, request));
    requests.push_back(world_->launch(prompt_of(95, 60), kGenerate, request));
    const uint64_t start_ns = world_->clock().monotonic_ns();
    for (int i = 0; i < 20'000 && !requests[1].done; ++i) {
      world_->step();
      for (InFlight& one : requests) world_->move(one);
    }
    hung = world_->reader().faults_hit();
    EXPECT_TRUE(requests[1].done);
    EXPECT_LT(world_->clock().monotonic_ns() - start_ns, kHangNs / 2);
    EXPECT_TRUE(hung == 0 || !requests[0].done || nth > 1);
    world_->clock().advance(kHangNs);
    run(requests);
    EXPECT_GE(requests[0].answer.placement.reused_tokens, stored(0).size() - 4);
    world_->reader().set_faults({});
    ASSERT_LT(nth, 200u);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, HangingRead, ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return std::string(layout.param.name); });

}  // namespace
}  // namespace strata::testing
