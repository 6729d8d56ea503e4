// A part of a text.
#pragma once

#include <cstddef>

namespace trafo {

// The bytes [begin, end).
struct TextSpan {
  size_t begin, end;
  bool operator==(const TextSpan&) const = default;
};

}  // namespace trafo
