#include "engine/text/tokenizer/byte_bpe/byte_letters.h"

#include "engine/core/strings/utf8.h"

namespace trafo {
namespace {

constexpr char32_t kOther = 0x100;  // the first letter that is not its byte

bool is_itself(size_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

}  // namespace

const std::array<char32_t, 256>& byte_letters() {
  static const std::array<char32_t, 256> letters = [] {
    std::array<char32_t, 256> all{};
    char32_t other = kOther;
    for (size_t byte = 0; byte < all.size(); ++byte)
      all[byte] = is_itself(byte) ? static_cast<char32_t>(byte) : other++;
    return all;
  }();
  return letters;
}

std::string to_byte_letters(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(byte_letters()[static_cast<unsigned char>(byte)], text);
  return text;
}

std::optional<std::string> from_byte_letters(std::string_view text) {
  static const std::array<int, 512> bytes = [] {
    std::array<int, 512> all{};
    all.fill(-1);
    for (size_t byte = 0; byte < 256; ++byte) all[byte_letters()[byte]] = static_cast<int>(byte);
    return all;
  }();
  std::string result;
  for (size_t position = 0; position < text.size();) {
    const char32_t letter = next_code_point(text, position);
    if (letter >= bytes.size() || bytes[letter] < 0) return std::nullopt;
    result += static_cast<char>(bytes[letter]);
  }
  return result;
}

}  // namespace trafo
