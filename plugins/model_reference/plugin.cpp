// The model table of the reference model.
#include "plugins/model_reference/failure.hpp"
#include "plugins/model_reference/instance.hpp"
#include "plugins/model_reference/vocabulary.hpp"
#include "plugins/sdk/model_table.hpp"

namespace strata::reference {
namespace {

int32_t probe(const strata_host* /*host*/, strata_error* /*error*/) { return 10; }

Options options_of(const strata_host* host) {
  Options options;
  sdk::checked([&](strata_error* error) { return read_options(host, options, error); });
  return options;
}

// The instance as sdk::ModelTable wants it.
class Plugin {
 public:
  explicit Plugin(const strata_host* host) : instance_(options_of(host)) {}

  void bind(const strata_device* device, strata_instance* device_instance, int32_t index) {
    sdk::checked([&](strata_error* error) { return instance_.bind(device, device_instance, index, error); });
  }
  void describe(strata_model_info& info) { instance_.describe(info); }
  void identity(strata_pair_visitor visit, void* ctx) { instance_.identity(visit, ctx); }
  void files(strata_pair_visitor /*visit*/, void* /*ctx*/) {
  }  // the seed makes the weights: an identity field

  std::vector<int32_t> tokenize(std::string_view text, bool add_special, bool parse_special) {
    return reference::tokenize(text, add_special ? AddBegin::yes : AddBegin::no,
                               parse_special ? ParseSpecial::yes : ParseSpecial::no);
  }
  std::string detokenize(std::span<const int32_t> tokens) {
    check(tokens);
    std::string whole;
    if (!reference::detokenize(tokens, whole)) sdk::raise(STRATA_INTERNAL, "a checked token has no text");
    return whole;
  }
  bool ends_generation(int32_t token) { return is_end_of_generation(token); }
  std::string_view chat_template() { return reference::chat_template(); }
  std::string apply_chat_template(std::span<const sdk::ChatMessage> messages, bool add_generation_prompt) {
    std::vector<Message> views;
    for (const sdk::ChatMessage& message : messages) views.push_back({message.role, message.content});
    std::string whole;
    if (!render_chat(views, add_generation_prompt ? GenerationPrompt::yes : GenerationPrompt::no, whole))
      sdk::raise(STRATA_INVALID, "message role \"%.40s\" is not known", whole.c_str());
    return whole;
  }

  void decode(std::span<const strata_batch_item> items, const float** logits) {
    sdk::checked([&](strata_error* error) { return instance_.decode(items, logits, error); });
  }
  uint32_t length(int32_t slot) {
    const SlotStore* store = instance_.store.get();
    return store != nullptr && store->is_slot(slot) ? store->length(slot) : 0;
  }
  void truncate(int32_t slot, uint32_t tokens) {
    sdk::checked([&](strata_error* error) { return instance_.truncate(slot, tokens, error); });
  }
  void clear(int32_t slot) {
    sdk::checked([&](strata_error* error) { return instance_.clear(slot, error); });
  }

  uint64_t block_bytes(uint32_t stage, uint32_t count) {
    return stage < instance_.options.stages ? instance_.layout.block_bytes(count) : 0;
  }
  void export_block(int32_t slot, uint32_t stage, uint32_t first, uint32_t count, std::span<std::byte> to,
                    void* stream) {
    with_store([&](SlotStore& store, strata_error* error) {
      return store.export_block(slot, stage, first, count, to.data(), to.size(), stream, error);
    });
  }
  uint64_t export_checkpoint(int32_t slot, uint32_t stage, std::span<std::byte> to, void* stream) {
    uint64_t bytes = 0;
    with_store([&](SlotStore& store, strata_error* error) {
      return store.export_checkpoint(slot, stage, to.data(), to.size(), stream, &bytes, error);
    });
    return bytes;
  }

  uint64_t import_begin(int32_t slot, std::span<const int32_t> tokens) {
    uint64_t import = 0;
    with_store([&](SlotStore& store, strata_error* error) {
      check(tokens);
      return store.begin(slot, static_cast<uint32_t>(tokens.size()), &import, error);
    });
    return import;
  }
  void import_block(uint64_t import, uint32_t stage, uint32_t first, uint32_t count,
                    std::span<const std::byte> from, void* stream) {
    with_store([&](SlotStore& store, strata_error* error) {
      return store.add_block(import, stage, first, count, from.data(), from.size(), stream, error);
    });
  }
  void import_checkpoint(uint64_t import, uint32_t stage, uint32_t position, std::span<const std::byte> from,
                         void* stream) {
    with_store([&](SlotStore& store, strata_error* error) {
      return store.add_checkpoint(import, stage, position, from.data(), from.size(), stream, error);
    });
  }
  void import_commit(uint64_t import) {
    with_store([&](SlotStore& store, strata_error* error) { return store.commit(import, error); });
  }
  void import_abort(uint64_t import) {
    if (instance_.store != nullptr) instance_.store->abort(import);
  }

 private:
  static void check(std::span<const int32_t> tokens) {
    sdk::checked([&](strata_error* error) { return check_tokens(tokens, error); });
  }
  // Runs a function on the slot store, when there is one.
  template <class Function>
  void with_store(Function&& function) {
    sdk::checked([&](strata_error* error) {
      const strata_status status = instance_.check_bound(error);
      return status == STRATA_OK ? function(*instance_.store, error) : status;
    });
  }

  Instance instance_;
};

}  // namespace
}  // namespace strata::reference

STRATA_PLUGIN_ENTRY(model_reference) {
  using strata::reference::Plugin;
  static const strata_model kTable =
      strata::sdk::ModelTable<Plugin>::make("reference", "1.0", strata::reference::probe);
  return kind == STRATA_KIND_MODEL ? &kTable.plugin : nullptr;
}
