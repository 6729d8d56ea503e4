#include "text/terminal_text.h"

#include <fmt/format.h>

#include <cstdint>

#include "engine/core/strings/utf8.h"

namespace translate_train {
namespace {

bool steers(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || code == 0x061C || code == 0x200E ||
         code == 0x200F || (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

void append_escape(std::string& out, char32_t code) {
  fmt::format_to(std::back_inserter(out), "\\u{:04X}", static_cast<uint32_t>(code));
}

}  // namespace

std::string terminal_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, trafo::find_invalid_utf8(text));
    text.remove_prefix(valid.size());
    for (size_t at = 0; at < valid.size();) {
      const size_t begin = at;
      if (const char32_t code = trafo::next_code_point(valid, at); steers(code))
        append_escape(out, code);
      else
        out += valid.substr(begin, at - begin);
    }
    if (text.empty()) break;
    append_escape(out, static_cast<unsigned char>(text[0]));
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace translate_train
