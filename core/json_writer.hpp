// Writes one JSON text piece by piece; there is no parser here. Commas are placed by the writer. Strings are
// escaped; bytes that are not UTF-8 become U+FFFD, numbers that are not finite become null, so the text is
// always valid JSON when every begin has its end. Ownership: the text belongs to the writer until take(). One
// thread at a time.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(std::same_as<bool> auto truth) { return raw(truth ? "true" : "false"); }
  JsonWriter& value(std::floating_point auto number) { return real(static_cast<double>(number)); }
  JsonWriter& value(std::signed_integral auto number) { return raw(std::to_string(number)); }
  JsonWriter& value(std::unsigned_integral auto number) requires(!std::same_as<decltype(number), bool>) {
    return raw(std::to_string(number));
  }
  JsonWriter& null() { return raw("null"); }
  JsonWriter& raw(std::string_view json);  // a complete JSON value made elsewhere

  template <class T>
  JsonWriter& member(std::string_view name, const T& content) {
    return key(name).value(content);
  }

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  JsonWriter& real(double number);
  void separate();
  void quote(std::string_view text);

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace strata
