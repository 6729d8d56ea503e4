// Moments in 8 bits. Blocks of 256 elements share a float32 scale (block-wise quantisation,
// Dettmers et al., arXiv 2110.02861); a code says how many times the scale an element is. The
// multiples are small floating-point numbers, so that coding is a few operations on the bits of a
// float32, the same bits on every device, without a table:
//
//   first moment   a sign, and 0 or one of 127 multiples up to 1.875, 8 an octave, the least 2^-15
//                  times 1.125
//   second moment  one of 256 multiples from 2^-21 to 1.25, 12 an octave. None is zero: a
//                  denominator that is rounded to zero makes an update without bounds (the zero
//                  point problem of Li et al., arXiv 2309.01507); what is smaller counts as 2^-21.
//
// A block's largest element has the largest code. Codes are rounded stochastically: an exponential
// average with a decay near one changes by less than half a code at a time, and rounding to nearest
// would stop it. The random bits are a function of element and update: runs repeat and continue bit
// for bit.
#pragma once

#include <bit>
#include <cstdint>

namespace trafo::state_code {

inline constexpr int64_t kBlock = 256;  // elements of a scale

// The bits of a multiple are linear in its code (a logarithm in straight pieces). For the first
// moment, kFirstBase + (code << 20). For the second, 3/2 of the bits are kSecondBase +
// (code << 20), so that the bits are 2^-21's and code * 2^23 / 12, rounded to about 40.
inline constexpr int kShift = 20;
inline constexpr uint32_t kFirstBase = 0x38000000u;  // of 2^-15
inline constexpr uint32_t kPlaces = 127, kSignBit = 0x80;
inline constexpr uint32_t kSecondBase = 0x4f800000u;
inline constexpr uint32_t kSecondLeast = 0x35000000u - 42, kSecondStep = 699051;
inline constexpr float kFirstLargest = 1.875f, kSecondLargest = 1.25f;

constexpr int64_t blocks(int64_t count) {
  return (count + kBlock - 1) / kBlock;
}

// Random bits of elements 2 pair and 2 pair + 1: the finaliser of MurmurHash3 (Austin Appleby,
// public domain).
constexpr uint32_t random_bits(uint32_t pair, uint32_t update) {
  uint32_t h = pair + update * 0x9e3779b9u;
  h = (h ^ (h >> 16)) * 0x85ebca6bu;
  h = (h ^ (h >> 13)) * 0xc2b2ae35u;
  return h ^ (h >> 16);
}
// Offset that is added before rounding down: twelve random bits of a code's 2^20. Both ends are
// left out, so that a value with an exact code keeps this code although scaling has cost its last
// bits.
inline constexpr uint32_t kOffsetMask = 0xfff00, kOffsetLeast = 0x80;
constexpr uint32_t rounding_offset(uint32_t random, uint32_t element) {
  return ((element % 2 ? random >> 12 : random) & kOffsetMask) | kOffsetLeast;
}

// A block's scale. 0, and all its elements count as zero, where the largest is so small that the
// inverse is not finite. A square that is not finite counts as about kMost.
constexpr float scale_of(float largest, float largest_multiple) {
  constexpr float kLeast = 1e-37f, kMost = 3e38f;
  return largest < kLeast ? 0.0f : (largest > kMost ? kMost : largest) * (1 / largest_multiple);
}
constexpr float inverse_of(float scale) {
  return scale > 0 ? 1 / scale : 0.0f;
}

// The code of a first moment but for its sign; of the bits of its multiple's magnitude.
constexpr uint32_t first_place(uint32_t bits, uint32_t offset) {
  const auto place = static_cast<int32_t>(bits + offset - kFirstBase) >> kShift;
  return static_cast<uint32_t>(place > 0 ? place : 0);
}
constexpr uint8_t encode_first(float value, float inverse, uint32_t offset) {
  const uint32_t all = std::bit_cast<uint32_t>(value * inverse);
  return static_cast<uint8_t>(first_place(all & 0x7fffffffu, offset) | (all >> 24 & kSignBit));
}

constexpr float decode_first(uint8_t code, float scale) {
  const uint32_t place = code & kPlaces;
  const uint32_t bits = kFirstBase | place << kShift | (code & kSignBit) << 24;
  return place == 0 ? 0.0f : scale * std::bit_cast<float>(bits);
}

constexpr uint8_t encode_second(float value, float inverse, uint32_t offset) {
  const uint32_t bits = std::bit_cast<uint32_t>(value * inverse);
  const auto place = static_cast<int32_t>(bits + (bits >> 1) + offset - kSecondBase) >> kShift;
  return static_cast<uint8_t>(place > 0 ? place : 0);
}

constexpr float decode_second(uint8_t code, float scale) {
  return scale * std::bit_cast<float>(kSecondLeast + code * kSecondStep);
}

}  // namespace trafo::state_code
