// The disk tier end to end: DISK-1 to DISK-11, B-1 to B-3 and the invariants that concern it. Every answer is
// held against a world without a cache.
#include <gtest/gtest.h>

#include <set>

#include "core/manifest.hpp"
#include "tests/support/stack_pair.hpp"
#include "tests/support/stored_conversation.hpp"
#include "tiers/pinned_pool.hpp"

namespace strata::testing {
namespace {

class StackDisk : public StackPair {
 protected:
  // Bytes that ever went into this file.
  [[nodiscard]] uint64_t written_to(const std::string& name) const {
    uint64_t sum = 0;
    for (const std::string& call : world_->recorded_files().calls) {
      if (call.starts_with("write " + name + " ")) sum += std::stoull(call.substr(call.find('+') + 1));
    }
    return sum;
  }
};

constexpr uint64_t kBlockBytes = 16 * 1024;  // of 16 tokens, attention

// --- DISK-1, invariant 7

// A disk that never answers: every switch is placed in as many steps as with a disk that answers at once.
TEST_F(StackDisk, DISK1_ASwitchNeverWaitsForTheDisk) {
  std::vector<int> steps[2];
  for (const bool hangs : {false, true}) {
    StackWorld& world = make(ram_and_disk(700 << 10, 64 << 20), 2);
    world.writer().hang(hangs);
    std::vector<std::vector<Token>> agents;
    for (uint64_t i = 0; i < 5; ++i) agents.push_back(prompt_of(10 + i, 200));
    for (uint64_t turn = 0; turn < 15; ++turn) {
      auto& prompt = agents[turn * 3 % agents.size()];
      int& taken = steps[hangs].emplace_back(0);
      const RequestId id = world.begin(prompt);
      while (world.stack().state(id) != RequestState::serving && taken < 1000) {
        world.step();
        ++taken;
      }
      const Answer answer = world.answer(id, prompt, kGenerate);
      world.end(id);
      expect_exact(answer, prompt);
      prompt = next_prompt(prompt, answer, 50 + turn, 10);
    }
    EXPECT_EQ(world.writer().busy(), hangs);
    EXPECT_LT(*std::max_element(steps[hangs].begin(), steps[hangs].end()), 60);
  }
}

// A disk that takes 5 seconds a write, in virtual time: no placement takes that long.
TEST_F(StackDisk, DISK1_FiveSecondsAWriteAreNotFeltByASwitch) {
  StackWorld& world = make(ram_and_disk(900 << 10, 64 << 20), 2);
  world.options().writes_run = false;
  std::vector<std::vector<Token>> agents;
  for (uint64_t i = 0; i < 5; ++i) agents.push_back(prompt_of(10 + i, 200));
  uint64_t next_write_ns = 0;
  world.after_step = [&](StackWorld& w) {  // a job ends 5 s after it started
    if (w.writer().busy() && w.clock().monotonic_ns() >= next_write_ns) {
      w.writer().hang(false);
      w.writer().run_one();
    }
    w.writer().hang(true);
    if (!w.writer().busy() && w.writer().start_one())
      next_write_ns = w.clock().monotonic_ns() + 5'000'000'000;
  };
  for (uint64_t turn = 0; turn < 20; ++turn) {
    auto& prompt = agents[turn * 3 % agents.size()];
    const Answer answer = ask(prompt);
    EXPECT_LT(answer.placement.placing_ns, 100'000'000u);
    prompt = next_prompt(prompt, answer, 50 + turn, 10);
    world.clock().advance(1'500'000'000);
  }
  EXPECT_GT(world.stack().status().disk_images, 0u) << "some writes did end meanwhile";
}

// --- DISK-2

TEST_F(StackDisk, DISK2_AskedForBeforeItsWriteStartedItComesFromRamAndTheWriteIsCancelled) {
  StackWorld& world = make(ram_and_disk(600 << 10, 64 << 20));
  world.options().writes_run = false;
  const auto a = prompt_of(1, 300);
  ask(a);
  ask(prompt_of(2, 100));
  ASSERT_EQ(world.stack().status().disk_queue_jobs, 1u);
  expect_reused(299, Tier::ram, a);
  EXPECT_EQ(skips("disk", "cancelled"), 1);
  world.writer().run_all();
  world.step(3);
  EXPECT_EQ(files(".idx").size(), world.stack().status().disk_images);
  world.settle();
  ask(prompt_of(3, 16));
  expect_reused(299, Tier::ram, a);
}

TEST_F(StackDisk, DISK2_WhileItIsBeingWrittenItIsServedFromRam) {
  StackWorld& world = make(ram_and_disk(600 << 10, 64 << 20));
  world.options().writes_run = false;
  const auto a = prompt_of(1, 300);
  const Answer first = ask(a);
  ask(prompt_of(2, 100));
  world.writer().hang(true);
  ASSERT_TRUE(world.writer().start_one());
  const auto next = next_prompt(a, first, 3, 20);
  const Answer second = expect_reused(304, Tier::ram, next);
  world.writer().hang(false);
  world.settle();
  expect_reused(328, Tier::vram, next_prompt(next, second, 4, 5));
}

// --- DISK-3, invariant 2

TEST_F(StackDisk, DISK3_TheCeilingHoldsAtEveryStepWithJobsUnderWay) {
  constexpr uint64_t kBudget = 1300 << 10;
  StackWorld& world = make(ram_and_disk(600 << 10, kBudget), 2);
  world.after_step = [&](StackWorld& w) {
    ASSERT_LE(w.stack().status().disk_bytes, kBudget);
    ASSERT_LE(w.files().allocated_bytes(), kBudget);
  };
  for (uint64_t i = 0; i < 14; ++i) {
    world.options().writes_run = i % 3 != 0;
    ask(prompt_of(i, 150 + static_cast<uint32_t>(i * 37 % 200)));
  }
  world.settle();
  EXPECT_GT(world.stack().status().disk_images, 1u);
  EXPECT_GT(world.metrics().value("strata_evictions_total", "tier=\"disk\",reason=\"evicted\""), 0);
}

TEST_F(StackDisk, DISK3_LeastRecentlyUsedGoesFirst) {
  StackWorld& world = make(ram_and_disk(400 << 10, 1100 << 10));
  std::vector<std::vector<Token>> prompts;
  for (uint64_t i = 0; i < 3; ++i) prompts.push_back(prompt_of(10 + i, 300));
  for (const auto& prompt : prompts) ask(prompt);
  ask(prompt_of(20, 16));
  world.settle();
  ASSERT_EQ(world.stack().status().disk_images, 3u);
  ask(prompts[0]);  // used again: the second is the oldest now
  ask(prompt_of(21, 300));
  ask(prompt_of(22, 16));
  world.settle();
  expect_reused(299, Tier::disk, prompts[2]);
  EXPECT_EQ(to_string(expect_reused(0, Tier::none, prompts[1]).placement.cause), "evicted");
}

// The image that a request is about to load is not what makes room, however long the load takes.
TEST_F(StackDisk, DISK3_NeverTheImageBeingLoaded) {
  StackWorld& world = make(ram_and_disk(400 << 10, 700 << 10), 2);
  const auto a = prompt_of(1, 300);
  ask(a);
  world.shutdown();
  world.restart();
  world.reader().set_latency(IoKind::read, 20'000'000);
  const auto b = prompt_of(2, 300);
  std::vector<InFlight> both;
  both.push_back(world.launch(a, kGenerate));
  for (uint64_t i = 0; i < 4; ++i) both.push_back(world.launch(prompt_of(3 + i, 300), kGenerate));
  run(both);
  EXPECT_EQ(both[0].answer.placement.tier, Tier::disk);
  EXPECT_EQ(both[0].answer.placement.reused_tokens, 299u);
}

TEST_F(StackDisk, DISK3_FreeSpaceFloor) {
  TierOptions tiers = ram_and_disk(400 << 10, 64 << 20);
  tiers.disk_min_free_bytes = 1 << 20;
  StackWorld& world = make(tiers);
  world.files().set_capacity((1 << 20) + (500 << 10));
  world.after_step = [&](StackWorld& w) {
    ASSERT_GE((1 << 20) + (500 << 10) - w.files().allocated_bytes(), uint64_t{1} << 20);
  };
  for (uint64_t i = 0; i < 5; ++i) ask(prompt_of(i, 300));
  world.settle();
  EXPECT_EQ(world.stack().status().disk_images, 1u);
  world.files().set_capacity(1 << 20);  // somebody else filled the disk
  ask(prompt_of(10, 300));
  ask(prompt_of(11, 300));
  world.settle();
  EXPECT_GT(skips("disk", "min_free_disk"), 0);
}

TEST_F(StackDisk, DISK3_NoSpaceDropsTheWriteAndIsNoError) {
  StackWorld& world = make(ram_and_disk(400 << 10, 64 << 20));
  world.faulty_files().set_plan({{FileCall::allocate, 1, ENOSPC, true}});
  const auto a = prompt_of(1, 300);
  ask(a);
  for (uint64_t i = 2; i < 5; ++i) ask(prompt_of(i, 300));
  world.settle();
  EXPECT_GT(skips("disk", "no_space"), 0);
  EXPECT_EQ(world.stack().status().disk_images, 0u);
  EXPECT_TRUE(files(".sess").empty()) << "nothing is left of what was dropped";
  EXPECT_EQ(to_string(ask(a).placement.cause), "evicted");
}

// Two tiers that hold the same conversations do not push each other's out for ever.
TEST_F(StackDisk, DISK3_AWorldAtRestWritesNothing) {
  for (const bool ages : {false, true}) {
    TierOptions tiers = ram_and_disk(2 << 20, 700 << 10);
    if (ages) {
      tiers = ram_and_disk(2 << 20, 64 << 20);
      tiers.disk_ttl_ns = kMinuteNs;
    }
    StackWorld& world = make(tiers);
    for (uint64_t i = 0; i < 7; ++i) ask(prompt_of(i, 300));
    world.settle();
    const auto written = [&] { return world.metrics().value("strata_disk_written_bytes_total"); };
    for (int i = 0; i < 5; ++i) {
      world.clock().advance(2 * kMinuteNs);
      world.step(3);
    }
    const double before = written();
    for (int i = 0; i < 50; ++i) {
      world.clock().advance(2 * kMinuteNs);
      world.step(3);
    }
    EXPECT_EQ(written(), before);
  }
}

// --- DISK-4

TEST_F(StackDisk, DISK4_ExpiredOnesGoAtTheNextTickAndUsedOnesStay) {
  TierOptions tiers = ram_and_disk(400 << 10, 64 << 20);
  tiers.disk_ttl_ns = 30 * kMinuteNs;
  for (const bool used_from_ram : {false, true}) {
    StackWorld& world = make(tiers);
    std::vector<std::vector<Token>> prompts;
    for (uint64_t i = 0; i < 3; ++i) prompts.push_back(prompt_of(i, 300));
    for (const auto& prompt : prompts) ask(prompt);
    ask(prompt_of(3, 16));
    world.settle();
    ASSERT_EQ(world.stack().status().disk_images, 3u);
    world.clock().advance(20 * kMinuteNs);
    const auto& used = prompts[used_from_ram ? 2 : 0];
    expect_reused(299, used_from_ram ? Tier::ram : Tier::disk, used);
    world.clock().advance(20 * kMinuteNs);
    world.settle();
    size_t on_disk = 0;
    for (const StoredConversation& stored : world.stack().conversations()) {
      if (stored.tokens == 304 && stored.disk_bytes > 0) ++on_disk;
    }
    EXPECT_EQ(on_disk, 1u) << "the used one";
    EXPECT_EQ(to_string(expect_reused(0, Tier::none, prompts[1]).placement.cause), "expired");
    EXPECT_EQ(ask(used).placement.reused_tokens, 299u);
  }
}

// --- DISK-5

TEST_F(StackDisk, DISK5_WithoutPersistenceTheFilesGoAtTheEnd) {
  TierOptions tiers = ram_and_disk(400 << 10, 64 << 20);
  tiers.disk_persist = false;
  StackWorld& world = make(tiers);
  for (uint64_t i = 0; i < 4; ++i) ask(prompt_of(i, 300));
  world.settle();
  EXPECT_FALSE(files(".idx").empty());
  world.shutdown();
  EXPECT_TRUE(files(".idx").empty());
  EXPECT_TRUE(files(".sess").empty());
}

TEST_F(StackDisk, DISK5_OrAtTheNextStartWhichOffersNothing) {
  TierOptions tiers = ram_and_disk(400 << 10, 64 << 20);
  tiers.disk_persist = false;
  StackWorld& world = make(tiers);
  const auto a = prompt_of(0, 300);
  ask(a);
  for (uint64_t i = 1; i < 4; ++i) ask(prompt_of(i, 300));
  world.settle();
  for (const bool persist : {true, false}) {
    world.options().tiers.disk_persist = persist;
    world.restart();
    EXPECT_EQ(world.stack().status().disk_images, 0u);
    EXPECT_TRUE(files(".idx").empty());
    EXPECT_TRUE(files(".sess").empty());
    EXPECT_EQ(to_string(ask(a).placement.cause), "new");
  }
}

TEST_F(StackDisk, DISK5_WhatAnotherRunPersistedStays) {
  StackWorld& world = make(ram_and_disk(400 << 10, 64 << 20));
  const auto a = prompt_of(1, 300);
  ask(a);
  world.shutdown();
  const auto kept = files("");
  world.options().tiers.disk_persist = false;
  world.restart();
  EXPECT_EQ(world.stack().status().disk_images, 0u);
  EXPECT_GE(world.stack().status().disk_bytes, 300u << 10) << "and counts";
  for (uint64_t i = 2; i < 6; ++i) ask(prompt_of(i, 300));
  world.shutdown();
  EXPECT_EQ(files(""), kept);
  world.options().tiers.disk_persist = true;
  world.restart();
  expect_reused(299, Tier::disk, a);
}

// --- DISK-6, DISK-8

TEST_F(StackDisk, DISK6_AStartReadsOnlyTheHeadsOfIndexes) {
  StackWorld& world = make(ram_and_disk(500 << 10, 64 << 20));
  for (uint64_t i = 0; i < 6; ++i) ask(prompt_of(i, 400));
  world.shutdown();
  world.restart();
  EXPECT_EQ(world.stack().status().disk_images, 6u);
  EXPECT_EQ(world.reader().submitted(IoKind::read), 0u);
  ask(prompt_of(3, 400));
  EXPECT_LE(world.reader().submitted_bytes(IoKind::read), (400u << 10) + (64 << 10)) << "one, not six";
}

TEST_F(StackDisk, DISK8_TheMostRecentlyUsedAreTakenInUpToTheBudget) {
  StackWorld& world = make(ram_and_disk(400 << 10, 64 << 20));
  std::vector<std::vector<Token>> prompts;
  for (uint64_t i = 0; i < 5; ++i) prompts.push_back(prompt_of(i, 300));
  for (const auto& prompt : prompts) ask(prompt);
  world.shutdown();
  constexpr uint64_t kBudget = 1000 << 10;
  world.options().tiers.disk_budget_bytes = kBudget;
  world.restart();
  EXPECT_EQ(world.stack().status().disk_images, 3u);
  EXPECT_LE(world.files().allocated_bytes(), kBudget);
  for (size_t i = 5; i-- > 2;) expect_reused(299, Tier::disk, prompts[i]);
}

// Read back, but nothing new was published: the next start knows of it all the same; an hour later, too.
TEST_F(StackDisk, DISK8_AUseThatPublishedNothingCountsForTheOrder) {
  for (const bool in_order : {true, false}) {
    StackWorld& world = make(ram_and_disk(400 << 10, 64 << 20));
    std::vector<std::vector<Token>> prompts;
    for (uint64_t i = 0; i < 5; ++i) prompts.push_back(prompt_of(i, 300));
    for (const auto& prompt : prompts) ask(prompt);
    world.shutdown();
    world.clock().advance(60 * kMinuteNs);
    world.restart();
    TierRequest once;
    once.keep = false;
    expect_reused(299, Tier::disk, prompts[0], once);
    world.clock().advance(2 * kMinuteNs);
    world.settle();
    if (in_order) world.shutdown();  // otherwise as after a crash
    world.options().tiers.disk_budget_bytes = 400 << 10;
    world.restart();
    EXPECT_EQ(world.stack().status().disk_images, 1u);
    expect_reused(299, Tier::disk, prompts[0]);
  }
}

// The folder cannot be flushed after a rename: a power loss may bring the older index back, so its bytes
// stay.
TEST_F(StackDisk, B6_NothingIsGivenBackWhileAPublicationMayBeLost) {
  StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20));
  world.options().tiers.write_policy = WritePolicy::through;
  world.restart();
  const auto a = prompt_of(1, 300);
  const Answer first = ask(a);
  world.settle();
  const auto before = read_published(world.files(), StackWorld::kFolder, conversation_of(304));
  ASSERT_TRUE(before.ok());
  world.faulty_files().set_plan({{FileCall::sync_directory, 1, EIO, true}});
  ask(next_prompt(a, first, 3, 40));
  world.settle();
  EXPECT_GT(world.faulty_files().faults(), 0u);
  const auto after = read_published(world.files(), StackWorld::kFolder, before->head.id);
  ASSERT_TRUE(after.ok()) << "it is published all the same";
  EXPECT_GT(after->head.generation, before->head.generation);
  for (const ManifestPart& part : before->parts) {
    EXPECT_TRUE(check_stored_part(world.files(), StackWorld::kFolder, *before, part).ok());
  }
}

// --- DISK-11

// A two-stage conversation of which one part of one stage is missing is not restored.
TEST_F(StackDisk, DISK11_WithOnePartOfOneStageMissingNothingIsRestored) {
  for (const char* layout : {"attention", "sliding", "hybrid"}) {
    TierOptions tiers = ram_and_disk(8 << 20, 64 << 20);
    tiers.foreign = ForeignFiles::keep;
    StackWorld& world = make(tiers, 1, layout, 2);
    const auto a = prompt_of(1, 300);
    const Answer first = ask(a);
    world.shutdown();
    const ConversationId id = conversation_of(304);
    const auto whole = read_published(world.files(), StackWorld::kFolder, id);
    ASSERT_TRUE(whole.ok());
    const std::string index = std::string(StackWorld::kFolder) + "/" + index_file_name(id);
    const auto next = next_prompt(a, first, 9, 10);
    for (size_t left_out : {size_t{0}, whole->parts.size() / 2, whole->parts.size() - 1}) {
      Manifest cut = *whole;
      cut.parts.erase(cut.parts.begin() + static_cast<std::ptrdiff_t>(left_out));
      world.files().put(index, encode_manifest(cut));
      world.restart();
      const Answer answer = ask(next);  // exact, whatever could be reused
      EXPECT_LT(answer.placement.reused_tokens, 304u) << layout << " without part " << left_out;
      world.files().put(index, encode_manifest(*whole));
      (void)world.files().unlink(index + ".bad");
    }
    world.restart();
    expect_reused(304, Tier::disk, next);
  }
}

// Control: bytes of another conversation in place of one block, with a digest that fits, are restored, and
// the answer differs: equal answers elsewhere do prove that all parts are right.
TEST_F(StackDisk, DISK11_ControlAnotherBlockGivesAnotherAnswer) {
  for (const char* layout : {"attention", "sliding", "hybrid"}) {
    StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20), 1, layout);
    const auto a = prompt_of(1, 300);
    const Answer first = ask(a);
    world.shutdown();
    const auto whole = read_published(world.files(), StackWorld::kFolder, conversation_of(304));
    ASSERT_TRUE(whole.ok());
    for (const size_t changed : {size_t{3}, whole->parts.size() - 1}) {
      Manifest manifest = *whole;
      ManifestPart& part = manifest.parts[changed];
      std::vector<std::byte> bytes = world.files().get(file(".sess"));
      const std::vector<std::byte> before = bytes;
      for (size_t i = 0; i + 4 <= part.length; i += 64) bytes[part.offset + i + 2] ^= std::byte{0x40};
      part.digest = digest_part({manifest.head.id, part.stage, part.first, part.kind},
                                std::span(bytes).subspan(part.offset, part.length));
      const std::string session = file(".sess");
      world.files().put(session, bytes);
      world.files().put(file(".idx"), encode_manifest(manifest));
      world.restart();
      const auto next = next_prompt(a, first, 9, 10);
      const Answer answer = world.ask(next, kGenerate);
      EXPECT_EQ(answer.placement.reused_tokens, 304u);
      EXPECT_FALSE(answer == expected(next)) << layout << " part " << changed;
      world.files().put(session, before);
    }
  }
}

