// LineSplitter: bytes in, whole lines out (without the newline; a carriage return before it is dropped). A
// line longer than the limit is reported once, cut, and skipped to its end. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace strata {

class LineSplitter {
 public:
  // handle(line, cut): `cut` means that the line was longer than the limit and its rest is thrown away.
  using Handle = std::function<void(std::string_view line, bool cut)>;

  LineSplitter(size_t max_line_bytes, Handle handle)
      : max_line_bytes_(max_line_bytes), handle_(std::move(handle)) {}
  void feed(std::string_view bytes);
  // What is left without a newline, at the end of the input.
  void end();

 private:
  void take(std::string_view bytes);
  void deliver();

  const size_t max_line_bytes_;
  Handle handle_;
  std::string line_;
  bool skipping_ = false;
};

}  // namespace strata
