// Normally distributed initial values with the same bits on every system.
#pragma once

#include <cmath>
#include <numbers>

#include "engine/core/numeric/philox.h"
#include "engine/core/numeric/portable_math.h"
#include "engine/core/numeric/portable_trigonometry.h"

namespace trafo {

// The next number of the standard normal distribution (Box-Muller).
inline double standard_normal(PhiloxStream& random) {
  const double u = (random.next_u32() + 0.5) * 0x1p-32, v = random.uniform();
  return std::sqrt(-2.0 * portable_log(u)) * portable_cos(2 * std::numbers::pi * v);
}

}  // namespace trafo
