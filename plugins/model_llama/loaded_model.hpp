// The model file in memory: weights, or only its vocabulary. Owns what it loads. One thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plugins/model_llama/handles.hpp"
#include "plugins/model_llama/options.hpp"

namespace strata::llama {

class LoadedModel {
 public:
  // Throws Failure with one line that names the file and what is wrong with it.
  explicit LoadedModel(const Options& options);

  [[nodiscard]] llama_model* get() const { return model_.get(); }
  [[nodiscard]] const llama_vocab* vocabulary() const { return vocabulary_; }
  [[nodiscard]] uint32_t vocabulary_size() const { return size_; }
  [[nodiscard]] std::string name() const;                     // the file's, without its ending
  [[nodiscard]] std::string metadata(const char* key) const;  // empty when the file does not have it
  [[nodiscard]] std::string architecture() const { return metadata("general.architecture"); }
  // Tokens a slot can hold: 0 when nothing limits it.
  [[nodiscard]] uint32_t trained_context() const;
  [[nodiscard]] bool positions_are_learned() const;

  [[nodiscard]] std::vector<int32_t> tokenize(std::string_view text, bool add_special,
                                              bool parse_special) const;
  [[nodiscard]] std::string detokenize(const int32_t* tokens, uint32_t count) const;
  void check_tokens(const int32_t* tokens, uint32_t count) const;

  // Applies the adapters of the options to a context.
  void adapt(llama_context* context) const;

 private:
  void load_adapters();

  Options options_;
  ModelHandle model_;
  const llama_vocab* vocabulary_ = nullptr;
  uint32_t size_ = 0;
  std::vector<llama_adapter_lora*> adapters_;  // the model frees them
};

}  // namespace strata::llama
