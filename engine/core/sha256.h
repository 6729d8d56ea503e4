// SHA-256 (FIPS 180-4) and the message authentication code made of it (HMAC, RFC 2104).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace trafo {

using Sha256 = std::array<uint8_t, 32>;

Sha256 sha256(std::string_view bytes);
// Of the parts, one after the other.
Sha256 hmac_sha256(const Sha256& key, std::initializer_list<std::string_view> parts);
// In a time that does not depend on where they differ.
bool are_equal(const Sha256& one, const Sha256& other);
// Random bytes of the system. IO: it gives none.
Sha256 random_bytes();

inline std::string_view text_of(const Sha256& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace trafo
