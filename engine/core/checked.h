// Integer arithmetic that checks for overflow. Every product of a count and a size uses it.
#pragma once

#include <concepts>
#include <optional>
#include <string_view>

#include "engine/core/status.h"

namespace trafo {

template <std::integral T>
T checked_mul(T a, T b, std::string_view origin) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) [[unlikely]]
    fail(ErrorCode::invalid_argument, origin, "the product ", a, " * ", b, " overflows");
  return result;
}

template <std::integral T>
T checked_add(T a, T b, std::string_view origin) {
  T result;
  if (__builtin_add_overflow(a, b, &result)) [[unlikely]]
    fail(ErrorCode::invalid_argument, origin, "the sum ", a, " + ", b, " overflows");
  return result;
}

// No value on overflow. For readers of files, which name the file and the field in their own error.
template <std::integral T>
std::optional<T> try_mul(T a, T b) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) [[unlikely]]
    return std::nullopt;
  return result;
}

}  // namespace trafo
