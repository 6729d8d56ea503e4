#include "engine/core/numeric/fp8.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trafo {
namespace {

struct Layout {
  int mantissa_bits, bias;
  float largest;
  uint8_t largest_bits, nan_bits;
};

constexpr Layout layout_of(Fp8Format format) {
  return format == Fp8Format::e4m3 ? Layout{3, 7, 448.0f, 0x7e, 0x7f}
                                   : Layout{2, 15, 57344.0f, 0x7b, 0x7f};
}

}  // namespace

uint8_t float_to_fp8(float value, Fp8Format format) {
  const Layout f = layout_of(format);
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  const float magnitude = std::abs(value);
  if (std::isnan(value)) return static_cast<uint8_t>(sign | f.nan_bits);
  if (magnitude >= f.largest) return static_cast<uint8_t>(sign | f.largest_bits);
  // The distance of neighbours at this size; subnormal numbers have the exponent of the smallest
  // normal.
  const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), 1 - f.bias) : 1 - f.bias;
  const float steps = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  // A mantissa that is rounded up to the next power of two carries into the exponent by itself.
  const int first = (exponent + f.bias - 1) << f.mantissa_bits;
  return static_cast<uint8_t>(sign | (first + static_cast<int>(steps)));
}

float fp8_to_float(uint8_t bits, Fp8Format format) {
  const Layout f = layout_of(format);
  const int magnitude = bits & 0x7f;
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  if (magnitude > f.largest_bits) {
    const bool infinite = format == Fp8Format::e5m2 && magnitude == 0x7c;
    return sign * (infinite ? std::numeric_limits<float>::infinity()
                            : std::numeric_limits<float>::quiet_NaN());
  }
  const int exponent = std::max(magnitude >> f.mantissa_bits, 1);
  const int steps = magnitude - ((exponent - 1) << f.mantissa_bits);
  return sign * std::ldexp(static_cast<float>(steps), exponent - f.bias - f.mantissa_bits);
}

}  // namespace trafo