// --- invariant 4

TEST_F(StackDisk, Invariant4_NoIndexRefersToBytesThatWereNotSynced) {
  StackWorld& world = make(ram_and_disk(500 << 10, 1200 << 10), 2, "hybrid", 2);
  const auto system = prompt_of(1, 100);
  std::vector<std::vector<Token>> agents;
  for (uint64_t i = 0; i < 4; ++i) agents.push_back(followed_by(system, 10 + i, 50));
  TierRequest request;
  request.borders = {100};
  for (uint64_t turn = 0; turn < 16; ++turn) {
    auto& prompt = agents[turn % agents.size()];
    prompt = next_prompt(prompt, ask(prompt, request), 50 + turn, 15);
  }
  world.shutdown();
  EXPECT_TRUE(world.recorded_files().violations.empty()) << world.recorded_files().violations.front();
  // Everything published is really there.
  for (const StoredConversation& stored : world.stack().conversations()) {
    if (stored.disk_bytes == 0) continue;
    const auto manifest = read_published(world.files(), StackWorld::kFolder, stored.id);
    EXPECT_TRUE(manifest.ok()) << manifest.error().message;
  }
  const auto& calls = world.recorded_files().calls;
  const auto renames = std::count_if(calls.begin(), calls.end(),
                                     [](const std::string& call) { return call.starts_with("rename"); });
  EXPECT_GT(renames, 3);
}

