#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <vector>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/core/strided_layout.h"
#include "engine/ops/along_dim/along_dim.h"

namespace trafo {

void gather_forward_cpu(ThreadPool& pool, const GatherForwardParams& p);
void gather_backward_cpu(ThreadPool& pool, const GatherBackwardParams& p);
void cumulative_sum_forward_cpu(ThreadPool& pool, const CumulativeSumForwardParams& p);
void cumulative_sum_backward_cpu(ThreadPool& pool, const CumulativeSumBackwardParams& p);
void largest_cpu(ThreadPool& pool, const LargestParams& p);

namespace {

constexpr int64_t kGrain = 1 << 12;  // elements a block

// fn(zero of the element type).
template <class Fn>
void with_type(const char* op, DType dtype, Fn&& fn) {
  if (dtype == DType::f32) return fn(float{});
  if (dtype == DType::f64) return fn(double{});
  if (dtype == DType::i32) return fn(int32_t{});
  fail(ErrorCode::dtype_mismatch, op, "the CPU computes with float32 and float64");
}

// Where element i of the index space lies in each operand.
template <int kOperands>
std::array<int64_t, kOperands> locate(const StridedLayout<kOperands>& layout, int64_t i) {
  std::array<int64_t, kOperands> at{};
  for (int d = layout.rank - 1; d >= 0; --d) {
    const int64_t index = i % layout.shape[d];
    i /= layout.shape[d];
    for (size_t k = 0; k < kOperands; ++k) at[k] += index * layout.strides[k][d];
  }
  return at;
}

void check_place(const char* op, int64_t place, int64_t number, int64_t size) {
  require(place >= 0 && place < size, ErrorCode::invalid_argument, op, "element ", number,
          " of index is ", place, ", the dimension has ", size, " elements");
}

template <class T>
void gather(ThreadPool& pool, const GatherForwardParams& p) {
  const auto layout = strided_layout<1>(p.rank, p.shape, {p.x_strides});
  const T* x = static_cast<const T*>(p.x);
  T* out = static_cast<T*>(p.out);
  parallel_for_range(pool, layout.count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      check_place("gather", p.index[i], i, p.x_size);
      out[i] = x[locate(layout, i)[0] + p.index[i] * p.x_step];
    }
  });
}

// T: float or double; int32_t writes numbers.
template <class T>
void place(ThreadPool& pool, const GatherBackwardParams& p) {
  const auto layout = strided_layout<2>(p.rank, p.shape, {p.out_strides, p.index_strides});
  const T* dout = static_cast<const T*>(p.dout);
  T* out = static_cast<T*>(p.out);
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, p.index_size));
  parallel_for_range(pool, layout.count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end; ++column) {
      const auto [to, from] = locate(layout, column);
      for (int64_t i = 0; i < p.index_size; ++i) {
        const int64_t number = from + i * p.index_step, at = p.index[number];
        check_place("scatter", at, number, p.out_size);
        T& target = out[to + at * p.out_step];
        if constexpr (std::is_floating_point_v<T>)
          target += dout[number];
        else
          target = static_cast<int32_t>(number + 1);
      }
    }
  });
}

// Sums of float32 are kept in float64, sums of int32 wrap around.
template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, int32_t>, uint32_t, double>;

template <class T>
void cumulative_sum(ThreadPool& pool, const CumulativeSumForwardParams& p) {
  const T* x = static_cast<const T*>(p.x);
  T* y = static_cast<T*>(p.y);
  if (p.size == 0) return;
  const int64_t grain = std::max<int64_t>(1, kGrain / p.size);
  parallel_for_range(pool, p.outer * p.inner, grain, [&](int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end; ++column) {
      const int64_t first = column / p.inner * p.size * p.inner + column % p.inner;
      SumOf<T> sum = 0;
      for (int64_t i = 0; i < p.size; ++i) {
        const int64_t at = first + (p.reverse ? p.size - 1 - i : i) * p.inner;
        sum += static_cast<SumOf<T>>(x[at]);
        y[at] = static_cast<T>(sum);
      }
    }
  });
}

// True if a comes before b, whatever their numbers.
bool before(double a, double b, bool smallest) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
  return smallest ? a < b : a > b;
}

// The numbers of the first k of `values`, in order; `order` has room for all.
void sort_numbers(const std::vector<double>& values, int64_t k, bool smallest,
                  std::vector<int32_t>& order) {
  std::iota(order.begin(), order.end(), 0);
  const auto comes_first = [&](int32_t i, int32_t j) {
    const double a = values[static_cast<size_t>(i)], b = values[static_cast<size_t>(j)];
    if (before(a, b, smallest)) return true;
    return !before(b, a, smallest) && i < j;
  };
  if (k == 1)
    order[0] = *std::min_element(order.begin(), order.end(), comes_first);
  else
    std::partial_sort(order.begin(), order.begin() + k, order.end(), comes_first);
}

// Element i of x as float64, which holds every float32 and int32.
double value_at(DType dtype, const void* x, int64_t i) {
  if (dtype == DType::f64) return static_cast<const double*>(x)[i];
  if (dtype == DType::i32) return static_cast<const int32_t*>(x)[i];
  return static_cast<double>(static_cast<const float*>(x)[i]);
}

}  // namespace

void gather_forward_cpu(ThreadPool& pool, const GatherForwardParams& p) {
  with_type("gather", p.dtype, [&](auto zero) { gather<decltype(zero)>(pool, p); });
}

void gather_backward_cpu(ThreadPool& pool, const GatherBackwardParams& p) {
  with_type("scatter", p.dout ? p.dtype : DType::i32,
            [&](auto zero) { place<decltype(zero)>(pool, p); });
}

void cumulative_sum_forward_cpu(ThreadPool& pool, const CumulativeSumForwardParams& p) {
  with_type("cumsum", p.dtype, [&](auto zero) { cumulative_sum<decltype(zero)>(pool, p); });
}

void cumulative_sum_backward_cpu(ThreadPool& pool, const CumulativeSumBackwardParams& p) {
  cumulative_sum_forward_cpu(pool, {p.dtype, true, p.outer, p.size, p.inner, p.dy, p.dx});
}

void largest_cpu(ThreadPool& pool, const LargestParams& p) {
  require(is_compute(p.dtype) || p.dtype == DType::i32, ErrorCode::dtype_mismatch, "top_k_of",
          "the CPU computes with float32 and float64");
  const int64_t grain = std::max<int64_t>(1, kGrain / p.size);
  parallel_for_range(pool, p.outer * p.inner, grain, [&](int64_t begin, int64_t end) {
    std::vector<double> values(static_cast<size_t>(p.size));
    std::vector<int32_t> order(values.size());
    for (int64_t column = begin; column < end; ++column) {
      const int64_t outer = column / p.inner, inner = column % p.inner;
      for (int64_t i = 0; i < p.size; ++i)
        values[static_cast<size_t>(i)] =
            value_at(p.dtype, p.x, (outer * p.size + i) * p.inner + inner);
      sort_numbers(values, p.k, p.smallest, order);
      for (int64_t i = 0; i < p.k; ++i)
        p.ids[(outer * p.k + i) * p.inner + inner] = order[static_cast<size_t>(i)];
    }
  });
}

}  // namespace trafo
