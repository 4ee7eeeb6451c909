#include "bench/disk/transfer_rig.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "bench/disk/must.hpp"
#include "bench/disk/null_model.hpp"
#include "bench/disk/quiet_log.hpp"
#include "core/check.hpp"
#include "core/digest.hpp"
#include "core/limits.hpp"
#include "core/posix/clock.hpp"
#include "core/posix/file_system.hpp"
#include "core/posix/page_source.hpp"
#include "core/session_file.hpp"
#include "plugins/host/registry.hpp"
#include "tiers/disk_reader.hpp"
#include "tiers/disk_writer.hpp"
#include "tiers/pinned_pool.hpp"
#include "tiers/restore.hpp"
#include "tiers/unsettled_buffers.hpp"

namespace strata::bench {
namespace {

constexpr ConversationId kId{0x5eed};
constexpr uint32_t kTokensPerBlock = 1024;  // what a 16 MiB block of a large model holds
constexpr uint64_t kSeed = 0x9e3779b97f4a7c15ULL;
constexpr long kEnginePauseNs = 500'000;

uint64_t extent_offset(const Settings& settings, size_t block) {
  return limits::kSessionHeaderBytes + block * settings.block_bytes;
}

// Not compressible, and different in every block.
void fill(std::span<std::byte> block, uint64_t seed) {
  uint64_t state = seed * kSeed + 1;
  for (size_t at = 0; at < block.size(); at += sizeof state) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(block.data() + at, &state, sizeof state);
  }
}

}  // namespace

void pause_as_the_engine_does() {
  const timespec pause{0, kEnginePauseNs};
  ::nanosleep(&pause, nullptr);
}

struct TransferRig::Parts {
  explicit Parts(const Settings& chosen)
      : settings(chosen),
        registry(log, clock),
        device(must(registry.make_device("host", {}))),
        reader_io(must(registry.make_io("auto", {}))),
        pool(*device, log, uint64_t{chosen.blocks} * PinnedPool::class_bytes(chosen.block_bytes),
             {&pages, reader_io.get()}),
        writer_io(must(registry.make_io("auto", {}))),
        reader(*reader_io),
        writer(files, *writer_io, clock),
        unsettled(*device),
        stream(must(device->create_stream())) {
    for (uint32_t i = 0; i < settings.blocks; ++i) {
      buffers.push_back(must(pool.allocate(settings.block_bytes)));
      fill(block(i), i + 1);
      sums.push_back(hash_bytes(block(i), 0));
    }
  }
  ~Parts() { device->destroy_stream(stream); }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  [[nodiscard]] std::span<std::byte> block(size_t i) const {
    return buffers[i]->bytes().first(settings.block_bytes);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return settings.folder + "/" + name; }
  [[nodiscard]] WriteJobRef publish_job() const;
  [[nodiscard]] ImageRef stored_image() const;

  Settings settings;
  QuietLog log;
  PosixClock clock;
  PosixFileSystem files;
  PosixPageSource pages;
  PluginRegistry registry;
  std::unique_ptr<Device> device;
  std::unique_ptr<IoQueue> reader_io;
  PinnedPool pool;
  std::unique_ptr<IoQueue> writer_io;
  DiskReader reader;
  DiskWriter writer;
  UnsettledBuffers unsettled;
  DeviceStream stream;
  std::vector<HostBufferRef> buffers;
  std::vector<uint64_t> sums;
  std::vector<Digest> digests;  // of the last publication
};

WriteJobRef TransferRig::Parts::publish_job() const {
  PublishJob work;
  work.id = kId;
  work.create_file = true;
  work.header.id = kId;
  work.header.stage_count = 1;
  work.header.tokens_per_block = kTokensPerBlock;
  ManifestHead& head = work.manifest.head;
  head.id = kId;
  head.generation = 1;
  head.stage_count = 1;
  head.tokens_per_block = kTokensPerBlock;
  work.manifest.tokens.assign(uint64_t{settings.blocks} * kTokensPerBlock, 65);
  for (uint32_t i = 0; i < settings.blocks; ++i) {
    const uint64_t offset = extent_offset(settings, i);
    work.manifest.parts.push_back(
        {PartKind::block, 0, 0, i * kTokensPerBlock, kTokensPerBlock, offset, settings.block_bytes, {}});
    const PartPlace place{kId, 0, i * kTokensPerBlock, PartKind::block};
    work.writes.push_back({buffers[i], place, settings.block_bytes, offset, i});
  }
  work.file_length = extent_offset(settings, settings.blocks);
  head.files = {{kId, work.file_length}};
  WriteJob job;
  job.id = 1;
  job.folder = settings.folder;
  job.work = std::move(work);
  return std::make_shared<const WriteJob>(std::move(job));
}