// --- invariant 5

// A part whose digest does not fit is not handed to the model, and neither is the rest committed.
TEST_F(StackDisk, Invariant5_NothingIsImportedBeforeItWasVerified) {
  StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20));
  const auto a = prompt_of(1, 300);
  ask(a);
  world.shutdown();
  world.restart();
  world.files().flip_byte(file(".sess"), 4096 + 5);  // the first block
  for (uint64_t seed = 1; seed < 2; ++seed) {
    world.faulty_model().set_fault({});
    EXPECT_EQ(to_string(ask(a).placement.cause), "corrupt");
    EXPECT_LT(world.faulty_model().calls(ModelCall::import_block), 19u);
    EXPECT_EQ(world.faulty_model().calls(ModelCall::import_commit), 0u);
  }
}

// --- a disk that does not answer

// A read that hangs is waited for as long as reading the prompt again would take; what is stored stays
// stored.
TEST_F(StackDisk, DISK1_AReadThatHangsIsNotWaitedForForEver) {
  constexpr uint64_t kHourNs = 60 * kMinuteNs;
  StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20));
  const auto a = prompt_of(1, 300);
  const Answer first = ask(a);
  world.shutdown();
  world.restart();
  world.reader().set_faults({{IoKind::read, 3, 0, true, kHourNs}});
  const auto next = next_prompt(a, first, 3, 10);
  std::vector<InFlight> requests;
  requests.push_back(world.launch(next, kGenerate));
  world.step(200);
  EXPECT_EQ(world.stack().state(requests[0].id), RequestState::placing);
  world.clock().advance(20 * kMinuteNs / 60);
  world.step(10);
  EXPECT_EQ(world.stack().state(requests[0].id), RequestState::placing) << "20 s";
  world.clock().advance(20 * kMinuteNs / 60);
  run(requests);
  EXPECT_EQ(requests[0].answer.placement.reused_tokens, 0u);
  EXPECT_EQ(to_string(requests[0].answer.placement.cause), "io_error");
  EXPECT_TRUE(world.log().contains("the disk has answered no read for"));
  world.reader().set_faults({});
  ask(prompt_of(2, 100));  // others go on while the reads are still out
  world.clock().advance(kHourNs);
  world.settle();
  world.shutdown();
  world.restart();
  expect_reused(static_cast<uint32_t>(next.size()) + 4, Tier::disk,
                next_prompt(next, requests[0].answer, 4, 10));
}

