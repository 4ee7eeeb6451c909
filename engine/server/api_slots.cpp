// The slot actions of the API: session files by name, and erasing (SES-4, SES-6).
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <utility>

#include "core/json_writer.hpp"
#include "engine/server/api.hpp"
#include "engine/server/file_name_policy.hpp"
#include "engine/server/respond.hpp"

namespace strata {
namespace {

std::optional<SlotId> parse_slot_id(std::string_view text) {
  SlotId id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  const bool whole = error == std::errc() && end == text.data() + text.size() && text.front() != '-';
  return whole ? std::optional(id) : std::nullopt;
}

std::optional<lines::SlotActionKind> parse_action(const std::optional<std::string>& name) {
  if (name == "save") return lines::SlotActionKind::save;
  if (name == "restore") return lines::SlotActionKind::restore;
  if (name == "erase") return lines::SlotActionKind::erase;
  return std::nullopt;
}

// A link that leads nowhere is there: the engine says what is wrong with it.
bool exists(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 || errno != ENOENT;
}

struct SlotAnswer {
  SlotId slot = 0;
  std::string filename;
};

ApiResult<std::string> body_of(const SlotAnswer& asked, const lines::Saved& done) {
  // A file that holds nothing would be reported as a saved conversation.
  if (done.bytes == 0) return tl::unexpected(slot_error("io", false, "nothing was written"));
  JsonWriter json;
  json.begin_object().member("id_slot", asked.slot).member("filename", asked.filename);
  json.member("n_saved", done.tokens).member("n_written", done.bytes);
  json.key("timings").begin_object().member("save_ms", done.ms).end_object().end_object();
  return json.take();
}

ApiResult<std::string> body_of(const SlotAnswer& asked, const lines::Restored& done) {
  JsonWriter json;
  json.begin_object().member("id_slot", asked.slot).member("filename", asked.filename);
  json.member("n_restored", done.tokens).member("n_read", done.bytes).member("n_usable", done.usable);
  json.key("timings").begin_object().member("restore_ms", done.ms).end_object().end_object();
  return json.take();
}

ApiResult<std::string> body_of(const SlotAnswer& asked, const lines::Erased& done) {
  JsonWriter json;
  json.begin_object().member("id_slot", asked.slot).member("n_erased", done.tokens).end_object();
  return json.take();
}

ApiResult<std::string> body_of(const SlotAnswer& /*asked*/, const lines::SlotError& failed) {
  return tl::unexpected(slot_error(failed.kind, failed.published, failed.reason));
}

ApiResult<std::string> body_of(const SlotAnswer& /*asked*/, const ApiError& error) {
  return tl::unexpected(error);
}

ApiError invalid(std::string message) { return slot_error("invalid", false, std::move(message)); }

struct SlotRequest {
  lines::SlotAction action;
  SlotAnswer asked;
};

// Which slot and what to do with it.
ApiResult<SlotRequest> target_of(const HttpRequest& request, uint32_t slots) {
  const std::string_view id = std::string_view(request.path).substr(std::string_view("/slots/").size());
  const auto slot = parse_slot_id(id);
  if (!slot || *slot >= static_cast<int64_t>(slots))
    return tl::unexpected(invalid(fmt::format("there is no slot {}", id)));
  const auto kind = parse_action(request.query_value("action"));
  if (!kind) return tl::unexpected(invalid("\"action\" must be save, restore or erase"));
  return SlotRequest{{*kind, *slot, ""}, {*slot, ""}};
}

ApiResult<SlotRequest> parse_slot_request(const HttpRequest& request, uint32_t slots,
                                          const std::string& folder) {
  ApiResult<SlotRequest> parsed = target_of(request, slots);
  if (!parsed) return parsed;
  if (parsed->action.kind == lines::SlotActionKind::erase) {  // clients send {} or nothing
    if (const auto wrong = refuse_body(request.body); wrong && !request.body.empty())
      return tl::unexpected(invalid(wrong->message));
    return parsed;
  }
  const auto name = parse_slot_file(request.body);
  if (!name) return tl::unexpected(invalid(name.error().message));
  if (const std::string why = refuse_session_name(*name); !why.empty())
    return tl::unexpected(invalid("\"filename\" " + why));
  parsed->asked.filename = *name;
  parsed->action.path = folder + (folder.ends_with('/') ? "" : "/") + *name;
  if (parsed->action.kind == lines::SlotActionKind::restore && !exists(parsed->action.path))
    return tl::unexpected(ApiError{404, fmt::format("there is no saved session \"{}\"", *name)});
  return parsed;
}

}  // namespace

void Api::slot_action(const ExchangePtr& exchange) {
  if (options_.slot_save_path.empty())
    return respond_error(*exchange,
                         not_supported("slot actions need the server to be started with --slot-save-path"));
  auto request = parse_slot_request(exchange->request(), ports_.supervisor.slots(), options_.slot_save_path);
  if (!request) return respond_error(*exchange, request.error());
  const auto answer = [exchange, asked = std::move(request->asked)](const SlotOutcome& outcome) {
    const auto body = std::visit([&](const auto& what) { return body_of(asked, what); }, outcome);
    if (body)
      respond_json(*exchange, *body);
    else
      respond_error(*exchange, body.error());
  };
  const auto accepted = ports_.supervisor.slot_action(std::move(request->action), answer);
  if (!accepted) {
    ApiError error = accepted.error();
    if (error.status == 500) error.kind = "io";  // the engine could not be started
    return respond_error(*exchange, error);
  }
  exchange->on_gone([&supervisor = ports_.supervisor, id = *accepted] { supervisor.abandon_action(id); });
}

}  // namespace strata
