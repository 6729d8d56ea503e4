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
  for (int64_t i = 0; p.out_index && i < p.rows; ++i)
    require(p.out_index[i] >= 0 && p.out_index[i] < p.out_rows, ErrorCode::invalid_argument,
            "gather_rows", "index ", i, " of out is ", p.out_index[i], ", out has rows 0 .. ",
            p.out_rows - 1);
  const int64_t size = static_cast<int64_t>(dtype_size(p.dtype));
  const int64_t bytes = p.width * size;
  if (bytes == 0 || p.rows == 0 || p.planes == 0) return;
  const auto* x = static_cast<const std::byte*>(p.x);
  auto* out = static_cast<std::byte*>(p.out);
  // Row `item % rows` of plane `item / rows`.
  const auto copy = [&](int64_t item, int64_t begin, int64_t count) {
    const int64_t plane = item / p.rows, row = item % p.rows;
    const int64_t to = p.out_index ? p.out_index[row] : row;
    std::memcpy(out + (plane * p.out_plane_stride + to * p.out_stride) * size + begin,
                x + (plane * p.x_plane_stride + p.index[row] * p.x_stride) * size + begin,
                static_cast<size_t>(count));
  };
  const int64_t items = p.planes * p.rows;
  if (bytes >= kBlockBytes) {
    const int64_t pieces = (bytes - 1) / kBlockBytes + 1;
    pool.parallel_for(items * pieces, [&](int64_t block) {
      const int64_t begin = block % pieces * kBlockBytes;
      copy(block / pieces, begin, std::min(kBlockBytes, bytes - begin));
    });
    return;
  }
  parallel_for_range(pool, items, kBlockBytes / bytes, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) copy(item, 0, bytes);
  });
}

}  // namespace trafo