// A client that goes away while the disk hangs frees its slot at once.
TEST_F(StackDisk, DISK1_AHangingReadThatNobodyWaitsForHoldsNoSlot) {
  StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20));
  const auto a = prompt_of(1, 300);
  const Answer first = ask(a);
  world.shutdown();
  world.restart();
  world.reader().set_faults({{IoKind::read, 3, 0, true, 60 * kMinuteNs}});
  std::vector<InFlight> requests;
  requests.push_back(world.launch(next_prompt(a, first, 3, 10), kGenerate));
  world.step(200);
  world.end(requests[0].id);
  world.step(10);
  world.reader().set_faults({});
  ask(prompt_of(2, 100));
  expect_reused(304, Tier::disk, next_prompt(a, first, 3, 10));
}

// --- invariant 6

TEST_F(StackDisk, Invariant6_APinnedConversationIsNotEvictedSupersededExpiredOrRewritten) {
  TierOptions tiers = ram_and_disk(400 << 10, 1100 << 10);
  tiers.disk_ttl_ns = kMinuteNs;
  StackWorld& world = make(tiers);
  auto a = prompt_of(1, 200);
  const Answer first = ask(a);
  ask(prompt_of(2, 300));
  ask(prompt_of(3, 300));
  world.settle();
  const ConversationId id = conversation_of(204);
  ASSERT_TRUE(world.stack().pin(id, true).ok());
  const std::string index = std::string(StackWorld::kFolder) + "/" + index_file_name(id);
  ASSERT_TRUE(world.files().exists(index));
  const auto published = world.files().get(index);
  world.clock().advance(5 * kMinuteNs);
  world.settle();
  const auto next = next_prompt(a, first, 7, 30);
  const Answer second = expect_reused(204, Tier::disk, next);  // goes on from it
  for (uint64_t i = 10; i < 16; ++i) ask(prompt_of(i, 250));
  world.settle();
  EXPECT_EQ(world.files().get(index), published);
  EXPECT_TRUE(read_published(world.files(), StackWorld::kFolder, id).ok());
  EXPECT_GE(ask(branch(next, 205, 8, 10)).placement.reused_tokens, 203u);
  ASSERT_TRUE(world.stack().pin(id, false).ok());
  world.clock().advance(5 * kMinuteNs);
  world.step(3);
  world.settle();
  EXPECT_FALSE(world.files().exists(index));
}

