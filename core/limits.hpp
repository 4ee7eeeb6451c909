// Every queue, loop, retry, buffer and parsed count has its limit here. Relations are checked at compile
// time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::limits {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

// Files
inline constexpr uint64_t kAlignment = 4096;               // of extents, pinned buffers and transfers
inline constexpr uint64_t kMaxPartBytes = 16 * kMiB;       // one block, or one transfer of a checkpoint
inline constexpr uint64_t kMaxCheckpointBytes = 4 * kGiB;  // one checkpoint of one stage
inline constexpr uint64_t kSessionHeaderBytes = 4096;
inline constexpr uint64_t kMaxManifestBytes = 256 * kMiB;
inline constexpr uint64_t kMaxIndexHeadBytes = 16 * kMiB;
inline constexpr uint64_t kMaxSessionBytes = uint64_t{1} << 42;  // 4 TiB
inline constexpr uint32_t kMaxTokens = 16u << 20;                // per conversation
inline constexpr uint32_t kMaxStages = 64;
inline constexpr uint32_t kMaxMediaMarks = 4096;
inline constexpr uint32_t kMaxFilesPerImage = 4096;  // own file and those it inherits from
inline constexpr uint32_t kMaxCheckpointsPerImage = 4096;
inline constexpr uint32_t kMaxLabelBytes = 256;
inline constexpr uint32_t kMaxIdentityFields = 256;
inline constexpr uint32_t kMaxIdentityTextBytes = 64u << 10;  // one field's name or value
inline constexpr uint32_t kPrefixChunkTokens = 256;           // one prefix-chain hash
inline constexpr uint32_t kMaxFolderEntries = 1u << 20;

// Transfers
inline constexpr uint32_t kReadDepth = 8;  // blocks in flight from disk during a restore
inline constexpr uint32_t kWriteDepth = 8;
inline constexpr uint32_t kParkDepth = 12;  // disk mode: blocks between a slot and the disk
inline constexpr uint64_t kWriterDeadlineNs =
    2'000'000'000;  // foreground reads hold a write job back no longer than this
inline constexpr uint64_t kQuietNs = 1'000'000'000;  // nothing runs for so long: idle
inline constexpr uint64_t kUnwrittenDeadlineNs =
    60'000'000'000;  // with the idle policy, what waited so long is written although something runs
inline constexpr int kWriterNice = 10;
inline constexpr uint32_t kMaxOpsInFlight = 64;  // of one IoQueue

// Plans
inline constexpr uint32_t kMaxPlanCandidates = 64;  // images compared token by token for one plan
inline constexpr uint32_t kMinReuseTokens = 16;     // a shorter match is not worth a transfer
inline constexpr uint32_t kMaxCheaperInARow = 8;  // then a restore is done all the same, and measured
inline constexpr uint64_t kMinDecidingNs =
    20'000'000;                                 // a restore quicker than this is done without weighing it
inline constexpr uint32_t kMaxGhosts = 4096;    // removed conversations remembered to say why (OBS-1)
inline constexpr uint32_t kMaxPlanRetries = 8;  // a plan whose source failed is made again

// Disk tier
inline constexpr uint32_t kMaxPostedJobs =
    2;  // handed to the writer at once; the rest can be cancelled at will
inline constexpr uint64_t kFileOverheadBytes =
    16 * kKiB;  // file system metadata a job may add (st_blocks), per file

inline constexpr uint64_t kRememberUsesNs = 60'000'000'000;  // how often the folder learns of uses
inline constexpr uint64_t kMinCompactionBytes = kMiB;  // a file is not written anew for less

// Engine
inline constexpr uint32_t kMaxSlots = 256;
inline constexpr uint32_t kMaxQueuedRequests = 1024;
inline constexpr size_t kMaxLineBytes = 256 * kMiB;  // one protocol line (tokens as decimal numbers)

static_assert(kMaxPartBytes % kAlignment == 0);
static_assert(kSessionHeaderBytes % kAlignment == 0);
static_assert(kReadDepth <= kMaxOpsInFlight && kWriteDepth <= kMaxOpsInFlight);
static_assert(kMaxIndexHeadBytes <= kMaxManifestBytes);
static_assert(uint64_t{kMaxTokens} * sizeof(int32_t) <= kMaxManifestBytes);

}  // namespace strata::limits
