// Protocol lines: any text is refused, or means something that is written to a line which means the same.
#include <string_view>

#include "core/lines.hpp"
#include "tests/fuzz/fuzz_target.hpp"

namespace strata::lines {
namespace {

template <class Line>
void round_trip(const Line& line, Result<Line> (*decode)(std::string_view)) {
  const std::string text = encode(line);
  STRATA_CHECK(text.find_first_of("\r\n") == std::string::npos);
  const auto again = decode(text);
  STRATA_CHECK(again && *again == line);
  STRATA_CHECK(encode(*again) == text);
}

}  // namespace
}  // namespace strata::lines

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace lines = strata::lines;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto command = lines::decode_command(text)) lines::round_trip(*command, lines::decode_command);
  if (const auto event = lines::decode_event(text)) lines::round_trip(*event, lines::decode_event);
  (void)lines::generate_id(text);
  return 0;
}
