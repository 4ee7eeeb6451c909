// A session saved by name, as a file: written piece by piece under a hidden name and published whole, or
// opened and checked to its last byte before anybody uses one (SES-1 to SES-4). Byte tables:
// docs/session-format.md. Ownership: each holds its file; the FileSystem must outlive it. Thread-safety: one
// thread at a time; every call blocks. Units: bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/file_system.hpp"
#include "core/identity.hpp"
#include "core/manifest.hpp"
#include "core/result.hpp"
#include "core/session_file.hpp"
#include "core/temporary_file.hpp"

namespace strata {

class SavedFileWriter {
 public:
  struct Plan {
    std::string target;
    std::string temporary;        // beside the target
    SessionHeader header;         // self-contained
    uint64_t bound_bytes = 0;     // the file is at most so long
    uint64_t min_free_bytes = 0;  // stays free on the file system; 0: not checked
  };
  SavedFileWriter(FileSystem& files, Plan plan)
      : files_(files), plan_(std::move(plan)), file_(files, plan_.temporary) {}

  // Target and room are looked at before the file is made. Errors: invalid (the target's name or kind),
  // exhausted (no room), those of the port.
  Status prepare();
  Status write(std::span<const std::byte> bytes, uint64_t offset) { return file_.write(bytes, offset); }
  // Manifest and trailer behind the last extent.
  Status finish(const Manifest& manifest, uint64_t manifest_offset);
  Status flush() { return file_.sync(); }
  // A failure with published() means that the file has its name, but the folder could not be flushed.
  Status publish();
  void abandon() { file_.drop(); }

  [[nodiscard]] bool published() const { return published_; }
  [[nodiscard]] uint64_t file_bytes() const { return file_bytes_; }
  [[nodiscard]] const std::string& note() const { return note_; }  // not empty: the folder cannot be flushed

 private:
  Status make_folder();
  Status check_room();
  FileSystem& files_;
  Plan plan_;
  TemporaryFile file_;
  bool published_ = false;
  uint64_t file_bytes_ = 0;
  std::string note_;
};

// What a session can hold; what is above is refused before anything of its size is allocated.
struct SavedLimits {
  Identity identity;
  uint32_t stage_count = 1;
  uint32_t tokens_per_block = 0;
  uint32_t max_tokens = 0;
  uint64_t max_payload_bytes = 0;
  uint64_t max_parts = 0;
};

class SavedFileReader {
 public:
  SavedFileReader(FileSystem& files, std::string path, SavedLimits limits)
      : files_(files), path_(std::move(path)), limits_(std::move(limits)) {}
  ~SavedFileReader();
  SavedFileReader(const SavedFileReader&) = delete;
  SavedFileReader& operator=(const SavedFileReader&) = delete;

  // Everything but the payload. Errors: invalid (not ours, not self-contained, another identity, too large),
  // unsupported (version), corrupt, not_found, those of the port.
  Status open();
  // Reads every part and compares its digest; ends as cancelled when told to.
  Status verify(const std::atomic<bool>& stop);

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] uint64_t file_bytes() const { return file_bytes_; }
  // The open file, for whoever closes it.
  FileHandle release();

 private:
  Status read(std::span<std::byte> to, uint64_t offset);
  Status check_header();
  Status check_identity(const SessionHeader& header);
  Result<SessionTrailer> read_trailer();
  Status read_manifest(const SessionTrailer& trailer);
  Status check_manifest(const SessionTrailer& trailer);
  Status verify_part(const ManifestPart& part, std::vector<std::byte>& buffer, const std::atomic<bool>& stop);
  [[nodiscard]] uint64_t max_manifest_bytes() const;
  [[nodiscard]] uint64_t max_file_bytes() const;

  FileSystem& files_;
  std::string path_;
  SavedLimits limits_;
  FileHandle file_;
  uint64_t file_bytes_ = 0;
  SessionHeader header_;
  Manifest manifest_;
};

}  // namespace strata
