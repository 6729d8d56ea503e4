#include "engine/ops/along_dim/along_dim.h"

#include <limits>

#include "engine/core/argument_error.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

constexpr int64_t kMostNumbers = std::numeric_limits<int32_t>::max();

// INVALID_ARGUMENT or DTYPE_MISMATCH unless x is of a compute dtype or int32.
void check_values(const Context& context, const char* op, const char* name, const Tensor& x) {
  check_input(context, op, name, x);
  if (x.dtype() != DType::i32) check_compute_input(context, op, name, x);
}

// x as [outer, size, inner] around a dimension.
struct Columns {
  int64_t outer = 1, size = 1, inner = 1;
};
Columns columns_of(const Shape& shape, int dim) {
  Columns c;
  for (int i = 0; i < shape.rank(); ++i)
    (i < dim ? c.outer : i == dim ? c.size : c.inner) *= shape[i];
  return c;
}

int checked_index(const Context& context, const char* op, const Tensor& x, int dim,
                  const Tensor& index) {
  check_values(context, op, "x", x);
  check_input(context, op, "index", index);
  require(index.dtype() == DType::i32, ErrorCode::dtype_mismatch, op, "index must be int32, it is ",
          dtype_name(index.dtype()));
  const int d = checked_dim(op, dim, x.rank());
  bool fits = index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == d || index.shape()[i] <= x.shape()[i];
  require(fits, ErrorCode::shape_mismatch, op, "index ", index.shape(), " must have the rank of x ",
          x.shape(), " and be no larger in another dimension than ", d);
  require(index.numel() < kMostNumbers && x.shape()[d] <= kMostNumbers, ErrorCode::shape_mismatch,
          op, "at most 2^31 - 2 elements are indexed, index is ", index.shape());
  return d;
}

// Adds src at its places to zeros of `shape`, or writes the numbers of src's elements plus one if
// src is undefined.
Tensor placed(Context& context, const char* op, const Shape& shape, int dim, const Tensor& index,
              const Tensor& src, DType dtype) {
  const Tensor out = context.zeros(shape, src.defined() ? stat_dtype(dtype) : DType::i32);
  const Strides out_strides = contiguous_strides(shape);
  const Strides index_strides = contiguous_strides(index.shape());
  GatherBackwardParams p{};
  p.dtype = dtype;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i == dim) continue;
    p.shape[p.rank] = index.shape()[i];
    p.out_strides[p.rank] = out_strides[i];
    p.index_strides[p.rank++] = index_strides[i];
  }
  p.out_step = out_strides[dim];
  p.out_size = shape[dim];
  p.index_step = index_strides[dim];
  p.index_size = index.shape()[dim];
  p.dout = src.defined() ? src.raw() : nullptr;
  p.index = index.data<int32_t>();
  p.out = out.raw();
  launch(context, OpKernel::gather_backward, op, p);
  return out;
}

// The gradient of a gather, in the dtype in which the gradient is kept.
void gather_gradient(Backward& back, const char* op, const Shape& shape, int dim,
                     const Tensor& index) {
  const Tensor grad = back.grad_output();
  back.add(0, placed(back.context(), op, shape, dim, index, grad, grad.dtype()));
}

Tensor gathered(Context& context, const char* op, const Tensor& x, int dim, const Tensor& index) {
  const Tensor from = ops::contiguous(context, x), places = ops::contiguous(context, index);
  Tensor out = context.empty(places.shape(), from.dtype());
  GatherForwardParams p{};
  p.dtype = from.dtype();
  p.rank = from.rank();
  const Strides strides = contiguous_strides(from.shape());
  for (int i = 0; i < from.rank(); ++i) {
    p.shape[i] = places.shape()[i];
    p.x_strides[i] = i == dim ? 0 : strides[i];
  }
  p.x_step = strides[dim];
  p.x_size = from.shape()[dim];
  p.x = from.raw();
  p.index = places.data<int32_t>();
  p.out = out.raw();
  launch(context, OpKernel::gather_forward, op, p);
  if (context.needs_grad({from}))
    context.record(op, {from}, {&out}, {{"index", places}},
                   [op, dim, shape = from.shape(), places = places.detach()](Backward& back) {
                     gather_gradient(back, op, shape, dim, places);
                   });
  return out;
}

Tensor largest(Context& context, const char* op, const Tensor& x, int dim, int64_t k,
               bool smallest) {
  const Tensor from = ops::contiguous(context, x.detach());
  const Columns c = columns_of(from.shape(), dim);
  require(c.size <= kMostNumbers, ErrorCode::shape_mismatch, op, "numbers are int32, dimension ",
          dim, " has ", c.size, " elements");
  Shape shape = from.shape();
  shape[dim] = k;
  Tensor ids = context.empty(shape, DType::i32);
  launch(context, OpKernel::largest, op,
         LargestParams{from.dtype(), smallest, c.outer, c.size, c.inner, k, from.raw(),
                       ids.data<int32_t>()});
  return ids;
}

