// IEEE 754 binary16 as its bits.
#pragma once

#include <cstdint>

namespace trafo {

// Rounded to nearest even; infinite from 65520 on.
uint16_t float_to_half(float value);
float half_to_float(uint16_t half);

}  // namespace trafo
