#include "engine/server/security.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>

namespace strata {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_loopback_name(std::string_view name) {
  if (name == "localhost" || name == "::1") return true;
  return name.starts_with("127.") && name.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

std::string host_name(std::string_view host_and_port) {
  std::string_view host = trimmed(host_and_port);
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return {};
    const std::string_view rest = host.substr(end + 1);
    if (!rest.empty() && !(rest.front() == ':' && is_port(rest.substr(1)))) return {};
    return lower(host.substr(1, end - 1));
  }
  if (const size_t colon = host.find(':'); colon != std::string_view::npos) {
    if (!is_port(host.substr(colon + 1))) return {};
    host = host.substr(0, colon);
  }
  if (host.ends_with('.')) host.remove_suffix(1);
  const bool plain = std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return c > ' ' && c != '/' && c != '@' && c != '\\' && c != '?' && c != '#' && c != 0x7F;
  });
  return plain ? lower(host) : std::string();
}

HostPolicy::HostPolicy(const std::string& bind_host, const std::vector<std::string>& allowed) {
  // The addresses that mean "every interface" are no names a client can have meant.
  if (bind_host != "0.0.0.0" && bind_host != "::")
    names_.push_back(bind_host.find(':') == std::string::npos ? host_name(bind_host) : lower(bind_host));
  for (const std::string& name : allowed)
    names_.push_back(std::count(name.begin(), name.end(), ':') > 1 && !name.starts_with('[')
                         ? lower(name)
                         : host_name(name));
  std::erase(names_, std::string());
}

bool HostPolicy::allows(std::string_view host_header, std::string_view local_address) const {
  const std::string name = host_name(host_header);
  if (name.empty()) return false;
  if (is_loopback_name(name) || name == lower(local_address)) return true;
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

bool is_own_origin(std::string_view origin_header, std::string_view host_header) {
  std::string_view origin = trimmed(origin_header);
  if (origin.empty()) return true;
  if (origin.starts_with("http://"))
    origin.remove_prefix(7);
  else if (origin.starts_with("https://"))
    origin.remove_prefix(8);
  else
    return false;
  // Name and port: another program's page on this machine is a foreign page.
  return !host_name(origin).empty() && lower(origin) == lower(trimmed(host_header));
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  volatile unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference = static_cast<unsigned char>(difference | static_cast<unsigned char>(a[i] ^ other));
  }
  return difference == 0;
}

KeyRing::KeyRing(std::vector<std::string> keys) : keys_(std::move(keys)) {}

bool KeyRing::accepts(std::string_view authorization, std::string_view x_api_key) const {
  if (keys_.empty()) return true;
  std::string_view given = x_api_key;
  if (!authorization.empty()) {
    if (lower(authorization.substr(0, 7)) != "bearer ") return false;
    given = trimmed(authorization.substr(7));
  }
  bool accepted = false;
  for (const std::string& key : keys_) accepted = equal_in_constant_time(given, key) || accepted;
  return accepted;
}

Result<std::vector<std::string>> read_key_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return errno_error(errno, "API key file " + path);
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    const std::string_view key = trimmed(line);
    if (!key.empty() && !key.starts_with('#')) keys.emplace_back(key);
  }
  if (keys.empty()) return make_error(ErrorCode::invalid, "API key file " + path + ": holds no key");
  return keys;
}

}  // namespace strata
