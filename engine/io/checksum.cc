#include "engine/io/checksum.h"

#include <zlib.h>

namespace trafo {
namespace {

constexpr size_t kDigits = 8;

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous) {
  if (bytes.empty()) return previous;  // for a null pointer zlib would start over
  return static_cast<uint32_t>(
      ::crc32_z(previous, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::string crc32_text(uint32_t crc) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text(kDigits, '0');
  for (size_t i = 0; i < kDigits; ++i) text[i] = digits[(crc >> (28 - 4 * i)) & 0xf];
  return text;
}

namespace {

std::string sum_with_zeroed_digits(std::string_view text, size_t offset) {
  const auto bytes = [](std::string_view part) {
    return std::as_bytes(std::span(part.data(), part.size()));
  };
  uint32_t crc = crc32(bytes(text.substr(0, offset)));
  crc = crc32(bytes("00000000"), crc);
  return crc32_text(crc32(bytes(text.substr(offset + kDigits)), crc));
}

bool has_room(std::string_view text, size_t offset) {
  return offset <= text.size() && text.size() - offset >= kDigits;
}

}  // namespace

void seal_text(std::string& text, size_t offset) {
  if (!has_room(text, offset)) return;
  text.replace(offset, kDigits, sum_with_zeroed_digits(text, offset));
}

bool is_sealed(std::string_view text, size_t offset) {
  return has_room(text, offset) &&
         text.substr(offset, kDigits) == sum_with_zeroed_digits(text, offset);
}

}  // namespace trafo