ImageRef TransferRig::Parts::stored_image() const {
  auto image = std::make_shared<Image>();
  image->id = kId;
  image->tokens.assign(uint64_t{settings.blocks} * kTokensPerBlock, 65);
  for (uint32_t i = 0; i < settings.blocks; ++i) {
    auto part = std::make_shared<Part>();
    part->first = i * kTokensPerBlock;
    part->count = kTokensPerBlock;
    part->bytes = settings.block_bytes;
    part->disk = Extent{kId, extent_offset(settings, i), settings.block_bytes, digests[i]};
    image->parts.push_back(std::move(part));
  }
  return image;
}

TransferRig::TransferRig(const Settings& settings) : parts_(std::make_unique<Parts>(settings)) {}
TransferRig::~TransferRig() { remove_files(); }

uint64_t TransferRig::bytes() const {
  return uint64_t{parts_->settings.blocks} * parts_->settings.block_bytes;
}

std::vector<std::span<std::byte>> TransferRig::blocks() const {
  std::vector<std::span<std::byte>> all;
  for (uint32_t i = 0; i < parts_->settings.blocks; ++i) all.push_back(parts_->block(i));
  return all;
}

void TransferRig::remove_files() {
  (void)parts_->files.unlink(parts_->path(session_file_name(kId)));
  (void)parts_->files.unlink(parts_->path(index_file_name(kId)));
}

LoopTime TransferRig::publish() {
  const WriteJobRef job = parts_->publish_job();
  const uint64_t cpu = thread_cpu_ns();
  const uint64_t start = wall_ns();
  const WriteResult result = parts_->writer.run(job);
  const LoopTime time{wall_ns() - start, thread_cpu_ns() - cpu};
  must(result.status);
  STRATA_CHECK(result.published);
  parts_->digests = result.digests;
  return time;
}

Result<LoopTime> TransferRig::fetch() {
  NullModel model(parts_->settings.block_bytes);
  Restore::Ports ports{model,          *parts_->device, parts_->clock, parts_->stream,
                       &parts_->files, &parts_->reader, &parts_->pool, &parts_->unsettled};
  Restore::Request request;
  request.image = parts_->stored_image();
  request.tokens = request.image->length();
  request.parts = request.image->parts;
  request.keep_into = parts_->buffers;
  request.folder = parts_->settings.folder;
  const uint64_t cpu = thread_cpu_ns();
  const uint64_t start = wall_ns();
  Restore restore(ports, std::move(request));
  for (parts_->reader.poll(); restore.step() == Restore::State::running; parts_->reader.poll())
    pause_as_the_engine_does();
  const LoopTime time{wall_ns() - start, thread_cpu_ns() - cpu};
  if (restore.step() == Restore::State::failed) return restore.error();
  STRATA_CHECK(model.imported_bytes() == bytes());
  return time;
}

bool TransferRig::intact() const {
  for (uint32_t i = 0; i < parts_->settings.blocks; ++i)
    if (hash_bytes(parts_->block(i), 0) != parts_->sums[i]) return false;
  return true;
}

void TransferRig::poison() {
  for (const auto block : blocks()) std::memset(block.data(), 0xa5, block.size());
}

void TransferRig::flip_byte() {
  const std::string path = parts_->path(session_file_name(kId));
  const FileHandle file = must(parts_->files.open(path, OpenMode::read_write, Caching::buffered));
  const uint64_t at = extent_offset(parts_->settings, parts_->settings.blocks / 2) + 12345;
  std::byte one{};
  STRATA_CHECK(must(parts_->files.read_at(file, {&one, 1}, at)) == 1);
  one ^= std::byte{1};
  must(parts_->files.write_at(file, {&one, 1}, at));
  must(parts_->files.sync_data(file));
  parts_->files.close(file);
}

void TransferRig::damage_one_byte() { flip_byte(); }
void TransferRig::mend() { flip_byte(); }

}  // namespace strata::bench
