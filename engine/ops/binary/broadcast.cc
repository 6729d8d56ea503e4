#include "engine/ops/binary/broadcast.h"

#include <algorithm>

#include "engine/core/shape_text.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"

namespace trafo {

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape shape;
  for (int i = 0; i < rank; ++i) {
    const int at_a = i - (rank - a.rank()), at_b = i - (rank - b.rank());
    const int64_t size_a = at_a < 0 ? 1 : a[at_a], size_b = at_b < 0 ? 1 : b[at_b];
    require(size_a == size_b || size_a == 1 || size_b == 1, ErrorCode::shape_mismatch, op,
            "shapes ", a, " and ", b, " do not broadcast");
    shape.push_back(size_a == 1 ? size_b : size_a);
  }
  return shape;
}

void broadcast_strides(const Tensor& x, const Shape& shape, int64_t* strides) {
  const int lead = shape.rank() - x.rank();
  for (int i = 0; i < shape.rank(); ++i)
    strides[i] = i < lead || x.shape()[i - lead] == 1 ? 0 : x.strides()[i - lead];
}

Tensor sum_to_shape(Context& context, const char* op, Tensor grad, const Shape& to) {
  const Shape from = grad.shape();
  if (from == to) return grad;
  const int lead = from.rank() - to.rank();
  const auto repeated = [&](int i) { return i < lead || (to[i - lead] == 1 && from[i] != 1); };
  Shape now = from;  // with summed dimensions at size 1
  for (int i = 0; i < from.rank();) {
    if (!repeated(i)) {
      ++i;
      continue;
    }
    ReduceForwardParams params{};
    params.dtype = grad.dtype();
    params.kind = ReduceKind::sum;
    params.outer = params.size = params.inner = 1;
    for (int j = 0; j < i; ++j) params.outer *= now[j];
    for (; i < from.rank() && repeated(i); ++i) {
      params.size *= now[i];
      now[i] = 1;
    }
    for (int j = i; j < from.rank(); ++j) params.inner *= now[j];
    const Tensor summed = context.empty(now, grad.dtype());
    params.x = grad.raw();
    params.y = summed.raw();
    launch(context, OpKernel::reduce_forward, op, params);
    grad = summed;
  }
  return grad.reshaped(to);
}

}  // namespace trafo
