#include "engine/io/checksum.h"

#include <zlib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trafo {
namespace {

constexpr size_t kDigits = 8;

uint32_t zlib_crc32(const std::byte* bytes, size_t count, uint32_t previous) {
  return static_cast<uint32_t>(::crc32_z(previous, reinterpret_cast<const Bytef*>(bytes), count));
}

#if defined(__x86_64__)
// Bytes that are summed at a time with carry-less multiplication, and fewer than which it is not
// worth it.
constexpr size_t kFold = 64;
constexpr size_t kLeastFolded = 256;

__m128i load(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

// `sum` shifted by some bytes, plus `next`. The two halves of `shift` are the remainders of the
// powers of x by which the halves of `sum` move.
__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i sum, __m128i next,
                                                             __m128i shift) {
  const __m128i low = _mm_clmulepi64_si128(sum, shift, 0x00);
  const __m128i high = _mm_clmulepi64_si128(sum, shift, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// CRC-32 of a multiple of 64 bytes, at least 128, after Gopal et al., "Fast CRC Computation for
// Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009: four sums of 128 bits are moved
// over the data, then added up. zlib computes the remainder of the last 128 bits.
__attribute__((target("pclmul,sse4.1"))) uint32_t folded_crc32(const std::byte* bytes, size_t count,
                                                               uint32_t previous) {
  // x^(512+32), x^(512-32) and x^(128+32), x^(128-32) modulo the polynomial, bit-reflected.
  const __m128i by_64_bytes = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
  const __m128i by_16_bytes = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  __m128i sum0 = load(bytes), sum1 = load(bytes + 16), sum2 = load(bytes + 32),
          sum3 = load(bytes + 48);
  sum0 = _mm_xor_si128(sum0, _mm_cvtsi32_si128(static_cast<int>(~previous)));
  for (size_t at = kFold; at < count; at += kFold) {
    sum0 = fold(sum0, load(bytes + at), by_64_bytes);
    sum1 = fold(sum1, load(bytes + at + 16), by_64_bytes);
    sum2 = fold(sum2, load(bytes + at + 32), by_64_bytes);
    sum3 = fold(sum3, load(bytes + at + 48), by_64_bytes);
  }
  sum0 = fold(sum0, sum1, by_16_bytes);
  sum0 = fold(sum0, sum2, by_16_bytes);
  sum0 = fold(sum0, sum3, by_16_bytes);
  alignas(16) std::byte last[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(last), sum0);
  return zlib_crc32(last, sizeof last, ~uint32_t{0});  // from a state of zero
}
#endif

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous) {
  if (bytes.empty()) return previous;  // for a null pointer zlib would start over
#if defined(__x86_64__)
  if (bytes.size() >= kLeastFolded && __builtin_cpu_supports("pclmul") &&
      __builtin_cpu_supports("sse4.1")) {
    const size_t count = bytes.size() / kFold * kFold;
    previous = folded_crc32(bytes.data(), count, previous);
    bytes = bytes.subspan(count);
    if (bytes.empty()) return previous;
  }
#endif
  return zlib_crc32(bytes.data(), bytes.size(), previous);
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
