#include "engine/protocol/status_json.hpp"

#include <algorithm>

#include "core/json_writer.hpp"

namespace strata {
namespace {

void write_slot(JsonWriter& json, const SlotStatus& slot, std::span<const RequestView> requests,
                uint32_t context_tokens) {
  const auto request =
      std::ranges::find_if(requests, [&](const RequestView& open) { return slot.request == open.id; });
  json.begin_object();
  json.member("id", slot.slot)
      .member("n_ctx", context_tokens)
      .member("is_processing", slot.request.has_value());
  json.key("conversation");
  if (slot.conversation)
    json.value(to_hex(slot.conversation));
  else
    json.null();
  json.member("tokens", slot.tokens);
  if (request != requests.end()) {
    json.member("id_task", request->id).member("n_prompt_tokens", request->prompt_tokens);
    json.member("n_prompt_tokens_processed", request->read_tokens)
        .member("n_prompt_tokens_cache", request->reused_tokens);
    json.member("n_generated", request->generated_tokens);
  }
  json.end_object();
}

void write_tiers(JsonWriter& json, const TierStatus& status) {
  json.key("ram").begin_object();
  json.member("on", status.ram_on).member("bytes", status.ram_bytes);
  json.member("budget_bytes", status.ram_budget_bytes).member("images", status.ram_images).end_object();
  json.key("disk").begin_object();
  json.member("on", status.disk_on)
      .member("off_reason", status.disk_off_reason)
      .member("bytes", status.disk_bytes);
  json.member("budget_bytes", status.disk_budget_bytes).member("images", status.disk_images);
  json.member("queue_bytes", status.disk_queue_bytes).member("queue_jobs", status.disk_queue_jobs);
  json.member("taken_in", status.intake_taken).member("refused", status.intake_refused).end_object();
}

}  // namespace

std::string status_json(const TierStatus& status, std::span<const RequestView> requests,
                        uint32_t context_tokens, const std::string& prometheus) {
  JsonWriter json;
  json.begin_object().key("slots").begin_array();
  for (const SlotStatus& slot : status.slots) write_slot(json, slot, requests, context_tokens);
  json.end_array().key("tiers").begin_object();
  write_tiers(json, status);
  json.end_object().member("metrics", prometheus).end_object();
  return json.take();
}

std::string sessions_json(std::span<const StoredConversation> conversations) {
  JsonWriter json;
  json.begin_array();
  for (const StoredConversation& stored : conversations) {
    json.begin_object().member("id", to_hex(stored.id)).member("tokens", stored.tokens);
    json.member("ram_bytes", stored.ram_bytes).member("disk_bytes", stored.disk_bytes);
    json.member("created_ns", stored.created_ns).member("last_used_ns", stored.last_used_ns);
    json.member("pinned", stored.pinned).member("label", stored.label).end_object();
  }
  json.end_array();
  return json.take();
}

}  // namespace strata
