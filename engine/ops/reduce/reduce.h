// Sum, mean and maximum over dimensions or over everything.
//
// Fixed partitions: the result does not depend on the number of threads. The sum over an empty
// dimension is 0; its mean and maximum are errors. The gradient of the maximum goes to its first
// occurrence.
#pragma once

#include <span>

#include "engine/runtime/context.h"

namespace trafo {

enum class ReduceKind : int32_t { sum = 0, mean = 1, max = 2 };

// x [outer, size, inner] contiguous -> y [outer, inner].
struct ReduceForwardParams {
  DType dtype;
  ReduceKind kind;
  int64_t outer, size, inner;
  const void* x;
  void* y;
};

struct ReduceBackwardParams {
  DType dtype;
  ReduceKind kind;
  bool accumulate;
  int64_t outer, size, inner;
  const void* x;  // max only
  const void* y;  // max only
  const void* dy;
  void* dx;
};

// out[width] (+)= sum over rows of x [rows, width]: bias gradients. Fixed row partition. `dtype` is
// the dtype of x, out is stat_dtype(dtype).
struct ColumnSumParams {
  DType dtype;
  bool accumulate;
  int64_t rows, width;
  const void* x;
  void* out;
};

namespace ops {

Tensor sum(Context& context, const Tensor& x);   // -> shape [1]
Tensor mean(Context& context, const Tensor& x);  // -> shape [1]
Tensor sum(Context& context, const Tensor& x, int dim, bool keep_dim = false);
Tensor mean(Context& context, const Tensor& x, int dim, bool keep_dim = false);
Tensor max(Context& context, const Tensor& x, int dim, bool keep_dim = false);
// Over several dimensions, each given once, negative ones counted from the end; none means all of
// them. keep_dim leaves a dimension of size 1 in the place of each.
Tensor sum(Context& context, const Tensor& x, std::span<const int> dims, bool keep_dim = false);
Tensor mean(Context& context, const Tensor& x, std::span<const int> dims, bool keep_dim = false);
Tensor max(Context& context, const Tensor& x, std::span<const int> dims, bool keep_dim = false);
Tensor min(Context& context, const Tensor& x, std::span<const int> dims, bool keep_dim = false);

}  // namespace ops
}  // namespace trafo
