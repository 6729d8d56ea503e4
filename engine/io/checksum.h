// CRC-32 with zlib's polynomial. It detects every damage of up to 32 consecutive bits, and so every
// single flipped bit. It protects against disk and power failures, not against an attacker, who can
// recompute it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trafo {

// `previous` is the checksum of the bytes before these, so that a stream can be summed in chunks.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous = 0);

// Exactly eight lower-case hexadecimal digits. Stored checksums are compared as text and never
// parsed, because a flipped bit that turns 'a' into 'A' is damage too.
std::string crc32_text(uint32_t crc);

// A sealed text has its own checksum in the eight digits at `offset`: the CRC-32 of the whole text
// with '0' for these digits. seal_text fills them in; is_sealed checks them, and is false for a
// text that is too short.
void seal_text(std::string& text, size_t offset);
bool is_sealed(std::string_view text, size_t offset);

}  // namespace trafo
