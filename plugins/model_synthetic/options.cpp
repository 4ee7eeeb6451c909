#include "plugins/model_synthetic/options.hpp"

#include "plugins/sdk/failure.hpp"
#include "plugins/sdk/options.hpp"

namespace strata::synthetic {
namespace {

constexpr uint64_t kMaxBlockBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxCheckpointBytes = uint64_t{4} << 30;
constexpr uint32_t kWordBytes = 8;

template <class Number>
void read(const strata_host* host, const char* key, uint64_t minimum, uint64_t maximum, Number& value) {
  uint64_t number = value;
  sdk::checked([&](strata_error* error) {
    return sdk::option_number(host, {key, value, minimum, maximum}, &number, error);
  });
  value = static_cast<Number>(number);
}

void check_shape(const Options& o) {
  if (o.layers % o.stages != 0)
    sdk::raise(STRATA_INVALID, "option layers: %u is not a multiple of %u stages", o.layers, o.stages);
  if (o.bytes_per_token % (o.layers * kWordBytes) != 0)
    sdk::raise(STRATA_INVALID, "option bytes_per_token: %u is not a multiple of %u layers of %u bytes",
               o.bytes_per_token, o.layers, kWordBytes);
  if (o.checkpoint_bytes % kWordBytes != 0)
    sdk::raise(STRATA_INVALID, "option checkpoint_bytes: not a multiple of %u", kWordBytes);
  const uint64_t stage_bytes = o.bytes_per_token / o.stages;  // of a token
  if (!o.whole && stage_bytes * o.tokens_per_block > kMaxBlockBytes)
    sdk::raise(STRATA_INVALID, "option tokens_per_block: %u makes blocks above 16 MiB", o.tokens_per_block);
  if (o.whole && stage_bytes * o.context > kMaxCheckpointBytes)
    sdk::raise(STRATA_INVALID, "option context: %u makes the state larger than 4 GiB", o.context);
  if (o.whole && o.checkpoint_bytes != 0)
    sdk::raise(STRATA_INVALID,
               "option checkpoint_bytes: with the state whole there is one checkpoint, of everything");
}

}  // namespace

Options read_options(const strata_host* host) {
  Options o;
  sdk::checked([&](strata_error* error) { return sdk::option_state_whole(host, &o.whole, error); });
  uint32_t vocab_only = 0;
  read(host, "vocab_only", 0, 1, vocab_only);
  o.vocab_only = vocab_only != 0;
  read(host, "stages", 1, 64, o.stages);
  read(host, "layers", 1, 1024, o.layers);
  read(host, "bytes_per_token", kWordBytes, 16u << 20, o.bytes_per_token);
  read(host, "tokens_per_block", 1, 1u << 16, o.tokens_per_block);
  read(host, "checkpoint_bytes", 0, kMaxCheckpointBytes, o.checkpoint_bytes);
  read(host, "context", 1, 1u << 24, o.context);
  read(host, "slots", 1, 256, o.slots);
  read(host, "tokens_per_second", 0, 1'000'000'000, o.tokens_per_second);
  read(host, "seed", 0, UINT64_MAX, o.seed);
  check_shape(o);
  return o;
}

}  // namespace strata::synthetic
