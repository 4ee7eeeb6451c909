// The model's own sampler for a request with a grammar: what the engine's sampler cannot do. One thread.
#pragma once

#include <memory>

#include "core/lines.hpp"
#include "core/model.hpp"
#include "core/result.hpp"

namespace strata {

// `ask` has a grammar. unsupported: the model has no sampler; invalid: the grammar is none.
Result<std::unique_ptr<ModelSampler>> make_constrained_sampler(Model& model, const lines::Generate& ask,
                                                               uint64_t fallback_seed);

}  // namespace strata
