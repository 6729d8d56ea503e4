#include <algorithm>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/core/status.h"
#include "engine/ops/quantized_linear/quantized_linear.h"

namespace trafo {
namespace {

constexpr int64_t kDequantizeGrain = 1 << 14;  // elements a block

template <class T>
void dequantize_rows(ThreadPool& pool, const DequantizeParams& p) {
  const MatrixTile& part = p.part;
  const int64_t rows = std::max<int64_t>(1, kDequantizeGrain / std::max<int64_t>(1, part.columns));
  parallel_for_range(pool, part.rows, rows, [&](int64_t begin, int64_t end) {
    decode_base(p.precision, static_cast<const std::byte*>(p.bytes), p.rows, p.columns,
                {part.row + begin, part.column, end - begin, part.columns},
                static_cast<T*>(p.values) + begin * part.columns);
  });
}

}  // namespace

void dequantize_cpu(ThreadPool& pool, const DequantizeParams& p) {
  if (p.to == DType::f64) return dequantize_rows<double>(pool, p);
  require(p.to == DType::f32, ErrorCode::dtype_mismatch, "dequantize", "the CPU has no values of ",
          dtype_name(p.to));
  dequantize_rows<float>(pool, p);
}

}  // namespace trafo
