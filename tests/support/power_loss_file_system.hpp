// Files in memory that lose power: what was not synced when the power went may have reached the disk or not,
// each write (or each piece of it), each size, allocation, hole and cut, and each name on its own, as a seed
// decides.
//
// Harsher than most file systems, and never kinder: a file's sync says nothing of its name, a folder's sync
// nothing of its files' content, and effects reach the disk in any order. A rename stays one effect, unless
// the seed says that its two names do not.
//
// After `cut_in(n)` the n-th following call that changes something is the last: its effect is as unsynced as
// others before it, and from then on every call fails. come_back() then is the next boot: handles and locks
// are gone, and what survived is all there is. Paths are compared as text ("/a/b"). One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/file_system.hpp"
#include "tests/support/fake_random.hpp"

namespace strata::testing {

// The calls that change something, as they had their effect; also the one in which the power went.
enum class DiskChange : uint8_t {
  create,
  write,
  sync_data,
  allocate,
  punch,
  truncate,
  rename,
  unlink,
  create_directory,
  sync_directory
};
[[nodiscard]] const char* to_string(DiskChange change);

class PowerLossFileSystem final : public FileSystem {
 public:
  PowerLossFileSystem();

  // ---- for tests
  void cut_in(uint64_t calls) { calls_left_ = calls; }
  void cut_now();
  [[nodiscard]] bool off() const { return off_; }
  [[nodiscard]] DiskChange last_change() const { return last_change_; }
  // What survives. Everything that was not synced: the end of the process alone.
  enum class Survival : uint8_t { by_seed, everything, nothing };
  void come_back(uint64_t seed, Survival survival = Survival::by_seed);
  // Called after a change had its effect. `to`: of a rename.
  std::function<void(DiskChange, const std::string& path, const std::string& to)> on_change;
  // A sync for which this says true reports success and does nothing: how a forgotten sync is played.
  std::function<bool(DiskChange, const std::string& path)> forgets_sync;
  [[nodiscard]] std::optional<std::vector<std::byte>> content(const std::string& path) const;  // as it is now
  [[nodiscard]] std::vector<std::string> paths() const;                                        // sorted
  [[nodiscard]] uint64_t allocated_bytes(const std::string& path) const;
  [[nodiscard]] uint64_t unsynced_changes() const;
  [[nodiscard]] size_t open_files() const { return open_.size(); }

  // ---- FileSystem
  Result<FileHandle> open(const std::string& path, OpenMode mode, Caching caching) override;
  void close(FileHandle file) override;
  Result<size_t> read_at(FileHandle file, std::span<std::byte> to, uint64_t offset) override;
  Status write_at(FileHandle file, std::span<const std::byte> from, uint64_t offset) override;
  Status sync_data(FileHandle file) override;
  Result<FileInfo> info(FileHandle file) override;
  Result<FileInfo> info(const std::string& path) override;
  Status allocate(FileHandle file, uint64_t offset, uint64_t length) override;
  Status punch(FileHandle file, uint64_t offset, uint64_t length) override;
  Status truncate(FileHandle file, uint64_t length) override;
  Status set_modified(const std::string& path, int64_t modified_ns) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status unlink(const std::string& path) override;
  Status create_directory(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<SpaceInfo> space(const std::string& path) override;
  Result<FileHandle> lock(const std::string& path) override;
  void unlock(FileHandle lock) override { close(lock); }

 private:
  static constexpr uint64_t kPage = 4096;

  // What a file holds; pages that were never written or allocated are holes.
  struct Content {
    uint64_t size = 0;
    std::vector<std::byte> bytes;    // whole pages
    std::vector<uint8_t> allocated;  // a page each

    void reach(uint64_t end);
    [[nodiscard]] uint64_t allocated_bytes() const;
    void clear_behind_end();
  };
  enum class Kind : uint8_t { data, extend, allocate, punch, truncate };
  struct Effect {
    Kind kind = Kind::data;
    uint64_t offset = 0;
    uint64_t length = 0;  // extend, truncate: the size
    std::vector<std::byte> bytes;
  };
  struct File {
    Content now;
    Content durable;
    std::vector<Effect> unsynced;
  };
  using FileRef = std::shared_ptr<File>;
  struct Name {  // a name's file, or null: the name is free
    std::string path;
    FileRef file;
  };
  using NameEffect = std::vector<Name>;  // one for most, two for a rename
  struct Folder {
    bool durable = false;  // its own name
    std::map<std::string, FileRef> now, durable_names;
    std::vector<NameEffect> unsynced;
  };
  struct Open {
    FileRef file;
    std::string path;
    bool writable = false;
    bool direct = false;
    bool lock = false;
  };
  struct Chances {  // that an effect survives, in eighths
    uint64_t data = 0, size = 0, names = 0;
    uint64_t piece = 0;  // bytes that survive together; 0: a whole write
    bool halves = false;
  };

  Status spend();  // one more call that changes something; an error when the power is off
  Status ended(DiskChange change, const std::string& path, const std::string& to = {});
  [[nodiscard]] Status powered() const;
  Result<Open*> opened(FileHandle file, bool to_write = false);
  Result<Folder*> folder_of(const std::string& path);
  [[nodiscard]] const FileRef* find(const std::string& path) const;
  void change(File& file, Effect effect);
  void change_names(Folder& folder, NameEffect effect);
  static void apply(Content& content, const Effect& effect, uint64_t from, uint64_t length);
  static void apply_whole(Content& content, const Effect& effect) {
    apply(content, effect, 0, effect.length);
  }
  static FileInfo info_of(const File& file);
  static Chances chances(FakeRandom& random, Survival survival);
  static void survive(File& file, const Chances& chances, FakeRandom& random);
  static void survive(Folder& folder, const Chances& chances, FakeRandom& random);

  std::map<std::string, Folder> folders_;
  std::map<int, Open> open_;
  int next_handle_ = 1000;
  uint64_t calls_left_ = UINT64_MAX;
  DiskChange last_change_ = DiskChange::create;
  bool off_ = false;
};

}  // namespace strata::testing
