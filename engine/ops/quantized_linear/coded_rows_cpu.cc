// The definition of coded_rows, for tests.
#include <vector>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/core/status.h"
#include "engine/ops/quantized_linear/quantized_linear.h"

namespace trafo {

namespace {

constexpr int64_t kCodedRowsGrain = 8;  // rows of W a block

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
        static_cast<T*>(p.y)[token * p.rows + row] = bias ? sum + bias[row] : sum;
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
