#include "engine/optim/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/optim/factored_update_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/simd-inl.h"

#include <algorithm>
#include <cmath>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/core/numeric/portable_math.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, const float* x) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), x));
}

// Adds x[j]^2 to sums[j]; returns their sum.
double add_squares_simd(const float* x, int64_t count, double* sums) {
  const hn::ScalableTag<double> d;
  auto total = hn::Zero(d);
  int64_t j = 0;
  for (; j + lanes(d) <= count; j += lanes(d)) {
    const auto value = load_wide(d, x + j);
    const auto square = hn::Mul(value, value);
    hn::StoreU(hn::Add(hn::LoadU(d, sums + j), square), d, sums + j);
    total = hn::Add(total, square);
  }
  double sum = reduce_sum(d, total);
  for (; j < count; ++j) {
    const double square = static_cast<double>(x[j]) * static_cast<double>(x[j]);
    sums[j] += square;
    sum += square;
  }
  return sum;
}

// The sum of (x[j] factors[j])^2.
double scaled_squares_simd(const float* x, const float* factors, int64_t count) {
  const hn::ScalableTag<double> d;
  auto total = hn::Zero(d);
  int64_t j = 0;
  for (; j + lanes(d) <= count; j += lanes(d)) {
    const auto value = hn::Mul(load_wide(d, x + j), load_wide(d, factors + j));
    total = hn::MulAdd(value, value, total);
  }
  double sum = reduce_sum(d, total);
  for (; j < count; ++j) {
    const double value = static_cast<double>(x[j]) * static_cast<double>(factors[j]);
    sum += value * value;
  }
  return sum;
}

