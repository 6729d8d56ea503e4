#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/binary/binary_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/simd-inl.h"

#include "engine/backend/cpu/thread_pool.h"
#include "engine/ops/binary/binary.h"

#ifndef TRAFO_BINARY_CPU_LAYOUT
#define TRAFO_BINARY_CPU_LAYOUT
namespace trafo {
namespace {

constexpr int64_t kBinaryGrain = 1 << 14;  // elements a block

// The index space with dimensions of size 1 dropped and neighbours merged; rows run along the last
// one.
struct BinaryLayout {
  int rank = 0;
  int64_t shape[kMaxRank];
  int64_t a[kMaxRank];
  int64_t b[kMaxRank];
  int64_t width() const { return shape[rank - 1]; }
  int64_t a_step() const { return a[rank - 1]; }
  int64_t b_step() const { return b[rank - 1]; }
};

template <class Params>
BinaryLayout binary_layout(const Params& p) {
  BinaryLayout out;
  for (int i = 0; i < p.rank; ++i) {
    if (p.shape[i] == 1) continue;
    const int last = out.rank - 1;
    if (last >= 0 && out.a[last] == p.a_strides[i] * p.shape[i] &&
        out.b[last] == p.b_strides[i] * p.shape[i]) {
      out.shape[last] *= p.shape[i];
      out.a[last] = p.a_strides[i];
      out.b[last] = p.b_strides[i];
    } else {
      out.shape[out.rank] = p.shape[i];
      out.a[out.rank] = p.a_strides[i];
      out.b[out.rank++] = p.b_strides[i];
    }
  }
  if (out.rank == 0) {
    out.rank = 1;
    out.shape[0] = 1;
    out.a[0] = out.b[0] = 1;
  }
  return out;
}

// fn(a offset, b offset, out offset, count) for pieces of rows that cover everything.
template <class F>
void for_each_row(ThreadPool& pool, const BinaryLayout& layout, F&& fn) {
  const int last = layout.rank - 1;
  const int64_t width = layout.width();
  int64_t rows = 1;
  for (int i = 0; i < last; ++i) rows *= layout.shape[i];
  if (rows == 0 || width == 0) return;
  if (width >= kBinaryGrain) {  // long rows are cut
    const int64_t pieces = (width - 1) / kBinaryGrain + 1;
    pool.parallel_for(rows * pieces, [&](int64_t item) {
      int64_t rest = item / pieces, a = 0, b = 0;
      const int64_t row = rest, begin = item % pieces * kBinaryGrain;
      for (int i = last - 1; i >= 0; --i) {
        a += rest % layout.shape[i] * layout.a[i];
        b += rest % layout.shape[i] * layout.b[i];
        rest /= layout.shape[i];
      }
      fn(a + begin * layout.a_step(), b + begin * layout.b_step(), row * width + begin,
         std::min(kBinaryGrain, width - begin));
    });
    return;
  }
  parallel_for_range(pool, rows, std::max<int64_t>(1, kBinaryGrain / width),
                     [&](int64_t begin, int64_t end) {
                       int64_t index[kMaxRank] = {}, a = 0, b = 0, rest = begin;
                       for (int i = last - 1; i >= 0; --i) {
                         index[i] = rest % layout.shape[i];
                         rest /= layout.shape[i];
                         a += index[i] * layout.a[i];
                         b += index[i] * layout.b[i];
                       }
                       for (int64_t row = begin; row < end; ++row) {
                         fn(a, b, row * width, width);
                         for (int i = last - 1; i >= 0; --i) {  // the odometer
                           a += layout.a[i];
                           b += layout.b[i];
                           if (++index[i] < layout.shape[i]) break;
                           index[i] = 0;
                           a -= layout.shape[i] * layout.a[i];
                           b -= layout.shape[i] * layout.b[i];
                         }
                       }
                     });
}

}  // namespace
}  // namespace trafo
#endif

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// a where b is not 0, else 0.
template <class V>
HWY_INLINE V select(V a, V b) {
  return hn::IfThenZeroElse(hn::Eq(b, hn::Zero(hn::DFromV<V>())), a);
}

template <BinaryKind kind>
struct Apply {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (kind == BinaryKind::add) return hn::Add(a, b);
    if constexpr (kind == BinaryKind::subtract) return hn::Sub(a, b);
    if constexpr (kind == BinaryKind::multiply) return hn::Mul(a, b);
    if constexpr (kind == BinaryKind::divide) return hn::Div(a, b);
    if constexpr (kind == BinaryKind::select) return select(a, b);
  }
};

