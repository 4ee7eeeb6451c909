#include "core/identity.hpp"

#include <algorithm>

#include "core/byte_codec.hpp"
#include "core/digest.hpp"

namespace strata {

Digest configuration_digest(const std::vector<IdentityField>& fields) {
  ByteWriter writer(256);
  for (const IdentityField& field : fields) {
    writer.u32(static_cast<uint32_t>(field.name.size()));
    writer.text(field.name);
    writer.u32(static_cast<uint32_t>(field.value.size()));
    writer.text(field.value);
  }
  return digest_bytes(writer.bytes());
}

namespace {
const IdentityField* find(const std::vector<IdentityField>& fields, const std::string& name) {
  const auto at = std::find_if(fields.begin(), fields.end(), [&](const auto& f) { return f.name == name; });
  return at == fields.end() ? nullptr : &*at;
}

std::optional<IdentityDifference> first_difference(const std::vector<IdentityField>& stored,
                                                   const std::vector<IdentityField>& wanted) {
  // Fields of the same name may come several times, from different sources: in order they still pair up.
  for (size_t i = 0; i < std::min(stored.size(), wanted.size()) && stored[i].name == wanted[i].name; ++i)
    if (stored[i].value != wanted[i].value)
      return IdentityDifference{wanted[i].name, stored[i].value, wanted[i].value};
  for (const IdentityField& field : wanted) {
    const IdentityField* other = find(stored, field.name);
    if (other == nullptr) return IdentityDifference{field.name, "(absent)", field.value};
    if (other->value != field.value) return IdentityDifference{field.name, other->value, field.value};
  }
  for (const IdentityField& field : stored)
    if (find(wanted, field.name) == nullptr) return IdentityDifference{field.name, field.value, "(absent)"};
  return std::nullopt;
}
}  // namespace

std::optional<IdentityDifference> compare(const Identity& stored, const Identity& wanted) {
  if (stored.model != wanted.model)
    return IdentityDifference{"model", to_hex(stored.model), to_hex(wanted.model)};
  if (stored.configuration == wanted.configuration) return std::nullopt;
  if (!stored.fields.empty())
    if (auto difference = first_difference(stored.fields, wanted.fields)) return difference;
  return IdentityDifference{"configuration", to_hex(stored.configuration), to_hex(wanted.configuration)};
}

}  // namespace strata
