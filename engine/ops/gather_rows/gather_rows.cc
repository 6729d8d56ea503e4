#include "engine/ops/gather_rows/gather_rows.h"

#include "engine/core/shape_text.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"

namespace trafo::ops {
namespace {

constexpr const char* kGatherRowsOp = "gather_rows";

void check(const Context& context, const Tensor& x, const Tensor& index) {
  require(x.defined() && x.rank() >= 1, ErrorCode::shape_mismatch, kGatherRowsOp,
          "x must have rows: at least one dimension");
  require(index.defined() && index.rank() == 1, ErrorCode::shape_mismatch, kGatherRowsOp,
          "index must have one dimension, one number a row of the result");
  require(index.dtype() == DType::i32, ErrorCode::dtype_mismatch, kGatherRowsOp,
          "index must be int32, got ", dtype_name(index.dtype()));
  require(x.device() == context.device() && index.device() == context.device(),
          ErrorCode::invalid_argument, kGatherRowsOp, "x and index must be on ", context.device(),
          ", the context's device");
}

bool has_dense_rows(const Tensor& x) {
  return x.rank() == 3 && (x.dim(2) <= 1 || x.strides()[2] == 1);
}

}  // namespace

Tensor gather_rows(Context& context, const Tensor& x, const Tensor& index) {
  const OpRange range(context, kGatherRowsOp, x, index);
  check(context, x, index);
  const Tensor from = contiguous(context, x), numbers = contiguous(context, index);
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
  launch(context, OpKernel::gather_rows, kGatherRowsOp, params);
  context.record(kGatherRowsOp, {from}, {&out}, {}, nullptr);
  return out;
}

void copy_rows(Context& context, const Tensor& x, const Tensor& index, const Tensor& out,
               const Tensor& out_index) {
  check(context, x, index);
  check(context, out, out_index);
  require(has_dense_rows(x) && has_dense_rows(out) && out.dim(0) == x.dim(0) &&
              out.dim(2) == x.dim(2) && out.dtype() == x.dtype() &&
              index.dim(0) == out_index.dim(0),
          ErrorCode::shape_mismatch, kGatherRowsOp,
          "x and out must be as many matrices of one dtype and width, with as many numbers of ",
          "rows for both");
  const Tensor from = contiguous(context, index), to = contiguous(context, out_index);
  GatherRowsParams params{};
  params.dtype = x.dtype();
  params.x_rows = x.dim(1);
  params.out_rows = out.dim(1);
  params.rows = index.dim(0);
  params.width = x.dim(2);
  params.x_stride = x.strides()[1];
  params.out_stride = out.strides()[1];
  params.planes = x.dim(0);
  params.x_plane_stride = x.strides()[0];
  params.out_plane_stride = out.strides()[0];
  params.x = x.raw();
  params.index = from.data<int32_t>();
  params.out_index = to.data<int32_t>();
  params.out = out.raw();
  out.mark_written();
  launch(context, OpKernel::gather_rows, kGatherRowsOp, params);
}

}  // namespace trafo::ops
