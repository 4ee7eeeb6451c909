#include "engine/runtime/model_identity.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "core/digest.hpp"
#include "core/limits.hpp"

namespace strata {
namespace {

// Changes when this engine gives parked bytes another meaning than the release before.
constexpr const char* kStateRelease = "1";

constexpr size_t kReadBytes = 1 * limits::kMiB;

void add_text(DigestStream& digest, const std::string& text) {
  digest.update(std::as_bytes(std::span(text.c_str(), text.size() + 1)));  // with its zero: it ends there
}

Status add_content(DigestStream& digest, FileSystem& files, FileHandle file) {
  std::vector<std::byte> buffer(kReadBytes);
  for (uint64_t offset = 0;;) {
    STRATA_ASSIGN(const size_t count, files.read_at(file, buffer, offset));
    digest.update(std::span(buffer).first(count));
    if (count < buffer.size()) return {};
    offset += count;
  }
}

Status add_file(DigestStream& digest, FileSystem& files, const ModelFile& model_file) {
  auto file = files.open(model_file.path, OpenMode::read, Caching::buffered);
  if (!file.ok()) return with_context(file.error(), "model file " + model_file.path);
  add_text(digest, model_file.role);
  const Status added = add_content(digest, files, *file);
  files.close(*file);
  if (!added.ok()) return with_context(added.error(), "model file " + model_file.path);
  return {};
}

Result<Digest> content_digest(const std::vector<ModelFile>& model_files, FileSystem& files) {
  std::vector<ModelFile> by_role = model_files;
  std::ranges::sort(by_role, {}, &ModelFile::role);
  DigestStream digest;
  for (const ModelFile& file : by_role) STRATA_TRY(add_file(digest, files, file));
  return digest.finish();
}

}  // namespace

Result<Identity> identity_of(Model& model, FileSystem& files) {
  STRATA_ASSIGN(const std::vector<IdentityField> own, model.identity_fields());
  STRATA_ASSIGN(const std::vector<ModelFile> model_files, model.files());
  const ModelInfo& info = model.info();
  Identity identity;
  identity.fields = {{"state_release", kStateRelease},
                     {"model_state_version", info.state_version},
                     {"stages", std::to_string(info.stages)},
                     {"tokens_per_block", std::to_string(info.tokens_per_block)}};
  identity.fields.insert(identity.fields.end(), own.begin(), own.end());
  identity.configuration = configuration_digest(identity.fields);
  identity.model = configuration_digest(own);
  if (!model_files.empty()) {
    STRATA_ASSIGN(identity.model, content_digest(model_files, files));
  }
  return identity;
}

}  // namespace strata
