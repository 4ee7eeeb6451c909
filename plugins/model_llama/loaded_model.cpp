#include "plugins/model_llama/loaded_model.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "plugins/model_llama/failure.hpp"
#include "plugins/model_llama/library.hpp"

namespace strata::llama {
namespace {

// A file that is none of ours is refused before llama.cpp sees it.
void check_file(const std::string& path, const char* what) {
  std::ifstream file(path, std::ios::binary);
  if (!file) raise_about_file(STRATA_NOT_FOUND, what, path, strerrordesc_np(errno != 0 ? errno : ENOENT));
  char magic[4] = {};
  file.read(magic, sizeof magic);
  if (file.gcount() != sizeof magic || std::memcmp(magic, "GGUF", sizeof magic) != 0)
    raise_about_file(STRATA_INVALID, what, path, "not a GGUF file");
}

std::string mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

void check_memory(const Options& options) {
  struct stat state {};
  if (options.vocab_only || llama_supports_gpu_offload() || ::stat(options.path.c_str(), &state) != 0) return;
  const auto memory =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (static_cast<uint64_t>(state.st_size) > memory)
    raise_about_file(STRATA_EXHAUSTED, "model file", options.path,
                     mib(static_cast<uint64_t>(state.st_size)) + " of weights do not fit into " +
                         mib(memory) + " of memory");
}

std::string reason() {
  const std::string said = complaint();
  return said.empty() ? std::string("llama.cpp cannot load it") : said;
}

}  // namespace

LoadedModel::LoadedModel(const Options& options) : options_(options) {
  check_file(options.path, "model file");
  check_memory(options);
  llama_model_params wanted = llama_model_default_params();
  wanted.vocab_only = options.vocab_only;
  wanted.n_gpu_layers = options.gpu_layers;
  forget_complaint();
  model_.reset(llama_model_load_from_file(options.path.c_str(), wanted));
  if (model_ == nullptr) raise_about_file(STRATA_INVALID, "model file", options.path, reason());
  vocabulary_ = llama_model_get_vocab(model_.get());
  size_ = static_cast<uint32_t>(std::max(0, llama_vocab_n_tokens(vocabulary_)));
  if (size_ == 0) raise_about_file(STRATA_UNSUPPORTED, "model file", options.path, "it has no vocabulary");
  if (options.vocab_only) return;
  if (llama_model_has_encoder(model_.get()) || llama_model_is_diffusion(model_.get()))
    raise_about_file(STRATA_UNSUPPORTED, "model file", options.path,
                     architecture() + " writes no text token by token");
  load_adapters();
}

void LoadedModel::load_adapters() {
  for (const std::string& path : options_.adapters) {
    check_file(path, "adapter");
    forget_complaint();
    llama_adapter_lora* adapter = llama_adapter_lora_init(model_.get(), path.c_str());
    if (adapter == nullptr) raise_about_file(STRATA_INVALID, "adapter", path, reason());
    adapters_.push_back(adapter);
  }
}

void LoadedModel::adapt(llama_context* context) const {
  if (adapters_.empty()) return;
  std::vector<llama_adapter_lora*> adapters = adapters_;
  std::vector<float> scales(adapters.size(), options_.adapter_scale);
  if (llama_set_adapters_lora(context, adapters.data(), adapters.size(), scales.data()) != 0)
    raise_about_file(STRATA_INVALID, "adapter", options_.adapters.front(),
                     "it cannot be used with this model");
}

std::string LoadedModel::name() const {
  const size_t slash = options_.path.rfind('/');
  std::string file = slash == std::string::npos ? options_.path : options_.path.substr(slash + 1);
  if (file.ends_with(".gguf")) file.resize(file.size() - 5);
  return file;
}

std::string LoadedModel::metadata(const char* key) const {
  char text[256];
  const int32_t length = llama_model_meta_val_str(model_.get(), key, text, sizeof text);
  return length < 0 ? std::string() : std::string(text);
}

uint32_t LoadedModel::trained_context() const {
  return static_cast<uint32_t>(std::max(0, llama_model_n_ctx_train(model_.get())));
}

bool LoadedModel::positions_are_learned() const {
  return llama_model_rope_type(model_.get()) == LLAMA_ROPE_TYPE_NONE &&
         !llama_model_is_recurrent(model_.get()) && !llama_model_is_hybrid(model_.get());
}

std::vector<int32_t> LoadedModel::tokenize(std::string_view text, bool add_special,
                                           bool parse_special) const {
  if (text.size() >= INT32_MAX) raise(STRATA_INVALID, "text is too long");
  std::vector<int32_t> tokens(text.size() + 8);
  const auto length = static_cast<int32_t>(text.size());
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int32_t count = llama_tokenize(vocabulary_, text.data(), length, tokens.data(),
                                         static_cast<int32_t>(tokens.size()), add_special, parse_special);
    if (count == INT32_MIN) raise(STRATA_INVALID, "text is too long");
    tokens.resize(static_cast<size_t>(count < 0 ? -count : count));
    if (count >= 0) return tokens;
  }
  raise(STRATA_INTERNAL, "the tokenizer changed its mind");
}

// Piece by piece, so that every token has its bytes wherever it stands, and special tokens have theirs.
std::string LoadedModel::detokenize(const int32_t* tokens, uint32_t count) const {
  check_tokens(tokens, count);
  std::string text;
  char piece[256];
  for (uint32_t i = 0; i < count; ++i) {
    const int32_t length = llama_token_to_piece(vocabulary_, tokens[i], piece, sizeof piece, 0, true);
    if (length >= 0) {
      text.append(piece, static_cast<size_t>(length));
      continue;
    }
    std::string longer(static_cast<size_t>(-length), '\0');
    llama_token_to_piece(vocabulary_, tokens[i], longer.data(), -length, 0, true);
    text += longer;
  }
  return text;
}

void LoadedModel::check_tokens(const int32_t* tokens, uint32_t count) const {
  for (uint32_t i = 0; i < count; ++i)
    if (tokens[i] < 0 || static_cast<uint32_t>(tokens[i]) >= size_)
      raise(STRATA_INVALID, "token %d at %u is not in the vocabulary of %u", tokens[i], i, size_);
}

}  // namespace strata::llama
