// The model table of llama.cpp.
#include "plugins/model_llama/failure.hpp"
#include "plugins/model_llama/instance.hpp"
#include "plugins/model_llama/sampling.hpp"
#include "plugins/sdk/model_table.hpp"

namespace strata::llama {
namespace {

// The libraries are built for processors with AVX2 (tools/install_deps llama).
int32_t probe(const strata_host* /*host*/, strata_error* error) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    sdk::fail(error, STRATA_UNAVAILABLE, "this processor has no AVX2");
    return 0;
  }
#endif
  static_cast<void>(error);
  return 5;
}

// The instance as sdk::ModelTable wants it. Copies are done when a call returns, so streams are not used.
class Plugin : public Instance {
 public:
  explicit Plugin(const strata_host* host) : Instance(host, read_options(host)) {}

  std::vector<int32_t> tokenize(std::string_view text, bool add_special, bool parse_special) {
    return model().tokenize(text, add_special, parse_special);
  }
  std::string detokenize(std::span<const int32_t> tokens) {
    return model().detokenize(tokens.data(), static_cast<uint32_t>(tokens.size()));
  }
  bool ends_generation(int32_t token) {
    const bool known = token >= 0 && static_cast<uint32_t>(token) < model().vocabulary_size();
    return known && llama_vocab_is_eog(model().vocabulary(), token);
  }

  std::string chat_template() { return chat().template_text(); }
  std::string apply_chat_template(std::span<const sdk::ChatMessage> messages, bool add_generation_prompt) {
    std::vector<std::pair<std::string, std::string>> all;
    for (const sdk::ChatMessage& message : messages) all.emplace_back(message.role, message.content);
    return chat().apply(all, add_generation_prompt);
  }
  template <class Visit>
  void chat_format(std::string_view request, const Visit& pair) {
    const FormattedChat formatted = chat().format(std::string(request));
    pair("prompt", formatted.prompt);
    for (const std::string& stop : formatted.stops) pair("stop", stop);
    pair("grammar", formatted.grammar);
    pair("grammar_lazy", formatted.grammar_lazy ? "1" : "0");
    pair("parser", formatted.parser);
  }
  std::string chat_parse(std::string_view parser, std::string_view text, bool final) {
    return chat().parse(std::string(parser), std::string(text), final);
  }

  using Sampler = RequestSampler;
  std::unique_ptr<Sampler> sampler_create(std::string_view params) {
    return std::make_unique<Sampler>(model(), std::string(params));
  }
  int32_t sampler_sample(Sampler& sampler, int32_t slot) { return sampler.sample(slots(), slot); }
  void sampler_accept(Sampler& sampler, int32_t token, bool generated) {
    model().check_tokens(&token, 1);
    sampler.accept(token, generated);
  }

  void decode(std::span<const strata_batch_item> items, const float** logits) {
    slots().decode(items, logits);
  }
  uint32_t length(int32_t slot) { return bound() == nullptr ? 0 : bound()->length(slot); }
  void truncate(int32_t slot, uint32_t tokens) { slots().truncate(slot, tokens); }
  void clear(int32_t slot) { slots().clear(slot); }

  uint64_t block_bytes(uint32_t stage, uint32_t count) {
    return bound() == nullptr ? 0 : bound()->block_bytes(stage, count);
  }
  void export_block(int32_t slot, uint32_t stage, uint32_t first, uint32_t count, std::span<std::byte> to,
                    void* /*stream*/) {
    slots().export_block(slot, stage, first, count, to);
  }
  uint64_t export_checkpoint(int32_t slot, uint32_t stage, std::span<std::byte> to, void* /*stream*/) {
    return slots().export_checkpoint(slot, stage, to);
  }

  uint64_t import_begin(int32_t slot, std::span<const int32_t> tokens) {
    return slots().begin(slot, tokens.data(), static_cast<uint32_t>(tokens.size()));
  }
  void import_block(uint64_t import, uint32_t stage, uint32_t first, uint32_t count,
                    std::span<const std::byte> from, void* /*stream*/) {
    slots().add_block(import, stage, first, count, from);
  }
  void import_checkpoint(uint64_t import, uint32_t stage, uint32_t position, std::span<const std::byte> from,
                         void* /*stream*/) {
    slots().add_checkpoint(import, stage, position, from);
  }
  void import_commit(uint64_t import) { slots().commit(import); }
  void import_abort(uint64_t import) {
    if (bound() != nullptr) slots().abort(import);
  }
};

}  // namespace
}  // namespace strata::llama

STRATA_PLUGIN_ENTRY(model_llama) {
  using strata::llama::Plugin;
  static const strata_model kTable =
      strata::sdk::ModelTable<Plugin>::make("llama", "1.0", strata::llama::probe);
  return kind == STRATA_KIND_MODEL ? &kTable.plugin : nullptr;
}
