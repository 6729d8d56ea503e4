// Overflow-checked integer arithmetic: every count times size in the engine goes through here.
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

// For readers, which say themselves what of which file is too large: nothing if it does not fit.
template <std::integral T>
std::optional<T> try_mul(T a, T b) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) [[unlikely]]
    return std::nullopt;
  return result;
}

}  // namespace trafo
