// What a folder of conversations owes its owner at a power cut (B-6): watches the changes of the disk, and
// knows for each conversation the states that may be found when the power comes back: the one that was
// published and synced, or one of those that were being put in its place. Nothing else, and never a mix. One
// thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/manifest.hpp"
#include "tests/support/power_loss_file_system.hpp"

namespace strata::testing {

class Promises {
 public:
  using Bytes = std::vector<std::byte>;

  // Both must outlive this object; takes the files' on_change.
  Promises(PowerLossFileSystem& files, std::string folder);

  // The power is back: what is wrong with what survived, a line each. What survived is the state from now on.
  std::vector<std::string> check_survivors();
  // Conversations whose index must be in the folder now.
  [[nodiscard]] std::map<ConversationId, Manifest> published() const;
  [[nodiscard]] uint64_t publications() const { return publications_; }
  [[nodiscard]] uint64_t removals() const { return removals_; }

 private:
  using State = std::optional<Bytes>;  // of the index; null: none

  void changed(DiskChange change, const std::string& path, const std::string& to);
  void became(const std::string& name, State state);
  std::vector<State>& states_of(ConversationId id);

  PowerLossFileSystem& files_;
  std::string folder_;
  std::map<ConversationId, std::vector<State>> states_;  // possible ones, the last is what the program sees
  uint64_t publications_ = 0;
  uint64_t removals_ = 0;
};

}  // namespace strata::testing
