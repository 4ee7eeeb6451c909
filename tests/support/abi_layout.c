#include "tests/support/abi_layout.h"

#include <stdio.h>

struct line {
  const char* struct_name;
  const char* field;
  size_t offset, size;
};

#define STRUCT(type) {#type, 0, 0, sizeof(type)},
#define FIELD(type, field) {#type, #field, offsetof(type, field), sizeof(((type*)0)->field)},

static const struct line lines[] = {STRATA_ABI_1_1(STRUCT, FIELD)};

unsigned long strata_abi_layout_in_c(char* text, unsigned long capacity) {
  unsigned long length = 0;
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
    const struct line* const one = &lines[i];
    const unsigned long left = length < capacity ? capacity - length : 0;
    char* const to = left > 0 ? text + length : NULL;
    const int written = one->field == NULL
                            ? snprintf(to, left, "%s %zu\n", one->struct_name, one->size)
                            : snprintf(to, left, "%s.%s %zu %zu\n", one->struct_name, one->field, one->offset, one->size);
    if (written < 0) return 0;
    length += (unsigned long)written;
  }
  return length;
}
