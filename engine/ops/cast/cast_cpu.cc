#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/ops/cast/cast.h"

namespace trafo {

void cast_forward_cpu(ThreadPool& pool, const CastForwardParams& params);
void cast_backward_cpu(ThreadPool& pool, const CastBackwardParams& params);

namespace {

constexpr int64_t kGrain = 1 << 14;  // elements a block

// Rounded to odd: the second rounding, to bfloat16, then gives what one rounding would.
float narrow_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}

// Towards zero, into the range of int32; NaN is 0.
int32_t to_int(double value) {
  if (std::isnan(value)) return 0;
  return static_cast<int32_t>(std::clamp<double>(value, std::numeric_limits<int32_t>::min(),
                                                 std::numeric_limits<int32_t>::max()));
}

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<From, BFloat16>) {
    return convert<To>(value.to_float());
  } else if constexpr (std::is_same_v<To, int32_t>) {
    return to_int(static_cast<double>(value));
  } else if constexpr (!std::is_same_v<To, BFloat16>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_same_v<From, float>) {
    return BFloat16::from_float(value);
  } else {
    return BFloat16::from_float(narrow_to_odd(static_cast<double>(value)));
  }
}

template <class From, class To>
void run(ThreadPool& pool, int64_t count, const void* source, void* result) {
  const From* x = static_cast<const From*>(source);
  To* y = static_cast<To*>(result);
  parallel_for_range(pool, count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = convert<To>(x[i]);
  });
}

void cast(ThreadPool& pool, DType from, DType to, int64_t count, const void* x, void* y) {
  if (from == DType::f32 && to == DType::f64) return run<float, double>(pool, count, x, y);
  if (from == DType::f32 && to == DType::bf16) return run<float, BFloat16>(pool, count, x, y);
  if (from == DType::f64 && to == DType::f32) return run<double, float>(pool, count, x, y);
  if (from == DType::f64 && to == DType::bf16) return run<double, BFloat16>(pool, count, x, y);
  if (from == DType::bf16 && to == DType::f32) return run<BFloat16, float>(pool, count, x, y);
  if (from == DType::bf16 && to == DType::f64) return run<BFloat16, double>(pool, count, x, y);
  if (from == DType::i32 && to == DType::f32) return run<int32_t, float>(pool, count, x, y);
  if (from == DType::i32 && to == DType::f64) return run<int32_t, double>(pool, count, x, y);
  if (from == DType::i32 && to == DType::bf16) return run<int32_t, BFloat16>(pool, count, x, y);
  if (from == DType::f32 && to == DType::i32) return run<float, int32_t>(pool, count, x, y);
  if (from == DType::f64 && to == DType::i32) return run<double, int32_t>(pool, count, x, y);
  if (from == DType::bf16 && to == DType::i32) return run<BFloat16, int32_t>(pool, count, x, y);
  fail(ErrorCode::dtype_mismatch, "cast", "no conversion from ", dtype_name(from), " to ",
       dtype_name(to));
}

}  // namespace

void cast_forward_cpu(ThreadPool& pool, const CastForwardParams& p) {
  cast(pool, p.from, p.to, p.count, p.x, p.y);
}

void cast_backward_cpu(ThreadPool& pool, const CastBackwardParams& p) {
  cast(pool, p.from, p.to, p.count, p.dy, p.dx);
}

}  // namespace trafo
