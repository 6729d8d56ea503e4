#include "engine/core/strings/quote.h"

namespace trafo {

std::string quote(std::string_view text) {
  std::string result = "'";
  for (const char c : text.substr(0, 200)) {
    // The bytes 0x80 to 0x9f are control characters on some terminals, and parts of letters in
    // UTF-8.
    const auto byte = static_cast<unsigned char>(c);
    result += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return result + (text.size() > 200 ? "...'" : "'");
}

}  // namespace trafo
