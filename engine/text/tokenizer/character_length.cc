#include "engine/text/tokenizer/character_length.h"

namespace trafo {

int character_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const int size = first >= 0xc2 && first <= 0xdf   ? 2
                   : (first & 0xf0) == 0xe0         ? 3
                   : first >= 0xf0 && first <= 0xf4 ? 4
                                                    : 1;
  if (size == 1) return -1;
  for (int i = 1; i < size; ++i) {
    if (at + static_cast<size_t>(i) == text.size()) return 0;
    unsigned low = 0x80, high = 0xbf;
    if (i == 1 && first == 0xe0) low = 0xa0;  // overlong forms, surrogates, beyond U+10FFFF
    if (i == 1 && first == 0xed) high = 0x9f;
    if (i == 1 && first == 0xf0) low = 0x90;
    if (i == 1 && first == 0xf4) high = 0x8f;
    if (const unsigned next = byte(static_cast<size_t>(i)); next < low || next > high) return -i;
  }
  return size;
}

}  // namespace trafo