// x[j] *= scale factors[j].
void scale_by_factors_simd(float* x, float scale, const float* factors, int64_t count) {
  map(x, factors, x, count, [&](auto d, auto value, auto factor) {
    return hn::Mul(hn::Mul(value, factor), hn::Set(d, scale));
  });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

void sum_of_squares_cpu(ThreadPool& pool, const SumOfSquaresParams& p);
void apply_direction_cpu(ThreadPool& pool, const ApplyDirectionParams& p);

HWY_EXPORT(add_squares_simd);
HWY_EXPORT(scaled_squares_simd);
HWY_EXPORT(scale_by_factors_simd);

namespace {

double add_squares(const float* x, int64_t count, double* sums) {
  return HWY_DYNAMIC_DISPATCH(add_squares_simd)(x, count, sums);
}
double scaled_squares(const float* x, const float* factors, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(scaled_squares_simd)(x, factors, count);
}
void scale_by_factors(float* x, float scale, const float* factors, int64_t count) {
  HWY_DYNAMIC_DISPATCH(scale_by_factors_simd)(x, scale, factors, count);
}
// Of float64 models, which are for tests.
double add_squares(const double* x, int64_t count, double* sums) {
  double sum = 0;
  for (int64_t j = 0; j < count; ++j) {
    sums[j] += x[j] * x[j];
    sum += x[j] * x[j];
  }
  return sum;
}
double scaled_squares(const double* x, const double* factors, int64_t count) {
  double sum = 0;
  for (int64_t j = 0; j < count; ++j) sum += x[j] * factors[j] * x[j] * factors[j];
  return sum;
}
void scale_by_factors(double* x, double scale, const double* factors, int64_t count) {
  for (int64_t j = 0; j < count; ++j) x[j] *= factors[j] * scale;
}

// All sums are in double, in an order that depends on the shape alone.
template <class T>
class FactoredUpdate {
 public:
  FactoredUpdate(ThreadPool& pool, const FactoredUpdateParams& p)
      : pool_(pool),
        p_(p),
        rule_(p.state.rules.adafactor),
        step_(p.record ? p.record->updates : p.step),
        blocks_(factored_blocks(p.rows, p.columns)),
        gradient_(static_cast<const T*>(p.gradient)),
        column_sums_(p.buffer),
        block_sums_(column_sums_ + blocks_.count * p.columns),
        row_factors_(block_sums_ + blocks_.count),
        column_factors_(reinterpret_cast<T*>(row_factors_ + p.rows)) {}

  void run() {
    double learning_rate = p_.record ? p_.record->learning_rate : p_.learning_rate;
    if (rule_.scale_parameter) {
      double squares = 0;
      sum_of_squares_cpu(pool_, {p_.state.dtype, p_.rows * p_.columns, p_.parameter, &squares});
      learning_rate *= std::max(rule_.scale_epsilon, root_mean(squares));
    }
    sum_squares();
    update_moments();
    const double size = root_mean(scaled_squares_of_all());
    make_direction();
    apply_direction_cpu(
        pool_, {p_.state, p_.state.grad, 1 / std::max(1.0, size / rule_.clip_threshold), nullptr,
                learning_rate, step_});
  }

 private:
  template <class Sum>
  void for_each_block(Sum sum) {
    pool_.parallel_for(blocks_.count, [&](int64_t block) {
      const int64_t begin = block * blocks_.rows;
      sum(block, begin, std::min(p_.rows, begin + blocks_.rows));
    });
  }
  double root_mean(double squares) const {
    return std::sqrt(squares / static_cast<double>(p_.rows * p_.columns));
  }

  // Of rows and columns of the gradient.
  void sum_squares() {
    for_each_block([&](int64_t block, int64_t begin, int64_t end) {
      double* const columns = column_sums_ + block * p_.columns;
      std::fill_n(columns, p_.columns, 0.0);
      for (int64_t row = begin; row < end; ++row)
        row_factors_[row] = add_squares(gradient_ + row * p_.columns, p_.columns, columns);
    });
  }

  // The moments, and the factors of rows and columns.
  void update_moments() {
    const double fresh = portable_exp(rule_.decay_rate * portable_log(static_cast<double>(step_)));
    const auto moment = [&](T& old, double mean) {
      old = static_cast<T>((1 - fresh) * static_cast<double>(old) +
                           fresh * (mean + rule_.square_epsilon));
      return static_cast<double>(old);
    };
    T* const rows = static_cast<T*>(p_.row_moments);
    T* const columns = static_cast<T*>(p_.column_moments);
    double sum = 0;
    for (int64_t row = 0; row < p_.rows; ++row)
      sum += moment(rows[row], row_factors_[row] / static_cast<double>(p_.columns));
    const double mean = sum / static_cast<double>(p_.rows);
    for (int64_t row = 0; row < p_.rows; ++row)
      row_factors_[row] = std::sqrt(mean / static_cast<double>(rows[row]));
    constexpr int64_t kColumns = 4096;
    parallel_for_range(pool_, p_.columns, kColumns, [&](int64_t begin, int64_t end) {
      for (int64_t column = begin; column < end; ++column) {
        double squares = 0;
        for (int64_t block = 0; block < blocks_.count; ++block)
          squares += column_sums_[block * p_.columns + column];
        column_factors_[column] = static_cast<T>(
            1 / std::sqrt(moment(columns[column], squares / static_cast<double>(p_.rows))));
      }
    });
  }

  // Of U.
  double scaled_squares_of_all() {
    for_each_block([&](int64_t block, int64_t begin, int64_t end) {
      double squares = 0;
      for (int64_t row = begin; row < end; ++row)
        squares += row_factors_[row] * row_factors_[row] *
                   scaled_squares(gradient_ + row * p_.columns, column_factors_, p_.columns);
      block_sums_[block] = squares;
    });
    double total = 0;
    for (int64_t block = 0; block < blocks_.count; ++block) total += block_sums_[block];
    return total;
  }

  // U in the place of the gradient of the elements that change.
  void make_direction() {
    T* const grad = static_cast<T*>(p_.state.grad);
    parallel_for_range(pool_, p_.state.count, kSquaresElements, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end;) {
        const int64_t row = (p_.first + i) / p_.columns, column = (p_.first + i) % p_.columns;
        const int64_t count = std::min(end - i, p_.columns - column);
        scale_by_factors(grad + i, static_cast<T>(row_factors_[row]), column_factors_ + column,
                         count);
        i += count;
      }
    });
  }

  ThreadPool& pool_;
  const FactoredUpdateParams& p_;
  const AdafactorRule& rule_;
  int64_t step_;
  FactoredBlocks blocks_;
  const T* gradient_;
  double* column_sums_;  // [blocks, columns]
  double* block_sums_;   // [blocks]
  double* row_factors_;  // [rows], sums of squares at first
  T* column_factors_;    // [columns]
};

}  // namespace

void factored_update_cpu(ThreadPool& pool, const FactoredUpdateParams& p) {
  if (p.record && !p.record->applied) return;
  if (p.state.dtype == DType::f64)
    FactoredUpdate<double>(pool, p).run();
  else
    FactoredUpdate<float>(pool, p).run();
}

}  // namespace trafo
#endif
