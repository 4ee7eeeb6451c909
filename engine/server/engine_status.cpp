#include "engine/server/engine_status.hpp"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "engine/server/json_reader.hpp"

namespace strata {
namespace json = boost::json;
namespace {

constexpr int64_t kAny = INT64_MAX;

EngineSlot read_slot(JsonReader& slot) {
  const auto count = [&](std::string_view key) {
    return static_cast<uint64_t>(slot.integer(key, 0, kAny).value_or(0));
  };
  EngineSlot out;
  out.id = slot.integer("id", 0, kAny).value_or(0);
  out.context = count("n_ctx");
  out.is_processing = slot.boolean("is_processing").value_or(false);
  out.conversation = slot.text("conversation").value_or("");
  out.tokens = count("tokens");
  if (const auto task = slot.integer("id_task", 0, kAny)) out.task = static_cast<uint64_t>(*task);
  out.prompt_tokens = count("n_prompt_tokens");
  out.prompt_processed = count("n_prompt_tokens_processed");
  out.prompt_cached = count("n_prompt_tokens_cache");
  return out;
}

}  // namespace

Result<EngineStatus> parse_engine_status(std::string_view text) {
  const auto bad = [](const std::string& message) {
    return make_error(ErrorCode::invalid, "engine status: " + message);
  };
  const auto parsed = parse_json(text);
  if (!parsed) return bad(parsed.error().message);
  JsonReader status(parsed->get_object(), "");
  EngineStatus out;
  if (const json::array* slots = status.array("slots"); slots != nullptr) {
    for (const json::value& value : *slots) {
      if (!value.is_object()) return bad("a slot is no object");
      JsonReader slot(value.get_object(), "slots.");
      out.slots.push_back(read_slot(slot));
      if (slot.error()) return bad(slot.error()->message);
    }
  }
  if (const json::object* tiers = status.object("tiers"); tiers != nullptr)
    out.tiers = json::serialize(*tiers);
  out.metrics = status.text("metrics").value_or("");
  if (status.error()) return bad(status.error()->message);
  return out;
}

}  // namespace strata