// Lanes i .. i + count - 1 of an operand with any step.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_step(D d, const T* x, int64_t step, int64_t i, int64_t count) {
  if (step == 1) return count == lanes(d) ? hn::LoadU(d, x + i) : load_n(d, x + i, count);
  if (step == 0) return hn::Set(d, x[0]);
  HWY_ALIGN T lane[hn::MaxLanes(D())] = {};
  for (int64_t j = 0; j < count; ++j) lane[j] = x[(i + j) * step];
  return hn::Load(d, lane);
}

template <class T, class F>
HWY_INLINE void binary_row(const T* a, int64_t a_step, const T* b, int64_t b_step, T* out,
                           int64_t count, F f) {
  const hn::ScalableTag<T> d;
  if (a_step == 1 && b_step == 1)
    return map(a, b, out, count, [f](auto, auto x, auto y) { return f(x, y); });
  if (a_step == 1 && b_step == 0) {
    const auto y = hn::Set(d, *b);
    return map(a, out, count, [f, y](auto, auto x) { return f(x, y); });
  }
  if (a_step == 0 && b_step == 1) {
    const auto x = hn::Set(d, *a);
    return map(b, out, count, [f, x](auto, auto y) { return f(x, y); });
  }
  for (int64_t i = 0; i < count; i += lanes(d)) {
    const int64_t rest = std::min(lanes(d), count - i);
    store_n(f(load_step(d, a, a_step, i, rest), load_step(d, b, b_step, i, rest)), d, out + i,
            rest);
  }
}

template <class T, BinaryKind kind>
void forward(ThreadPool& pool, const BinaryForwardParams& p) {
  const BinaryLayout layout = binary_layout(p);
  const T* a = static_cast<const T*>(p.a);
  const T* b = static_cast<const T*>(p.b);
  T* out = static_cast<T*>(p.out);
  for_each_row(pool, layout, [&](int64_t at_a, int64_t at_b, int64_t at, int64_t count) {
    binary_row(a + at_a, layout.a_step(), b + at_b, layout.b_step(), out + at, count,
               Apply<kind>());
  });
}

// multiply: da = g b, db = g a. divide: da = g / b, db = -g a / b^2. select: da = select(g, b).
template <class T, BinaryKind kind>
void backward(ThreadPool& pool, const BinaryBackwardParams& p) {
  const hn::ScalableTag<T> d;
  const BinaryLayout layout = binary_layout(p);
  const T* a = static_cast<const T*>(p.a);
  const T* b = static_cast<const T*>(p.b);
  const T* dout = static_cast<const T*>(p.dout);
  T* da = static_cast<T*>(p.da);
  T* db = static_cast<T*>(p.db);
  for_each_row(pool, layout, [&](int64_t at_a, int64_t at_b, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; i += lanes(d)) {
      const int64_t rest = std::min(lanes(d), count - i);
      const auto g = load_step(d, dout + at, 1, i, rest);
      const auto y = load_step(d, b + at_b, layout.b_step(), i, rest);
      if constexpr (kind == BinaryKind::select) {
        store_n(select(g, y), d, da + at + i, rest);
      } else if constexpr (kind == BinaryKind::multiply) {
        if (da) store_n(hn::Mul(g, y), d, da + at + i, rest);
        if (db)
          store_n(hn::Mul(g, load_step(d, a + at_a, layout.a_step(), i, rest)), d, db + at + i,
                  rest);
      } else {
        const auto quotient = hn::Div(g, y);
        if (da) store_n(quotient, d, da + at + i, rest);
        if (db) {
          const auto x = load_step(d, a + at_a, layout.a_step(), i, rest);
          store_n(hn::Neg(hn::Mul(quotient, hn::Div(x, y))), d, db + at + i, rest);
        }
      }
    }
  });
}

void binary_forward_simd(ThreadPool& pool, const BinaryForwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    switch (p.kind) {
      case BinaryKind::add:
        return forward<T, BinaryKind::add>(pool, p);
      case BinaryKind::subtract:
        return forward<T, BinaryKind::subtract>(pool, p);
      case BinaryKind::multiply:
        return forward<T, BinaryKind::multiply>(pool, p);
      case BinaryKind::divide:
        return forward<T, BinaryKind::divide>(pool, p);
      case BinaryKind::select:
        return forward<T, BinaryKind::select>(pool, p);
    }
  });
}

void binary_backward_simd(ThreadPool& pool, const BinaryBackwardParams& p) {
  with_compute_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    switch (p.kind) {
      case BinaryKind::multiply:
        return backward<T, BinaryKind::multiply>(pool, p);
      case BinaryKind::divide:
        return backward<T, BinaryKind::divide>(pool, p);
      case BinaryKind::select:
        return backward<T, BinaryKind::select>(pool, p);
      default:
        fail(ErrorCode::unsupported, "binary", "the gradients of a sum are its upstream gradient");
    }
  });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(binary_forward, BinaryForwardParams)
TRAFO_CPU_KERNEL(binary_backward, BinaryBackwardParams)

}  // namespace trafo
#endif
