// CPU kernel of fake_quant_rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/fake_quant_rows/fake_quant_rows_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ops/row_kernels-inl.h"

#include "engine/ops/fake_quant_rows/fake_quant_rows.h"
#include "engine/quant/weight_format.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// One scale: a row of 8 bits, a group of 4.
template <class T>
HWY_INLINE void fake_quantize(const T* x, int64_t count, int32_t bits, T* y) {
  const hn::ScalableTag<T> d;
  // v - v is 0 for finite values and NaN for others, and so is their sum.
  VectorOf<T> largest = hn::Zero(d), differences = hn::Zero(d);
  for_columns_once<T>(count, [&](const auto& columns) TRAFO_INLINE_LAMBDA {
    const auto v = columns.load(x);
    largest = hn::Max(largest, hn::Abs(v));
    differences = hn::Add(differences, hn::Sub(v, v));
  });
  const bool finite = !std::isnan(reduce_sum(d, differences));
  const T most = finite ? reduce_max(d, largest) : T{0};
  if (most < static_cast<T>(0x1p-100)) {
    std::fill(y, y + count, finite ? T{0} : std::numeric_limits<T>::quiet_NaN());
    return;
  }
  const auto most_float =
      static_cast<float>(std::min(most, static_cast<T>(std::numeric_limits<float>::max())));
  const WeightFormat& format = bits == 4 ? formats::kInt4 : formats::kInt8;
  const auto scale = static_cast<T>(group_scale(format, most_float).value);
  const T factor = scale > 0 ? T{1} / scale : T{0};
  const auto factors = hn::Set(d, factor), scales = hn::Set(d, scale);
  const auto bound = hn::Set(d, static_cast<T>(format.most));
  for_columns_once<T>(count, [&](const auto& columns) TRAFO_INLINE_LAMBDA {
    const auto code = hn::Round(hn::Mul(columns.load(x), factors));
    columns.store(hn::Mul(hn::Min(hn::Max(code, hn::Neg(bound)), bound), scales), y);
  });
}

template <class T>
void fake_quantize_rows(ThreadPool& pool, const FakeQuantRowsParams& p, const MatrixPlace& matrix) {
  const int64_t width = matrix.width, group = p.bits == 4 ? formats::kInt4.group : width;
  parallel_for_range(pool, matrix.rows, rows_per_block(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(p.x) + matrix.offset + row * width;
      T* y = static_cast<T*>(p.y) + matrix.offset + row * width;
      for (int64_t c = 0; c < width; c += group)
        fake_quantize(x + c, std::min(group, width - c), p.bits, y + c);
    }
  });
}

void fake_quant_rows_simd(ThreadPool& pool, const FakeQuantRowsParams& p) {
  with_compute_type(p.from, [&](auto zero) {
    for (int64_t i = 0; i < p.count; ++i)
      fake_quantize_rows<decltype(zero)>(pool, p, p.matrices[i]);
  });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(fake_quant_rows, FakeQuantRowsParams)

}  // namespace trafo
#endif
