// Elementwise functions of one tensor. Backward uses the input or the output, whichever is cheaper.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

enum class UnaryKind : int32_t {
  scale = 0,
  exp = 1,
  log = 2,
  sqrt = 3,
  tanh = 4,
  sigmoid = 5,
  shift = 6,
  soft_cap = 7
};

struct UnaryForwardParams {
  DType dtype;
  UnaryKind kind;
  double
      factor;  // scale: y = factor x; shift: y = x + factor; soft_cap: y = factor tanh(x / factor)
  int64_t count;
  const void* x;
  void* y;  // may be the memory of x
};

struct UnaryBackwardParams {
  DType dtype;
  UnaryKind kind;
  double factor;
  bool accumulate;
  int64_t count;
  const void* x;
  const void* y;
  const void* dy;
  void* dx;  // may be the memory of dy
};

namespace ops {

Tensor scale(Context& context, const Tensor& x, double factor);
Tensor shift(Context& context, const Tensor& x, double amount);
Tensor exp(Context& context, const Tensor& x);
Tensor log(Context& context, const Tensor& x);
Tensor sqrt(Context& context, const Tensor& x);
Tensor tanh(Context& context, const Tensor& x);
Tensor sigmoid(Context& context, const Tensor& x);
// cap tanh(x / cap), cap > 0: between -cap and cap, and near 0 as x.
Tensor soft_cap(Context& context, const Tensor& x, double cap);

}  // namespace ops
}  // namespace trafo
