// CRC-32 (zlib's polynomial): finds every damage of up to 32 consecutive bits, and so every single
// flipped bit. It guards against accidents of disks and power, not against an attacker, who can
// recompute it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trafo {

// `previous` is the checksum of the bytes before these, so that a stream can be summed in pieces.
uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous = 0);

// Exactly eight lower-case hexadecimal digits. Stored sums are compared as this text and never
// parsed: a flipped bit that turns 'a' into 'A' is damage too.
std::string crc32_text(uint32_t crc);

// A sealed text carries its own checksum in the eight digits at `offset`: the CRC-32 of the whole
// text with these digits read as '0'. seal_text fills them in; is_sealed says whether they fit
// (false too when the text is too short).
void seal_text(std::string& text, size_t offset);
bool is_sealed(std::string_view text, size_t offset);

}  // namespace trafo
