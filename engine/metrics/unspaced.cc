#include "engine/metrics/unspaced.h"

#include <algorithm>
#include <iterator>

#include "engine/core/strings/utf8.h"

namespace trafo {
namespace {

constexpr size_t kLongestWord = 5;  // mean length; Thai words have four to five

bool is_of_unspaced_script(char32_t c) {
  // Blocks of Unicode, in order.
  static constexpr struct {
    char32_t first, last;
  } kBlocks[] = {
      {0x0e00, 0x0e7f},    // Thai
      {0x0e80, 0x0eff},    // Lao
      {0x0f00, 0x0fff},    // Tibetan
      {0x1000, 0x109f},    // Burmese
      {0x1780, 0x17ff},    // Khmer
      {0x1950, 0x19ff},    // Tai Le, New Tai Lue, symbols of Khmer
      {0x1a20, 0x1aaf},    // Tai Tham
      {0x2e80, 0x2fdf},    // radicals of Chinese characters
      {0x3000, 0x312f},    // punctuation of Chinese and Japanese, kana, Bopomofo
      {0x31a0, 0x31ff},    // Bopomofo, strokes, kana
      {0x3200, 0x4dbf},    // enclosed and compatible forms, ideographs
      {0x4e00, 0x9fff},    // ideographs
      {0xf900, 0xfaff},    // ideographs
      {0xff00, 0xff9f},    // full-width and half-width forms
      {0x20000, 0x3ffff},  // ideographs
  };
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [c](const auto& block) { return c >= block.first && c <= block.last; });
}

}  // namespace

bool is_unspaced(std::string_view line) {
  size_t characters = 0, unspaced = 0, words = 0;
  bool in_word = false;  // a word with a character of such a script
  for (size_t position = 0; position < line.size();) {
    const char32_t c = next_code_point(line, position);
    if (is_unicode_space(c)) {
      in_word = false;
      continue;
    }
    // Numbers and punctuation of ASCII stand in every script.
    const bool is_letter = c > 0x7f || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_letter) ++characters;
    if (!is_of_unspaced_script(c)) continue;
    ++unspaced;
    if (!in_word) ++words;
    in_word = true;
  }
  return 2 * unspaced > characters && unspaced > kLongestWord * words;
}

size_t count_unspaced(std::span<const std::string> lines) {
  return static_cast<size_t>(std::count_if(
      lines.begin(), lines.end(), [](const std::string& line) { return is_unspaced(line); }));
}

}  // namespace trafo
