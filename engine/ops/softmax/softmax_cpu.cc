// CPU kernels of the masked softmax.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/softmax/softmax_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/exp-inl.h"
#include "engine/ops/row_kernels-inl.h"

#include "engine/ops/softmax/softmax.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// scale * x of a row; masked keys and lanes past the row count as -infinity.
template <class T>
struct MaskedRow {
  const T* x;
  const int32_t* masked;  // or null
  VectorOf<T> scale;

  template <class Columns>
  HWY_INLINE VectorOf<T> load(const Columns& columns) const {
    const hn::ScalableTag<T> d;
    const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
    auto v = hn::Mul(columns.load(x), scale);
    if (masked) {
      const hn::Rebind<int32_t, decltype(d)> d32;
      const auto mask = [&] {
        if constexpr (Columns::whole)
          return hn::LoadU(d32, masked + columns.at);
        else
          return load_n(d32, masked + columns.at, columns.count);
      }();
      const auto is_masked = [&] {
        if constexpr (sizeof(T) == 8) {
          const hn::Rebind<int64_t, decltype(d)> d64;
          return hn::RebindMask(d, hn::Ne(hn::PromoteTo(d64, mask), hn::Zero(d64)));
        } else {
          return hn::RebindMask(d, hn::Ne(mask, hn::Zero(d32)));
        }
      }();
      v = hn::IfThenElse(is_masked, lowest, v);
    }
    if constexpr (!Columns::whole)
      v = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(columns.count)), v, lowest);
    return v;
  }
};

// y = softmax of the first `visible` keys (at least one of which is not masked).
template <class T>
HWY_INLINE void softmax_row(const MaskedRow<T>& row, int64_t visible, T* y) {
  const hn::ScalableTag<T> d;
  VectorOf<T> top[2];
  top[0] = top[1] = hn::Set(d, -std::numeric_limits<T>::infinity());
  for_columns<T>(visible, [&](const auto& columns, auto k)
                              TRAFO_INLINE_LAMBDA { top[k] = hn::Max(top[k], row.load(columns)); });
  const auto highest = hn::Set(d, reduce_max(d, hn::Max(top[0], top[1])));
  VectorOf<T> sum[2];
  sum[0] = sum[1] = hn::Zero(d);
  for_columns<T>(visible, [&](const auto& columns, auto k) TRAFO_INLINE_LAMBDA {
    const auto e = exp_nonpositive(d, hn::Sub(row.load(columns), highest));
    columns.store(e, y);
    sum[k] = hn::Add(sum[k], columns.keep(e));
  });
  const auto inverse = hn::Set(d, T{1} / reduce_sum(d, hn::Add(sum[0], sum[1])));
  for_columns<T>(visible, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
    columns.store(hn::Mul(columns.load(y), inverse), y);
  });
}

template <class T>
void forward(ThreadPool& pool, const SoftmaxForwardParams& p) {
  if (p.keys == 0) return;
  const auto scale = static_cast<T>(p.scale);
  const int64_t rows_of_batch = p.heads * p.queries;
  parallel_for_range(
      pool, p.batch * rows_of_batch, rows_per_block(p.keys), [&](int64_t begin, int64_t end) {
        int64_t first_visible = 0, batch_of_mask = -1;
        for (int64_t index = begin; index < end; ++index) {
          const int64_t batch = index / rows_of_batch, query = index % p.queries;
          const int32_t* masked = p.padding_mask ? p.padding_mask + batch * p.keys : nullptr;
          if (masked && batch != batch_of_mask) {
            batch_of_mask = batch;
            first_visible = std::find(masked, masked + p.keys, 0) - masked;
          }
          const int64_t visible =
              p.causal ? std::clamp<int64_t>(query + p.keys - p.queries + 1, 0, p.keys) : p.keys;
          T* y = static_cast<T*>(p.y) + index * p.keys;
          const bool all_masked = first_visible >= visible;
          if (!all_masked) {
            const MaskedRow<T> row{static_cast<const T*>(p.x) + index * p.keys, masked,
                                   hn::Set(hn::ScalableTag<T>(), scale)};
            softmax_row(row, visible, y);
          }
          std::fill(y + (all_masked ? 0 : visible), y + p.keys, T{0});
        }
      });
}

template <class T>
void backward(ThreadPool& pool, const SoftmaxBackwardParams& p) {
  if (p.keys == 0) return;
  const hn::ScalableTag<T> d;
  parallel_for_range(pool, p.rows, rows_per_block(p.keys), [&](int64_t begin, int64_t end) {
    const auto scale = hn::Set(d, static_cast<T>(p.scale));
    for (int64_t row = begin; row < end; ++row) {
      const T* y = static_cast<const T*>(p.y) + row * p.keys;
      const T* dy = static_cast<const T*>(p.dy) + row * p.keys;
      T* dx = static_cast<T*>(p.dx) + row * p.keys;
      VectorOf<T> sum[2];
      sum[0] = sum[1] = hn::Zero(d);
      for_columns<T>(p.keys, [&](const auto& columns, auto k) TRAFO_INLINE_LAMBDA {
        sum[k] = hn::MulAdd(columns.load(y), columns.load(dy), sum[k]);
      });
      const auto mean = hn::Set(d, reduce_sum(d, hn::Add(sum[0], sum[1])));
      for_columns<T>(p.keys, [&](const auto& columns, auto) TRAFO_INLINE_LAMBDA {
        const auto v = hn::Mul(hn::Mul(scale, columns.load(y)), hn::Sub(columns.load(dy), mean));
        put<T>(columns, v, dx, p.accumulate);
      });
    }
  });
}

void softmax_forward_simd(ThreadPool& pool, const SoftmaxForwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { forward<decltype(zero)>(pool, p); });
}

void softmax_backward_simd(ThreadPool& pool, const SoftmaxBackwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) { backward<decltype(zero)>(pool, p); });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(softmax_forward, SoftmaxForwardParams)
TRAFO_CPU_KERNEL(softmax_backward, SoftmaxBackwardParams)

}  // namespace trafo
#endif
