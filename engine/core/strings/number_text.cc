#include "engine/core/strings/number_text.h"

#include <charconv>

namespace trafo {

std::string fixed_text(double value, int digits) {
  char text[512];  // the largest number has 309 digits
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits);
  return std::string(text, end.ptr);
}

}  // namespace trafo
