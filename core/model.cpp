#include "core/model.hpp"

namespace strata {

Result<ChatPrompt> Model::chat_format(const std::string&) {
  return make_error(ErrorCode::unsupported,
                    "this model has no chat formats: tools and response formats need one");
}

Result<std::string> Model::chat_parse(const std::string&, std::string_view, bool) {
  return make_error(ErrorCode::unsupported, "this model has no chat formats");
}

Result<std::unique_ptr<ModelSampler>> Model::make_sampler(const std::string&) {
  return make_error(ErrorCode::unsupported, "model: this model has no sampler of its own");
}

}  // namespace strata
