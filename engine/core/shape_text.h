// Shapes and devices as arguments of concat(), fail() and require(). Their text is made when the
// message is, which a check that passes never needs: require(fits, code, op, "x is ", x.shape()).
#pragma once

#include <ostream>

#include "engine/core/device.h"
#include "engine/core/shape.h"

namespace trafo {

inline std::ostream& operator<<(std::ostream& out, const Dims& dims) {
  return out << dims.str();
}

inline std::ostream& operator<<(std::ostream& out, Device device) {
  return out << device_name(device);
}

// element_count() for code that every op passes: it makes the text of an error only if there is
// one.
inline int64_t quick_element_count(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t d : shape) {
    if (d < 0) [[unlikely]]
      fail(ErrorCode::shape_mismatch, "shape", "negative dimension in ", shape);
    count = checked_mul(count, d, "shape");
  }
  return count;
}

}  // namespace trafo
