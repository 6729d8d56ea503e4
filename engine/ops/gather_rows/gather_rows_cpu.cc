#include "engine/ops/gather_rows/gather_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "engine/backend/cpu/thread_pool.h"

namespace trafo {
namespace {

constexpr int64_t kBlockBytes =
    64 << 10;  // of one block of work: a few rows, or a piece of a long one

}  // namespace

void gather_rows_cpu(ThreadPool& pool, const GatherRowsParams& p) {
  for (int64_t i = 0; i < p.rows; ++i)
    require(p.index[i] >= 0 && p.index[i] < p.x_rows, ErrorCode::invalid_argument, "gather_rows",
            "index ", i, " is ", p.index[i], ", x has rows 0 .. ", p.x_rows - 1);
  const int64_t size = static_cast<int64_t>(dtype_size(p.dtype));
  const int64_t bytes = p.width * size;
  if (bytes == 0 || p.rows == 0) return;
  const auto* x = static_cast<const std::byte*>(p.x);
  auto* out = static_cast<std::byte*>(p.out);
  const int64_t x_stride = p.x_stride * size;
  const int64_t out_stride = p.out_stride * size;

  if (bytes >= kBlockBytes) {
    const int64_t pieces = (bytes - 1) / kBlockBytes + 1;
    pool.parallel_for(p.rows * pieces, [&](int64_t block) {
      const int64_t row = block / pieces;
      const int64_t begin = block % pieces * kBlockBytes;
      std::memcpy(out + row * out_stride + begin, x + p.index[row] * x_stride + begin,
                  static_cast<size_t>(std::min(kBlockBytes, bytes - begin)));
    });
    return;
  }
  parallel_for_range(pool, p.rows, kBlockBytes / bytes, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      std::memcpy(out + row * out_stride, x + p.index[row] * x_stride, static_cast<size_t>(bytes));
  });
}

}  // namespace trafo
