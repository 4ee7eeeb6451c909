#include "engine/server/prompt_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/json_writer.hpp"
#include "core/limits.hpp"
#include "engine/server/chat_beginnings.hpp"

namespace strata {
namespace {

ApiError from_model(const Error& error) {
  if (error.code == ErrorCode::invalid) return invalid_request(error.message);
  return error.code == ErrorCode::unsupported ? not_supported(error.message) : server_error(error.message);
}

// Numbers of leading messages after which a border lies.
std::vector<size_t> border_messages(const std::vector<ChatMessage>& messages, size_t most) {
  std::vector<size_t> counts;
  for (size_t i = 1; i <= messages.size(); ++i) {
    const bool system_ends =
        messages[i - 1].role == "system" && (i == messages.size() || messages[i].role != "system");
    const bool user_begins = i < messages.size() && messages[i].role == "user";
    if (system_ends || user_begins || i == messages.size()) counts.push_back(i);
  }
  // The first border is the one that all conversations of one agent share.
  if (counts.size() > most)
    counts.erase(counts.begin() + 1, counts.end() - static_cast<std::ptrdiff_t>(most - 1));
  return counts;
}

// Ends of the rendered beginnings of the conversation in the whole text. A template whose output for fewer
// messages is no beginning of its output for more of them yields none from there on.
std::vector<size_t> border_offsets(Model& model, const std::vector<ChatMessage>& messages,
                                   std::string_view text) {
  std::vector<size_t> offsets;
  for (const size_t count : border_messages(messages, kMaxBorders)) {
    const auto part = model.apply_chat_template(std::span(messages).first(count), false);
    if (!part.ok() || !text.starts_with(*part)) break;
    if (offsets.empty() ? !part->empty() : part->size() > offsets.back()) offsets.push_back(part->size());
  }
  return offsets;
}

// The same through a chat format. Templates may refuse a beginning (one without a user's message, say).
std::vector<size_t> formatted_offsets(Model& model, const CompletionRequest& request, std::string_view text) {
  std::vector<size_t> offsets;
  const std::vector<size_t> counts = border_messages(request.messages, kMaxFormattedBorders);
  for (const std::string& beginning : chat_beginnings(request.chat_json, counts)) {
    const auto part = model.chat_format(beginning);
    if (!part.ok() || part->prompt.empty() || !text.starts_with(part->prompt)) continue;
    if (offsets.empty() || part->prompt.size() > offsets.back()) offsets.push_back(part->prompt.size());
  }
  return offsets;
}

// Tokens that the tokens of this beginning have in common with those of the whole text.
size_t common_tokens(Model& model, std::string_view beginning, const std::vector<Token>& tokens) {
  const auto own = model.tokenize(beginning, true, true);
  if (!own.ok()) return 0;
  const auto differ = std::ranges::mismatch(*own, tokens);
  return static_cast<size_t>(differ.in1 - own->begin());
}

// Tokenizes piece by piece: one pass over the text, however many borders there are. Where the pieces' tokens
// are not those of the whole text (one lies across the border, or a text's begin has a token of its own) the
// border moves to the last token before, which costs a pass of its own: done for the first and the last ones.
std::vector<uint32_t> token_borders(Model& model, std::string_view text, const std::vector<size_t>& offsets,
                                    const std::vector<Token>& tokens) {
  std::vector<uint32_t> borders;
  size_t begin = 0;
  size_t position = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const auto piece = model.tokenize(text.substr(begin, offsets[i] - begin), begin == 0, true);
    if (!piece.ok()) break;
    const std::span<const Token> rest = std::span(tokens).subspan(position);
    size_t border = 0;
    if (piece->size() <= rest.size() && std::equal(piece->begin(), piece->end(), rest.begin())) {
      border = position += piece->size();
      begin = offsets[i];
    } else if (i == 0 || i + kMaxFormattedBorders > offsets.size()) {
      border = common_tokens(model, text.substr(0, offsets[i]), tokens);
    }
    if (border > 0 && border < tokens.size() && (borders.empty() || border > borders.back()))
      borders.push_back(static_cast<uint32_t>(border));
  }
  return borders;
}

ApiResult<Prompt> checked(Model& model, Prompt prompt) {
  if (prompt.tokens.empty()) return tl::unexpected(invalid_request("the prompt is empty"));
  if (prompt.tokens.size() > limits::kMaxTokens)
    return tl::unexpected(
        invalid_request(fmt::format("the prompt has more than {} tokens", limits::kMaxTokens)));
  const auto vocabulary = static_cast<int64_t>(model.info().vocabulary);
  for (const Token token : prompt.tokens)
    if (token < 0 || token >= vocabulary)
      return tl::unexpected(
          invalid_request(fmt::format("token {} is not in the vocabulary of {}", token, vocabulary)));
  return prompt;
}

ApiResult<Prompt> tokenized(Model& model, std::string_view text, const std::vector<size_t>& offsets) {
  Result<std::vector<Token>> tokens = model.tokenize(text, true, true);
  if (!tokens.ok()) return tl::unexpected(from_model(tokens.error()));
  Prompt prompt{std::move(*tokens), {}};
  prompt.borders = token_borders(model, text, offsets, prompt.tokens);
  return checked(model, std::move(prompt));
}

// A grammar of the client's that cannot be parsed is the request's fault, which the engine could only say as
// its own.
std::optional<ApiError> refuse_grammar(Model& model, const std::string& grammar) {
  if (grammar.empty() || !model.info().sampling) return std::nullopt;
  JsonWriter params;
  params.begin_object().member("grammar", grammar).end_object();
  const auto sampler = model.make_sampler(params.take());
  if (sampler.ok()) return std::nullopt;
  return from_model(with_context(sampler.error(), "grammar"));
}

ApiResult<Prompt> build_formatted(Model& model, const CompletionRequest& request) {
  Result<ChatPrompt> chat = model.chat_format(request.chat_json);
  if (!chat.ok()) return tl::unexpected(from_model(chat.error()));
  ApiResult<Prompt> prompt = tokenized(model, chat->prompt, formatted_offsets(model, request, chat->prompt));
  if (!prompt) return prompt;
  prompt->stops = std::move(chat->stops);
  prompt->grammar = std::move(chat->grammar);
  prompt->parser = std::move(chat->parser);
  return prompt;
}

}  // namespace

ApiResult<std::string> render_prompt(Model& model, const CompletionRequest& request) {
  if (!request.chat) return request.prompt;
  if (!request.chat_json.empty()) {
    Result<ChatPrompt> chat = model.chat_format(request.chat_json);
    if (!chat.ok()) return tl::unexpected(from_model(chat.error()));
    return std::move(chat->prompt);
  }
  Result<std::string> text = model.apply_chat_template(request.messages, true);
  if (!text.ok()) return tl::unexpected(from_model(text.error()));
  return std::move(*text);
}

ApiResult<Prompt> build_prompt(Model& model, const CompletionRequest& request) {
  if (auto refused = refuse_grammar(model, request.grammar); refused)
    return tl::unexpected(*std::move(refused));
  if (request.prompt_tokens) return checked(model, {*request.prompt_tokens, {}});
  if (!request.chat_json.empty()) return build_formatted(model, request);
  const ApiResult<std::string> text = render_prompt(model, request);
  if (!text) return tl::unexpected(text.error());
  return tokenized(model, *text,
                   request.chat ? border_offsets(model, request.messages, *text) : std::vector<size_t>());
}

}  // namespace strata