Tensor arg_best(Context& context, const char* op, const Tensor& x, int dim, bool keep_dim,
                bool smallest) {
  const OpRange range(context, op, x);
  check_values(context, op, "x", x);
  const int d = checked_dim(op, dim, x.rank());
  require(x.shape()[d] > 0, ErrorCode::invalid_argument, op, "dimension ", d, " of ", x.shape(),
          " is empty");
  const Tensor ids = largest(context, op, x, d, 1, smallest);
  if (keep_dim) return ids;
  Shape shape;
  for (int i = 0; i < x.rank(); ++i)
    if (i != d) shape.push_back(x.shape()[i]);
  return ids.reshaped(shape);
}

}  // namespace

namespace ops {

Tensor gather(Context& context, const Tensor& x, int dim, const Tensor& index) {
  const OpRange range(context, "gather", x, index);
  const int d = checked_index(context, "gather", x, dim, index);
  return gathered(context, "gather", x, d, index);
}

Tensor scatter_add(Context& context, const Tensor& x, int dim, const Tensor& index,
                   const Tensor& src) {
  constexpr const char* kOp = "scatter_add";
  const OpRange range(context, kOp, x, index, src);
  check_compute_input(context, kOp, "x", x);
  check_compute_input(context, kOp, "src", src);
  check_same_dtype(kOp, "x", x, "src", src);
  const int d = checked_index(context, kOp, x, dim, index);
  require(src.shape() == index.shape(), ErrorCode::shape_mismatch, kOp, "src ", src.shape(),
          " must have the shape of index, ", index.shape());
  const Tensor values = contiguous(context, src), places = contiguous(context, index);
  const Tensor sums = placed(context, kOp, x.shape(), d, places, values, values.dtype());
  Tensor added = cast(context, sums, x.dtype());
  if (context.needs_grad({values}))
    context.record(kOp, {values}, {&added}, {{"index", places}},
                   [d, places = places.detach()](Backward& back) {
                     back.add(0, gathered(back.context(), kOp, back.grad_output(), d, places));
                   });
  return add(context, x, added);
}

Tensor scatter(Context& context, const Tensor& x, int dim, const Tensor& index, const Tensor& src) {
  constexpr const char* kOp = "scatter";
  const OpRange range(context, kOp, x, index, src);
  check_values(context, kOp, "src", src);
  const int d = checked_index(context, kOp, x, dim, index);
  check_same_dtype(kOp, "x", x, "src", src);
  require(src.shape() == index.shape(), ErrorCode::shape_mismatch, kOp, "src ", src.shape(),
          " must have the shape of index, ", index.shape());
  if (index.numel() == 0) return contiguous(context, x);
  require(x.numel() < kMostNumbers, ErrorCode::shape_mismatch, kOp,
          "x must have fewer than 2^31 - 1 elements, its shape is ", x.shape());
  // Which element of src each place gets: its number, counted from one; 0: none.
  const Tensor numbers =
      placed(context, kOp, x.shape(), d, contiguous(context, index), {}, x.dtype())
          .reshaped({x.numel()});
  const Tensor taken = compare(context, numbers, 0, Comparison::greater);
  // Elements are numbered from one, after a zero that nobody takes.
  const Tensor flat = reshape(context, src, {-1});
  const Tensor padded[] = {context.zeros({1}, x.dtype()), flat};
  const Tensor chosen = gathered(context, kOp, ops::concat(context, padded, 0), 0, numbers);
  return where(context, taken.reshaped(x.shape()), reshape(context, chosen, x.shape()), x);
}

Tensor cumsum(Context& context, const Tensor& x, int dim) {
  constexpr const char* kOp = "cumsum";
  const OpRange range(context, kOp, x);
  check_values(context, kOp, "x", x);
  const int d = checked_dim(kOp, dim, x.rank());
  const Tensor from = contiguous(context, x);
  const Columns c = columns_of(from.shape(), d);
  Tensor y = context.empty(from.shape(), from.dtype());
  launch(context, OpKernel::cumulative_sum_forward, kOp,
         CumulativeSumForwardParams{from.dtype(), false, c.outer, c.size, c.inner, from.raw(),
                                    y.raw()});
  if (context.needs_grad({from}))
    context.record(kOp, {from}, {&y}, {}, [c](Backward& back) {
      const Tensor grad = back.grad_output();
      Tensor dx = back.context().empty(grad.shape(), grad.dtype());
      launch(back.context(), OpKernel::cumulative_sum_backward, kOp,
             CumulativeSumBackwardParams{grad.dtype(), c.outer, c.size, c.inner, grad.raw(),
                                         dx.raw()});
      back.add(0, dx);
    });
  return y;
}

Largest top_k_of(Context& context, const Tensor& x, int64_t k, int dim) {
  constexpr const char* kOp = "top_k_of";
  const OpRange range(context, kOp, x);
  check_values(context, kOp, "x", x);
  const int d = checked_dim(kOp, dim, x.rank());
  require_argument(k >= 1 && k <= x.shape()[d], kOp, "k", " must be 1 to ", x.shape()[d],
                   ", the size of dimension ", d, "; got ", k);
  const Tensor ids = largest(context, kOp, x, d, k, false);
  return {gathered(context, kOp, x, d, ids), ids};
}

Tensor argmax(Context& context, const Tensor& x, int dim, bool keep_dim) {
  return arg_best(context, "argmax", x, dim, keep_dim, false);
}
Tensor argmin(Context& context, const Tensor& x, int dim, bool keep_dim) {
  return arg_best(context, "argmin", x, dim, keep_dim, true);
}

}  // namespace ops
}  // namespace trafo
