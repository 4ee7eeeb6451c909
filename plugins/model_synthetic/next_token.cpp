#include "plugins/model_synthetic/next_token.hpp"

#include "plugins/model_synthetic/state_bytes.hpp"
#include "plugins/sdk/byte_vocabulary.hpp"

namespace strata::synthetic {
namespace {

constexpr uint64_t kTokensPerAnswer = 128;  // on average
constexpr uint64_t kLetters = 26;
constexpr uint64_t kLettersAndSpaces = kLetters + 5;
constexpr float kChosen = 8.0F;  // above all others
constexpr uint32_t kMantissaBits = 24;

int32_t next_token(uint64_t hash) {
  if (hash % kTokensPerAnswer == 0) return sdk::kEnd;
  const uint64_t letter = (hash >> 32) % kLettersAndSpaces;
  return letter < kLetters ? static_cast<int32_t>('a' + letter) : ' ';
}

}  // namespace

void fill_logits(std::span<float> logits, uint64_t prefix) {
  const uint64_t hash = mixed(prefix);
  for (size_t i = 0; i < logits.size(); ++i) {
    const uint64_t bits = mixed(hash + i) >> (64 - kMantissaBits);
    logits[i] = static_cast<float>(bits) / static_cast<float>(1u << kMantissaBits);
  }
  logits[static_cast<size_t>(next_token(hash))] = kChosen;
}

}  // namespace strata::synthetic
