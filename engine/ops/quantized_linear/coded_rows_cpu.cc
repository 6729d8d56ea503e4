// The definition of coded_rows, for tests.
#include <vector>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/core/status.h"
#include "engine/ops/quantized_linear/quantized_linear.h"

namespace trafo {

namespace {

constexpr int64_t kCodedRowsGrain = 8;  // rows of W a block

template <class T>
T term_of(const CodedTerm& term, int64_t token, int64_t row) {
  const auto* up = static_cast<const T*>(term.up);
  const T* d = static_cast<const T*>(term.d) + token * term.ranges * term.rank;
  T sum = 0;
  for (int i = 0; i < term.ranges; ++i, d += term.rank) {
    const int64_t within = row - term.first[i];
    if (within >= 0 && within < term.count[i])
      for (int64_t k = 0; k < term.rank; ++k) sum += d[k] * up[within * term.rank + k];
    up += term.count[i] * term.rank;
  }
  return static_cast<T>(term.scale) * sum;
}

template <class T>
void multiply_coded_rows(ThreadPool& pool, const CodedRowsParams& p) {
  const auto* x = static_cast<const T*>(p.x);
  const auto* bias = static_cast<const T*>(p.bias);
  parallel_for_range(pool, p.rows, kCodedRowsGrain, [&](int64_t begin, int64_t end) {
    std::vector<T> values(static_cast<size_t>(p.columns));
    for (int64_t row = begin; row < end; ++row) {
      decode_base(p.precision, static_cast<const std::byte*>(p.bytes), p.rows, p.columns,
                  {row, 0, 1, p.columns}, values.data());
      for (int64_t token = 0; token < p.tokens; ++token) {
        T sum = 0;
        for (int64_t c = 0; c < p.columns; ++c)
          sum += values[static_cast<size_t>(c)] * x[token * p.columns + c];
        if (bias) sum += bias[row];
        if (p.term.d) sum += term_of<T>(p.term, token, row);
        static_cast<T*>(p.y)[token * p.rows + row] = sum;
      }
    }
  });
}

}  // namespace

void coded_rows_cpu(ThreadPool& pool, const CodedRowsParams& p) {
  if (p.dtype == DType::f64) return multiply_coded_rows<double>(pool, p);
  require(p.dtype == DType::f32, ErrorCode::dtype_mismatch, "coded_rows", "the CPU has no rows of ",
          dtype_name(p.dtype));
  multiply_coded_rows<float>(pool, p);
}

}  // namespace trafo
