#include "plugins/model_llama/options.hpp"

#include <sched.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "plugins/model_llama/failure.hpp"

namespace strata::llama {
namespace {

constexpr uint32_t kMaxText = 8192;

std::optional<std::string> text_of(const strata_host* host, const char* key) {
  if (host->get_option == nullptr) return std::nullopt;
  std::string text(kMaxText, '\0');
  const int32_t length = host->get_option(host->ctx, key, text.data(), kMaxText);
  if (length < 0) return std::nullopt;
  if (static_cast<uint32_t>(length) >= kMaxText) raise(STRATA_INVALID, "option %s: value too long", key);
  text.resize(static_cast<size_t>(length));
  return text;
}

template <class Number>
void number(const strata_host* host, const char* key, int64_t least, int64_t most, Number& value) {
  const auto text = text_of(host, key);
  if (!text) return;
  int64_t parsed = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), parsed);
  if (error != std::errc() || end != text->data() + text->size() || parsed < least || parsed > most)
    raise(STRATA_INVALID, "option %s: \"%.60s\" is not a number from %lld to %lld", key, text->c_str(),
          static_cast<long long>(least), static_cast<long long>(most));
  value = static_cast<Number>(parsed);
}

template <class Value, size_t kCount>
void choice(const strata_host* host, const char* key, const std::pair<const char*, Value> (&names)[kCount],
            Value& value) {
  const auto text = text_of(host, key);
  if (!text) return;
  std::string allowed;
  for (const auto& [name, meaning] : names) {
    if (*text == name) {
      value = meaning;
      return;
    }
    allowed += (allowed.empty() ? "" : ", ") + std::string(name);
  }
  raise(STRATA_INVALID, "option %s: \"%.60s\" is none of %s", key, text->c_str(), allowed.c_str());
}

constexpr std::pair<const char*, ggml_type> kCacheTypes[] = {
    {"f32", GGML_TYPE_F32},   {"f16", GGML_TYPE_F16},   {"bf16", GGML_TYPE_BF16},
    {"q8_0", GGML_TYPE_Q8_0}, {"q4_0", GGML_TYPE_Q4_0}, {"q4_1", GGML_TYPE_Q4_1},
    {"q5_0", GGML_TYPE_Q5_0}, {"q5_1", GGML_TYPE_Q5_1}, {"iq4_nl", GGML_TYPE_IQ4_NL}};
constexpr std::pair<const char*, FlashAttention> kFlash[] = {
    {"on", FlashAttention::on}, {"off", FlashAttention::off}, {"auto", FlashAttention::automatic}};
constexpr std::pair<const char*, Granularity> kGranularity[] = {
    {"auto", Granularity::automatic}, {"blocks", Granularity::blocks}, {"whole", Granularity::whole}};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t from = 0; from < list.size();) {
    const size_t comma = std::min(list.find(',', from), list.size());
    if (comma > from) parts.push_back(list.substr(from, comma - from));
    from = comma + 1;
  }
  return parts;
}

void read_scale(const strata_host* host, float& scale) {
  const auto text = text_of(host, "lora_scale");
  if (!text) return;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), scale);
  if (error != std::errc() || end != text->data() + text->size() || !std::isfinite(scale))
    raise(STRATA_INVALID, "option lora_scale: \"%.60s\" is not a number", text->c_str());
}

uint32_t usable_processors() {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  if (sched_getaffinity(0, sizeof processors, &processors) != 0) return 1;
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&processors)));
}

}  // namespace

Options read_options(const strata_host* host) {
  Options o;
  o.path = text_of(host, "path").value_or("");
  if (o.path.empty()) raise(STRATA_INVALID, "option path: no model file is named");
  o.adapters = split(text_of(host, "lora").value_or(""));
  read_scale(host, o.adapter_scale);
  number(host, "vocab_only", 0, 1, o.vocab_only);
  number(host, "context", 0, 16 << 20, o.context);
  number(host, "slots", 1, 240, o.slots);
  o.staged_imports = o.slots > 1 ? 2 : 1;
  number(host, "staged_imports", 1, 8, o.staged_imports);
  number(host, "threads", 0, 512, o.threads);
  number(host, "n_gpu_layers", -1, 10000, o.gpu_layers);
  number(host, "ubatch", 16, 8192, o.pass_tokens);
  number(host, "tokens_per_block", 0, 65536, o.tokens_per_block);
  choice(host, "cache_type_k", kCacheTypes, o.keys);
  choice(host, "cache_type_v", kCacheTypes, o.values);
  choice(host, "flash_attn", kFlash, o.flash_attention);
  choice(host, "state_granularity", kGranularity, o.granularity);
  if (o.threads == 0) o.threads = usable_processors();
  if (o.flash_attention == FlashAttention::off && ggml_is_quantized(o.values))
    raise(STRATA_INVALID, "option cache_type_v: a quantized type needs flash_attn=on");
  return o;
}

}  // namespace strata::llama
