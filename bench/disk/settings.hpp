// How large and how often: the sizes of the requirements, or small ones that only show that everything works.
#pragma once

#include <cstdint>
#include <string>

namespace strata::bench {

struct Settings {
  std::string folder;  // of this run, on the disk that is measured; removed at the end
  bool quick = false;
  uint32_t rounds = 5;
  // P-1, P-2, P-9, P-10
  uint32_t blocks = 160;
  uint64_t block_bytes = uint64_t{16} << 20;
  // P-3, P-4, P-5
  uint32_t conversation_tokens = 165'000;
  uint32_t new_tokens = 2'000;
  uint32_t switches = 1'000;
  uint64_t ram_bytes = uint64_t{6} << 30;
  // P-6
  uint32_t prefix_tokens = 20'000;
  // P-8
  uint32_t stored_conversations = 10'000;
};

[[nodiscard]] inline Settings quick_settings() {
  Settings settings;
  settings.quick = true;
  settings.rounds = 2;
  settings.blocks = 12;
  settings.block_bytes = uint64_t{2} << 20;
  settings.conversation_tokens = 6'000;
  settings.new_tokens = 2'000;
  settings.switches = 40;
  settings.ram_bytes = uint64_t{512} << 20;
  settings.prefix_tokens = 4'000;
  settings.stored_conversations = 200;
  return settings;
}

}  // namespace strata::bench
