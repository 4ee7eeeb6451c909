// Who may talk to the server: host names (DNS rebinding), API keys, origins of pages. Pure but for reading
// the key file at start; thread-safe after construction.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"

namespace strata {

// The name in a Host or Origin value: lower case, without port, brackets and a trailing dot; empty when
// malformed.
[[nodiscard]] std::string host_name(std::string_view host_and_port);

class HostPolicy {
 public:
  HostPolicy(const std::string& bind_host, const std::vector<std::string>& allowed);
  // local_address: the address the connection arrived at; a page cannot make a browser send that as a name.
  [[nodiscard]] bool allows(std::string_view host_header, std::string_view local_address) const;

 private:
  std::vector<std::string> names_;
};

// True when there is no Origin (not a page), or the page came from this very server.
[[nodiscard]] bool is_own_origin(std::string_view origin_header, std::string_view host_header);

class KeyRing {
 public:
  explicit KeyRing(std::vector<std::string> keys);
  [[nodiscard]] bool empty() const { return keys_.empty(); }
  // Takes the same time for every wrong key of one length. Authorization wins over X-Api-Key when both are
  // there.
  [[nodiscard]] bool accepts(std::string_view authorization, std::string_view x_api_key) const;

 private:
  std::vector<std::string> keys_;
};

[[nodiscard]] bool equal_in_constant_time(std::string_view a, std::string_view b);
// One key a line; empty lines and lines that begin with # are skipped. A file without a key is an error.
Result<std::vector<std::string>> read_key_file(const std::string& path);

}  // namespace strata
