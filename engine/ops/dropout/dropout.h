// y = x * mask / (1 - p), the mask drawn from Philox by (seed, step, id, element): see
// core/numeric/philox.h. Nothing is saved for backward; the mask is drawn again.
#pragma once

#include "engine/core/numeric/philox.h"
#include "engine/runtime/context.h"

namespace trafo {

struct DropoutForwardParams {
  DType dtype;
  Dropout dropout;
  int64_t count;
  const void* x;
  void* y;
};

struct DropoutBackwardParams {
  DType dtype;
  Dropout dropout;
  bool accumulate;
  int64_t count;
  const void* dy;
  void* dx;
};

// INVALID_ARGUMENT unless 0 <= p < 1.
void check_dropout(const Dropout& dropout, const char* op);

namespace ops {

Tensor dropout(Context& context, const Tensor& x, const Dropout& dropout);

}  // namespace ops
}  // namespace trafo
