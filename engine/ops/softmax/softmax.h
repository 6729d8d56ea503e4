// y = softmax(scale * x) over the last dimension under a padding mask and a future mask, together.
//
// x [batch, heads, queries, keys] (or fewer dimensions: leading ones count as 1). padding_mask
// [batch, keys] int32: non-zero marks a masked key. causal: key j is masked for query
// i when j > i + keys - queries (the last query sees every key). A row with every key masked is all
// zeros and passes no gradient. Any length. dx = scale * y (dy - sum dy y).
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

struct SoftmaxForwardParams {
  DType dtype;
  double scale;
  bool causal;
  int64_t batch, heads, queries, keys;
  const void* x;
  const int32_t* padding_mask;  // [batch, keys] or null
  void* y;
};

struct SoftmaxBackwardParams {
  DType dtype;
  double scale;
  bool accumulate;
  int64_t rows, keys;
  const void* y;
  const void* dy;
  void* dx;
};

namespace ops {

struct SoftmaxOptions {
  double scale = 1;
  bool causal = false;
  Tensor padding_mask;
};

Tensor softmax(Context& context, const Tensor& x, const SoftmaxOptions& options = {});
Tensor softmax_reference(Context& context, const Tensor& x, const SoftmaxOptions& options);
// softmax(x) over the last dimension from simpler ops. `visible` is broadcastable against x, with
// the last dimension of x: 1 where an element counts, 0 where it is masked. Undefined: all count.
Tensor masked_softmax(Context& context, const Tensor& x, const Tensor& visible);

}  // namespace ops
}  // namespace trafo
