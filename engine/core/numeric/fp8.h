// The two 8-bit floating-point formats of NVIDIA's and AMD's GPUs and the scales that fit a tensor
// into them (Micikevicius et al., FP8 Formats for Deep Learning, arXiv 2209.05433).
//   E4M3: 4 bits of exponent, 3 of mantissa; largest 448, smallest 2^-9; NaN but no infinity.
//   E5M2: 5 bits of exponent, 2 of mantissa; largest finite 57344, smallest 2^-16; IEEE 754's
//   rules.
#pragma once

#include <cstdint>

namespace trafo {

enum class Fp8Format : int32_t { e4m3 = 0, e5m2 = 1 };

// The bits of `value`, rounded to nearest even. A value larger than the format's largest finite
// value, infinity included, becomes that value with the same sign; NaN stays NaN.
uint8_t float_to_fp8(float value, Fp8Format format);
float fp8_to_float(uint8_t bits, Fp8Format format);

// The scale of a tensor, as the bits of two float32: values are stored times 2^e, and `inverse` is
// 2^-e, so that neither scaling rounds.
struct Fp8ScaleBits {
  uint32_t scale, inverse;
};

// The largest 2^e for which the tensor's largest magnitude times 2^e fits the format, e at most
// 126. `magnitude_bits`: of this magnitude as a float32 without its sign; the largest of these
// numbers belongs to the largest magnitude, with infinity and NaN above all others. Zeros have
// 2^126. Both are NaN if the magnitude is not finite: all products are NaN then.
constexpr Fp8ScaleBits fp8_scale_bits(uint32_t magnitude_bits, Fp8Format format) {
  constexpr int32_t kBias = 127, kMost = 126;
  if (magnitude_bits >= 0x7f800000u) return {0x7fc00000u, 0x7fc00000u};
  // Both formats end at 1.75 times a power of two.
  const int32_t top = format == Fp8Format::e4m3 ? 8 : 15;
  const auto exponent = static_cast<int32_t>(magnitude_bits >> 23) - kBias;
  const bool above = (magnitude_bits & 0x7fffffu) > 0x600000u;
  const int32_t fits = top - exponent - (above ? 1 : 0);
  const int32_t e = fits < kMost ? fits : kMost;
  return {static_cast<uint32_t>(kBias + e) << 23, static_cast<uint32_t>(kBias - e) << 23};
}

}  // namespace trafo
