#include "terminal_text.h"

#include <fmt/format.h>

#include <cstdint>

#include "text_io.h"

namespace translate_train {
namespace {

bool steers(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || code == 0x061C || code == 0x200E ||
         code == 0x200F || (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

// The code point of a well-formed sequence.
uint32_t code_of(std::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 1) return byte(0);
  uint32_t code = byte(0) & (0x7Fu >> sequence.size());
  for (size_t i = 1; i < sequence.size(); ++i) code = code << 6 | (byte(i) & 0x3Fu);
  return code;
}

size_t sequence_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

void append_escape(std::string& out, uint32_t code) {
  fmt::format_to(std::back_inserter(out), "\\u{:04X}", code);
}

}  // namespace

std::string terminal_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::string_view valid = text.substr(0, invalid_utf8(text));
    text.remove_prefix(valid.size());
    while (!valid.empty()) {
      const std::string_view sequence = valid.substr(0, sequence_bytes(valid[0]));
      valid.remove_prefix(sequence.size());
      if (const uint32_t code = code_of(sequence); steers(code))
        append_escape(out, code);
      else
        out += sequence;
    }
    if (text.empty()) break;
    append_escape(out, static_cast<unsigned char>(text[0]));
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace translate_train
