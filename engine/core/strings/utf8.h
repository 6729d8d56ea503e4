// UTF-8 as text files need it: strict validation (RFC 3629), code point iteration, safe truncation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trafo {

inline constexpr size_t kValidUtf8 = static_cast<size_t>(-1);

// Offset of the first ill-formed sequence, or kValidUtf8. Overlong forms, surrogates and values
// above U+10FFFF are ill-formed; a NUL byte is well-formed.
size_t find_invalid_utf8(std::string_view text) noexcept;

inline bool is_valid_utf8(std::string_view text) noexcept {
  return find_invalid_utf8(text) == kValidUtf8;
}

// The fault of a line of text, for messages: "invalid UTF-8 at byte 5 (0xdf)" or "NUL byte at byte
// 5", counted from 1, and for a line of a file what the file may be instead and what converts it.
// `line`: the number of the line in its file, from 1; 0: the text comes from no file. Empty if
// nothing is wrong.
std::string text_fault(std::string_view text, int64_t line);

// Returns the code point at `position` and advances `position` past it. Ill-formed input gives
// U+FFFD and advances by one byte.
char32_t next_code_point(std::string_view text, size_t& position) noexcept;

std::vector<char32_t> to_code_points(std::string_view text);

void append_utf8(char32_t code_point, std::string& out);

// The longest prefix of at most max_bytes that ends between two sequences.
std::string_view truncate_utf8(std::string_view text, size_t max_bytes) noexcept;

// Unicode's White_Space property plus U+001C..U+001F. The reference implementations of BLEU and
// chrF split words there.
bool is_unicode_space(char32_t code_point) noexcept;

}  // namespace trafo
