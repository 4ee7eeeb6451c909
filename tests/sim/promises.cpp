#include "tests/sim/promises.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/session_file.hpp"
#include "tests/support/stored_conversation.hpp"

namespace strata::testing {

Promises::Promises(PowerLossFileSystem& files, std::string folder)
    : files_(files), folder_(std::move(folder)) {
  files_.on_change = [this](DiskChange change, const std::string& path, const std::string& to) {
    changed(change, path, to);
  };
}

std::vector<Promises::State>& Promises::states_of(ConversationId id) {
  std::vector<State>& states = states_[id];
  if (states.empty()) states.push_back(std::nullopt);
  return states;
}

void Promises::changed(DiskChange change, const std::string& path, const std::string& to) {
  if (change == DiskChange::rename) {
    became(path, std::nullopt);
    became(to, files_.content(to));
  } else if (change == DiskChange::unlink) {
    became(path, std::nullopt);
  } else if (change == DiskChange::sync_directory && path == folder_) {
    for (auto& [id, states] : states_) states.erase(states.begin(), std::prev(states.end()));
  }
}

void Promises::became(const std::string& path, State state) {
  const auto id = parse_conversation_file_name(path.substr(path.rfind('/') + 1), "idx");
  if (!id.ok()) return;
  const bool present = state.has_value();
  std::vector<State>& states = states_of(*id);
  if (!present && !states.back().has_value()) return;
  ++(present ? publications_ : removals_);
  states.push_back(std::move(state));
}

std::vector<std::string> Promises::check_survivors() {
  std::vector<std::string> wrong;
  for (const std::string& path : files_.paths()) {
    const auto id = parse_conversation_file_name(path.substr(path.rfind('/') + 1), "idx");
    if (id.ok() && has_strata_magic(*files_.content(path)) && !states_.contains(*id))
      wrong.push_back(path + " was never published");
  }
  for (auto& [id, states] : states_) {
    const State survived = files_.content(folder_ + "/" + index_file_name(id));
    if (std::find(states.begin(), states.end(), survived) == states.end()) {
      wrong.push_back(fmt::format("{} is {}, which is none of its {} possible states", index_file_name(id),
                                  survived ? "there with other bytes" : "gone", states.size()));
    } else if (survived) {
      const auto whole = read_published(files_, folder_, id);
      if (!whole.ok()) wrong.push_back(index_file_name(id) + " is not whole: " + whole.error().message);
    }
    states = {survived};
  }
  return wrong;
}

std::map<ConversationId, Manifest> Promises::published() const {
  std::map<ConversationId, Manifest> all;
  for (const auto& [id, states] : states_) {
    if (!states.back()) continue;
    auto manifest = decode_manifest(*states.back(), {});
    if (manifest.ok()) all.emplace(id, std::move(*manifest));
  }
  return all;
}

}  // namespace strata::testing
