// Overflow-checked arithmetic without an exception, for readers, which say what of which file is
// too large; checked.h has the form for everything else.
#pragma once

#include <concepts>
#include <optional>

namespace trafo {

// Nothing if the result does not fit.
template <std::integral T>
std::optional<T> try_mul(T a, T b) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) [[unlikely]]
    return std::nullopt;
  return result;
}

}  // namespace trafo
