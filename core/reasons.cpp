#include "core/reasons.hpp"

namespace strata {

const char* label(ReadReason reason) {
  switch (reason) {
    case ReadReason::none:
      return "none";
    case ReadReason::fresh:
      return "new";
    case ReadReason::prefix_changed:
      return "prefix_changed";
    case ReadReason::evicted:
      return "evicted";
    case ReadReason::expired:
      return "expired";
    case ReadReason::identity:
      return "identity";
    case ReadReason::no_checkpoint:
      return "no_checkpoint";
    case ReadReason::too_large:
      return "too_large";
    case ReadReason::cheaper_to_read:
      return "cheaper_to_read";
    case ReadReason::corrupt:
      return "corrupt";
    case ReadReason::io_error:
      return "io_error";
  }
  return "none";
}

std::string to_string(ReadCause cause) {
  std::string text = label(cause.reason);
  if (cause.reason == ReadReason::prefix_changed) text += "@" + std::to_string(cause.at);
  return text;
}

const char* label(SkipReason reason) {
  switch (reason) {
    case SkipReason::off:
      return "off";
    case SkipReason::too_large:
      return "too_large";
    case SkipReason::budget:
      return "budget";
    case SkipReason::min_free_ram:
      return "min_free_ram";
    case SkipReason::memory_unknown:
      return "memory_unknown";
    case SkipReason::min_free_disk:
      return "min_free_disk";
    case SkipReason::no_space:
      return "no_space";
    case SkipReason::queue_full:
      return "queue_full";
    case SkipReason::cancelled:
      return "cancelled";
    case SkipReason::superseded:
      return "superseded";
    case SkipReason::lru:
      return "lru";
    case SkipReason::expired:
      return "expired";
    case SkipReason::identity:
      return "identity";
    case SkipReason::version:
      return "version";
    case SkipReason::corrupt:
      return "corrupt";
    case SkipReason::truncated:
      return "truncated";
    case SkipReason::foreign:
      return "foreign";
    case SkipReason::orphan:
      return "orphan";
    case SkipReason::io_error:
      return "io_error";
    case SkipReason::no_state:
      return "no_state";
    case SkipReason::needless:
      return "needless";
  }
  return "off";
}

}  // namespace strata
