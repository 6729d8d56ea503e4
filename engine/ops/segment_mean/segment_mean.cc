#include "engine/ops/segment_mean/segment_mean.h"

#include <algorithm>
#include <vector>

#include "engine/ops/along_dim/along_dim.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/host_ints.h"
#include "engine/ops/packed_rows.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {

Tensor segment_mean(Context& context, const Tensor& x, const Tensor& cu_seqlens) {
  constexpr const char* kOp = "segment_mean";
  const OpRange range(context, kOp, x, cu_seqlens);
  check_compute_input(context, kOp, "x", x);
  require(x.rank() >= 1, ErrorCode::shape_mismatch, kOp, "x must be [T, ..], got ", x.shape());
  check_row_numbers(context, kOp, cu_seqlens, "cu_seqlens");
  const int64_t rows = x.dim(0);
  const HostInts bounds(context, cu_seqlens);
  longest_sequence_of(kOp, bounds.span(), "cu_seqlens", rows);

  const auto segments = static_cast<int64_t>(bounds.size()) - 1;
  int64_t width = 1;
  for (int i = 1; i < x.rank(); ++i) width *= x.dim(i);
  std::vector<int32_t> segment_of(static_cast<size_t>(rows));
  std::vector<double> shares(static_cast<size_t>(segments), 0);
  for (int32_t b = 0; b < segments; ++b) {
    const int32_t begin = bounds[static_cast<size_t>(b)], end = bounds[static_cast<size_t>(b) + 1];
    std::fill(segment_of.begin() + begin, segment_of.begin() + end, b);
    if (end > begin) shares[static_cast<size_t>(b)] = 1.0 / (end - begin);
  }
  const Tensor places =
      expand(context, context.from_values<int32_t>(segment_of, {rows, 1}), {rows, width});
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor values = reshape(context, cast(context, x, dtype), {rows, width});
  const Tensor sums =
      scatter_add(context, context.zeros({segments, width}, dtype), 0, places, values);
  const Tensor means = multiply(context, sums, context.from_doubles(shares, {segments, 1}, dtype));
  Shape shape = x.shape();
  shape[0] = segments;
  return cast(context, reshape(context, means, shape), x.dtype());
}

}  // namespace trafo::ops
