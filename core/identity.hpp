// Identity: everything that must be equal for saved bytes to mean the same (ID-1, ID-2, ID-3).
// Model identity: digest over the content of every model file by role. Configuration identity: digest over
// typed, length-prefixed fields. The fields themselves are kept, so that a refusal can name the one that
// differs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/model.hpp"
#include "core/types.hpp"

namespace strata {

struct Identity {
  Digest model;
  Digest configuration;
  std::vector<IdentityField> fields;  // in the order they were digested
  bool operator==(const Identity& other) const {
    return model == other.model && configuration == other.configuration;
  }
};

// Digest of the fields in the given order: for each u32 name length, name, u32 value length, value.
[[nodiscard]] Digest configuration_digest(const std::vector<IdentityField>& fields);

struct IdentityDifference {
  std::string field;  // "model", or the name of the first configuration field that differs
  std::string stored;
  std::string wanted;
};
// nullopt when equal. Without stored fields only "model" or "configuration" can be named.
[[nodiscard]] std::optional<IdentityDifference> compare(const Identity& stored, const Identity& wanted);

}  // namespace strata