// --- B-1

TEST_F(StackDisk, B1_ParkingAgainCopiesAndWritesOnlyNewBlocks) {
  StackWorld& world = make(ram_and_disk(600 << 10, 64 << 20));
  const auto parked = [&] { return world.metrics().value("strata_parked_bytes_total"); };
  auto prompt = prompt_of(1, 300);
  const Answer first = ask(prompt);
  ask(prompt_of(2, 16));
  world.settle();
  EXPECT_EQ(parked(), 304 * 1024);
  const std::string session = session_file_name(conversation_of(304));
  EXPECT_EQ(written_to(session), 4096u + 304 * 1024);
  // 40 new tokens: the 19 full blocks stay where they are.
  prompt = next_prompt(prompt, first, 3, 36);
  expect_reused(304, Tier::ram, prompt);
  const double before = parked();
  ask(prompt_of(3, 16));
  world.settle();
  EXPECT_EQ(parked() - before, 40 * 1024);
  EXPECT_EQ(session_file_name(conversation_of(344)), session);
  EXPECT_EQ(written_to(session), 4096u + 304 * 1024 + 40 * 1024);
}

// A tail block that grows is the one thing that is copied again.
TEST_F(StackDisk, B1_OnlyTheTailBlockIsCopiedTwice) {
  StackWorld& world = make(ram_tier(8 << 20));
  auto prompt = prompt_of(1, 301);  // 305 with the answer: one token in the last block
  const Answer first = ask(prompt);
  ask(prompt_of(2, 16));
  const double before = world.metrics().value("strata_parked_bytes_total");
  EXPECT_EQ(before, 305 * 1024);
  expect_reused(305, Tier::ram, next_prompt(prompt, first, 3, 7));
  ask(prompt_of(3, 16));
  EXPECT_EQ(world.metrics().value("strata_parked_bytes_total") - before, (20 + 12) * 1024)
      << "the stranger, and the tail block of 12 tokens";
}

