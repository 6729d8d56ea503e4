#include "engine/ops/gather_rows/gather_rows.h"

#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {

Tensor gather_rows(Context& context, const Tensor& x, const Tensor& index) {
  constexpr const char* kOp = "gather_rows";
  const OpRange range(context, kOp, x, index);
  require(x.defined() && x.rank() >= 1, ErrorCode::shape_mismatch, kOp,
          "x must have rows: at least one dimension");
  require(index.defined() && index.rank() == 1, ErrorCode::shape_mismatch, kOp,
          "index must have one dimension, one number a row of the result");
  require(index.dtype() == DType::i32, ErrorCode::dtype_mismatch, kOp, "index must be int32, got ",
          dtype_name(index.dtype()));
  require(x.device() == context.device() && index.device() == context.device(),
          ErrorCode::invalid_argument, kOp, "x and index must be on ",
          device_name(context.device()), ", the context's device");

  const Tensor from = contiguous(context, x);
  const Tensor numbers = contiguous(context, index);
  Shape shape = x.shape();
  shape[0] = index.dim(0);
  Tensor out = context.empty(shape, x.dtype());
  int64_t width = 1;
  for (int i = 1; i < shape.rank(); ++i) width *= shape[i];
  GatherRowsParams params{};
  params.dtype = x.dtype();
  params.x_rows = x.dim(0);
  params.rows = index.dim(0);
  params.width = params.x_stride = params.out_stride = width;
  params.x = from.raw();
  params.index = numbers.data<int32_t>();
  params.out = out.raw();
  launch(context, OpKernel::gather_rows, kOp, params);
  context.record(kOp, {from}, {&out}, nullptr);
  return out;
}

}  // namespace trafo::ops
