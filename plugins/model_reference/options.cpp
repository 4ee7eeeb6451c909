#include "plugins/model_reference/options.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "plugins/model_reference/failure.hpp"
#include "plugins/sdk/options.hpp"

namespace strata::reference {
namespace {

constexpr uint64_t kMaxBlockBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxCheckpointBytes = uint64_t{4} << 30;

// Reads options one by one; the first failure stays.
class Reader {
 public:
  Reader(const strata_host* host, strata_error* error) : host_(host), error_(error) {}

  void number(const char* key, uint32_t minimum, uint32_t maximum, uint32_t& value) {
    uint64_t wide = value;
    number64(key, minimum, maximum, wide);
    value = static_cast<uint32_t>(wide);
  }

  void number64(const char* key, uint64_t minimum, uint64_t maximum, uint64_t& value) {
    std::string text;
    if (!text_of(key, text)) return;
    char* end = nullptr;
    errno = 0;
    const unsigned long long parsed = std::strtoull(text.c_str(), &end, 10);
    const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || errno != 0 || parsed < minimum || parsed > maximum) {
      status_ = fail(error_, STRATA_INVALID, "option %s: \"%.40s\" is not a number from %llu to %llu", key,
                     text.c_str(), static_cast<unsigned long long>(minimum),
                     static_cast<unsigned long long>(maximum));
      return;
    }
    value = parsed;
  }

  // Index of the value among `names`, a list of `count`; keeps `value` when the option is not set.
  void choice(const char* key, const char* const* names, uint32_t count, uint32_t& value) {
    std::string text;
    if (!text_of(key, text)) return;
    std::string allowed;
    for (uint32_t i = 0; i < count; ++i) {
      if (text == names[i]) {
        value = i;
        return;
      }
      allowed += (i == 0 ? "" : ", ") + std::string(names[i]);
    }
    status_ = fail(error_, STRATA_INVALID, "option %s: \"%.40s\" is none of %s", key, text.c_str(),
                   allowed.c_str());
  }

  [[nodiscard]] strata_status status() const { return status_; }

 private:
  bool text_of(const char* key, std::string& text) {
    if (status_ != STRATA_OK || host_->get_option == nullptr) return false;
    char buffer[64];
    const int32_t length = host_->get_option(host_->ctx, key, buffer, sizeof buffer);
    if (length < 0) return false;
    if (length >= static_cast<int32_t>(sizeof buffer)) {
      status_ = fail(error_, STRATA_INVALID, "option %s: value too long", key);
      return false;
    }
    text.assign(buffer, static_cast<size_t>(length));
    return true;
  }

  const strata_host* host_;
  strata_error* error_;
  strata_status status_ = STRATA_OK;
};

strata_status check_shape(const Options& o, strata_error* error) {
  if (o.dim % o.heads != 0 || (o.head_dim() != 16 && o.head_dim() != 32 && o.head_dim() != 64))
    return fail(error, STRATA_INVALID, "option heads: dim / heads must be 16, 32 or 64, not %u / %u", o.dim,
                o.heads);
  if (o.heads % o.kv_heads != 0)
    return fail(error, STRATA_INVALID, "option kv_heads: %u heads cannot share %u", o.heads, o.kv_heads);
  if (o.ffn % 16 != 0) return fail(error, STRATA_INVALID, "option ffn: %u is not a multiple of 16", o.ffn);
  // Every stage gets blocks, and with sliding and hybrid also a checkpoint.
  const uint32_t period = o.layout == Layout::attention ? 1 : 2;
  if (o.layers % (o.stages * period) != 0)
    return fail(error, STRATA_INVALID, "option layers: %u is not a multiple of %u (stages, layout)", o.layers,
                o.stages * period);
  const uint64_t token_bytes = uint64_t{2} * sizeof(float) * o.kv_dim() * o.layers_per_stage();
  if (!o.whole && token_bytes * o.tokens_per_block > kMaxBlockBytes)
    return fail(error, STRATA_INVALID, "option tokens_per_block: %u makes blocks above 16 MiB",
                o.tokens_per_block);
  if (token_bytes * o.context > kMaxCheckpointBytes)
    return fail(error, STRATA_INVALID, "option context: %u makes the state larger than 4 GiB", o.context);
  return STRATA_OK;
}

}  // namespace

const char* to_string(Layout layout) {
  switch (layout) {
    case Layout::attention:
      return "attention";
    case Layout::sliding:
      return "sliding";
    case Layout::hybrid:
      return "hybrid";
  }
  return "unknown";
}

LayerKind Options::kind(uint32_t layer) const {
  if (layout == Layout::attention || layer % 2 == 0) return LayerKind::full;
  return layout == Layout::sliding ? LayerKind::window : LayerKind::recurrent;
}

strata_status read_options(const strata_host* host, Options& options, strata_error* error) {
  static constexpr const char* kLayouts[] = {"attention", "sliding", "hybrid"};
  Options o;
  uint32_t layout = 0;
  uint32_t vocab_only = 0;
  Reader reader(host, error);
  reader.choice("layout", kLayouts, 3, layout);
  reader.number("vocab_only", 0, 1, vocab_only);
  reader.number("stages", 1, 64, o.stages);
  reader.number("layers", 1, 256, o.layers);
  reader.number("dim", 16, 8192, o.dim);
  reader.number("heads", 1, 512, o.heads);
  reader.number("kv_heads", 1, 512, o.kv_heads);
  reader.number("ffn", 16, 32768, o.ffn);
  reader.number("window", 2, 1u << 20, o.window);
  reader.number("tokens_per_block", 1, 1u << 16, o.tokens_per_block);
  reader.number("context", 1, 1u << 24, o.context);
  reader.number("slots", 1, 256, o.slots);
  reader.number("threads", 0, 256, o.threads);
  reader.number64("seed", 0, UINT64_MAX, o.seed);
  if (reader.status() != STRATA_OK) return reader.status();
  if (const strata_status status = sdk::option_state_whole(host, &o.whole, error); status != STRATA_OK)
    return status;
  o.layout = static_cast<Layout>(layout);
  o.vocab_only = vocab_only != 0;
  if (const strata_status status = check_shape(o, error); status != STRATA_OK) return status;
  options = o;
  return STRATA_OK;
}

}  // namespace strata::reference