// --- B-2, P-6

// Twelve sub-agents with a common prefix: in RAM and on disk the prefix is there once.
TEST_F(StackDisk, B2_ACommonPrefixIsStoredOnce) {
  for (const char* layout : {"attention", "sliding", "hybrid"}) {
    StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20), 2, layout);
    const auto common = prompt_of(1, 400);
    TierRequest request;
    request.borders = {400};
    std::vector<std::vector<Token>> prompts;
    for (uint64_t i = 0; i < 12; ++i) {
      prompts.push_back(followed_by(common, 10 + i, 12));
      const Answer answer = ask(prompts.back(), request);
      EXPECT_GE(answer.placement.reused_tokens, i > 0 ? 400u : 0u) << layout << " " << i;
      prompts.back() = next_prompt(prompts.back(), answer, 30 + i, 5);
    }
    ask(prompt_of(90, 16));
    ask(prompt_of(91, 16));
    // What one costs alone, and what each adds to the prefix: one tail block and one live state.
    const ModelInfo& info = world.model().info();
    const uint64_t block = info.max_block_bytes[0];
    const uint64_t checkpoint = PinnedPool::class_bytes(info.checkpoint_bytes[0]);
    const bool checkpoints = info.needs_checkpoints;
    const uint64_t strangers = 2 * (2 * block + (checkpoints ? checkpoint : 0));
    const uint64_t prefix = 25 * block + (checkpoints ? checkpoint : 0);
    const uint64_t tails = 12 * (block + (checkpoints ? checkpoint : 0));
    EXPECT_LE(world.stack().status().ram_bytes, 105 * (prefix + tails) / 100 + strangers) << layout;
    world.shutdown();
    uint64_t session_bytes = 0;
    for (const std::string& path : files(".sess")) session_bytes += world.files().info(path)->allocated_bytes;
    const uint64_t headers = 14 * 4096;
    EXPECT_LE(session_bytes, 105 * (prefix + tails) / 100 + strangers + headers) << layout;
    world.restart();
    for (const auto& prompt : prompts) {
      EXPECT_EQ(ask(prompt).placement.reused_tokens, prompt.size() - 5) << layout;
    }
  }
}

// --- B-3

TEST_F(StackDisk, B3_AMatchOnTheFirstPartReadsOnlyThoseBlocks) {
  StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20));
  const auto a = prompt_of(1, 480);
  ask(a);
  world.shutdown();
  world.restart();
  const Answer answer = expect_reused(320, Tier::disk, branch(a, 320, 2, 20));
  EXPECT_EQ(answer.placement.disk_bytes, 20 * kBlockBytes);
  const uint64_t index = world.files().info(file(".idx"))->size_bytes;
  EXPECT_EQ(world.reader().submitted_bytes(IoKind::read), index + 20 * kBlockBytes);
}

}  // namespace
}  // namespace strata::testing
