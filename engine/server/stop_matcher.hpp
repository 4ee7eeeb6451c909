// Stop strings in a stream of text: finds the first one across piece borders and holds back what may still
// become one. Pure; one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace strata {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // none of them empty

  // Text that can be given out now. After a match: everything before it, and from then on nothing.
  [[nodiscard]] std::string feed(std::string_view text);
  [[nodiscard]] std::string finish();  // what was held back and never became a stop string
  [[nodiscard]] bool matched() const { return matched_; }
  [[nodiscard]] const std::string& match() const { return match_; }  // empty before one

 private:
  [[nodiscard]] size_t held_back() const;

  std::vector<std::string> stops_;
  std::string pending_;
  std::string match_;
  bool matched_ = false;
};

}  // namespace strata
