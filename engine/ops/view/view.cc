#include "engine/ops/view/view.h"

#include <algorithm>
#include <optional>

#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"

namespace trafo {
namespace {

// dst (+)= src, two tensors of one shape and dtype with any strides.
void copy_elements(const Context& context, const char* op, const Tensor& src, const Tensor& dst,
                   bool accumulate) {
  CopyStridedParams params{};
  params.dtype = src.dtype();
  params.accumulate = accumulate;
  params.rank = src.rank();
  for (int i = 0; i < src.rank(); ++i) {
    params.shape[i] = src.shape()[i];
    params.src_strides[i] = src.strides()[i];
    params.dst_strides[i] = dst.strides()[i];
  }
  params.src = src.raw();
  params.dst = dst.raw();
  launch(context, OpKernel::copy_strided, op, params);
}

Tensor transposed_view(const Tensor& x, int dim0, int dim1) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::swap(shape[dim0], shape[dim1]);
  std::swap(strides[dim0], strides[dim1]);
  return x.as_strided(shape, strides, x.offset());
}

Tensor sliced_view(const Tensor& x, int dim, int64_t start, int64_t stop) {
  Shape shape = x.shape();
  shape[dim] = stop - start;
  // An empty slice may start behind the last element.
  const int64_t offset =
      element_count(shape) == 0 ? x.offset() : x.offset() + start * x.strides()[dim];
  return x.as_strided(shape, x.strides(), offset);
}

Shape infer_shape(const Tensor& x, const Shape& shape) {
  Shape result = shape;
  int inferred = -1;
  int64_t known = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    require(shape[i] >= -1, ErrorCode::shape_mismatch, "reshape", "dimension ", i, " of ",
            shape.str(), " is negative; one -1 is allowed and stands for the rest");
    if (shape[i] == -1) {
      require(inferred < 0, ErrorCode::shape_mismatch, "reshape", "only one dimension of ",
              shape.str(), " may be -1");
      inferred = i;
    } else {
      known = checked_mul(known, shape[i], "reshape");
    }
  }
  if (inferred >= 0) {
    require(known > 0 && x.numel() % known == 0, ErrorCode::shape_mismatch, "reshape", "shape ",
            x.shape().str(), " with ", x.numel(), " elements does not fit ", shape.str());
    result[inferred] = x.numel() / known;
  }
  require(element_count(result) == x.numel(), ErrorCode::shape_mismatch, "reshape", "shape ",
          x.shape().str(), " has ", x.numel(), " elements, ", result.str(), " has ",
          element_count(result));
  return result;
}

// The strides with which `shape` looks at the elements of the strided, non-empty x in the same
// order, if there are such: every run of old dimensions that is one arithmetic progression may be
// cut anew.
std::optional<Strides> view_strides(const Tensor& x, const Shape& shape) {
  Strides strides = contiguous_strides(shape);  // for the dimensions of size 1
  int old_end = x.rank(), new_end = shape.rank();
  while (old_end > 0) {
    // Old dimensions [old_begin, old_end) that merge into one of `count` elements, `step` apart.
    int old_begin = old_end - 1;
    int64_t count = x.shape()[old_begin];
    int64_t step = x.strides()[old_begin];
    while (old_begin > 0) {
      const int64_t size = x.shape()[old_begin - 1], stride = x.strides()[old_begin - 1];
      if (size != 1 && count != 1 && stride != step * count) break;
      if (count == 1 && size != 1) step = stride;
      count *= size;
      --old_begin;
    }
    // New dimensions that fill it exactly.
    int64_t filled = 1;
    while (new_end > 0 && (filled < count || shape[new_end - 1] == 1)) {
      --new_end;
      strides[new_end] = step * filled;
      filled *= shape[new_end];
    }
    if (filled != count) return std::nullopt;
    old_end = old_begin;
  }
  if (new_end != 0) return std::nullopt;
  return strides;
}

}  // namespace

namespace ops {

Tensor contiguous(Context& context, const Tensor& x) {
  check_input(context, "contiguous", "x", x);
  if (x.is_contiguous()) return x;
  const OpRange range(context, "contiguous", x);
  Tensor y = context.empty(x.shape(), x.dtype());
  copy_elements(context, "contiguous", x, y, false);
  if (context.needs_grad({x}))
    context.record("contiguous", {x}, {&y}, {}, [](Backward& b) { b.add(0, b.grad_output()); });
  return y;
}

Tensor reshape(Context& context, const Tensor& x, const Shape& shape) {
  const OpRange range(context, "reshape", x);
  check_input(context, "reshape", "x", x);
  const Shape result_shape = infer_shape(x, shape);
  Tensor source = x;
  Tensor y;
  if (x.is_contiguous()) {
    y = x.reshaped(result_shape);
  } else if (const auto strides = view_strides(x, result_shape)) {
    y = x.as_strided(result_shape, *strides, x.offset());
  } else {
    source = contiguous(context, x);
    y = source.reshaped(result_shape);
  }
  if (context.needs_grad({source}))
    context.record("reshape", {source}, {&y}, {},
                   [from = x.shape()](Backward& b) { b.add(0, b.grad_output().reshaped(from)); });
  return y;
}

Tensor transpose(Context& context, const Tensor& x, int dim0, int dim1) {
  const OpRange range(context, "transpose", x);
  check_input(context, "transpose", "x", x);
  const int i = checked_dim("transpose", dim0, x.rank());
  const int j = checked_dim("transpose", dim1, x.rank());
  Tensor y = transposed_view(x, i, j);
  if (context.needs_grad({x}))
    context.record("transpose", {x}, {&y}, {}, [i, j](Backward& b) {
      const Tensor grad = b.grad_output();
      const GradTarget target = b.target(0);
      copy_elements(b.context(), "transpose", transposed_view(grad, i, j), target.buffer,
                    target.accumulate);
    });
  return y;
}

Tensor slice(Context& context, const Tensor& x, int dim, int64_t start, int64_t stop) {
  const OpRange range(context, "slice", x);
  check_input(context, "slice", "x", x);
  const int d = checked_dim("slice", dim, x.rank());
  require(0 <= start && start <= stop && stop <= x.dim(d), ErrorCode::invalid_argument, "slice",
          "[", start, ", ", stop, ") is not a part of dimension ", d, " of ", x.shape().str());
  Tensor y = sliced_view(x, d, start, stop);
  if (context.needs_grad({x}))
    context.record("slice", {x}, {&y}, {}, [d, start, stop](Backward& b) {
      const Tensor grad = b.grad_output();
      const GradTarget target = b.target(0);
      if (!target.accumulate)
        b.context().backend().fill_zero(target.buffer.raw(), target.buffer.bytes());
      copy_elements(b.context(), "slice", grad, sliced_view(target.buffer, d, start, stop),
                    target.accumulate);
    });
  return y;
}

Tensor concat(Context& context, std::span<const Tensor> tensors, int dim) {
  require(!tensors.empty(), ErrorCode::invalid_argument, "concat", "no tensors were given");
  const OpRange range(context, "concat", tensors);
  for (const Tensor& tensor : tensors) check_input(context, "concat", "an input", tensor);
  const Tensor& first = tensors[0];
  const int d = checked_dim("concat", dim, first.rank());
  Shape shape = first.shape();
  shape[d] = 0;
  bool wanted = false;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    bool agrees = tensor.rank() == first.rank();
    for (int j = 0; agrees && j < first.rank(); ++j)
      agrees = j == d || tensor.shape()[j] == first.shape()[j];
    require(agrees, ErrorCode::shape_mismatch, "concat", "input ", i, " of shape ",
            tensor.shape().str(), " does not join ", first.shape().str(), " along dimension ", d);
    require(tensor.dtype() == first.dtype(), ErrorCode::dtype_mismatch, "concat", "input ", i,
            " is ", dtype_name(tensor.dtype()), ", input 0 is ", dtype_name(first.dtype()));
    shape[d] = checked_add(shape[d], tensor.shape()[d], "concat");
    wanted = wanted || context.needs_grad({tensor});
  }
  Tensor y = context.empty(shape, first.dtype());
  std::vector<int64_t> starts;
  int64_t start = 0;
  for (const Tensor& tensor : tensors) {
    starts.push_back(start);
    const int64_t stop = start + tensor.shape()[d];
    copy_elements(context, "concat", tensor, sliced_view(y, d, start, stop), false);
    start = stop;
  }
  starts.push_back(start);
  if (wanted) {
    Tensor* outputs[] = {&y};
    context.record("concat", tensors, outputs, {}, [d, starts = std::move(starts)](Backward& b) {
      const Tensor grad = b.grad_output();
      for (size_t i = 0; i + 1 < starts.size(); ++i) {
        if (!b.needs(i)) continue;
        const GradTarget target = b.target(i);
        copy_elements(b.context(), "concat", sliced_view(grad, d, starts[i], starts[i + 1]),
                      target.buffer, target.accumulate);
      }
    });
  }
  return y;
}

}  // namespace ops

void accumulate_into(Context& context, const Tensor& target, const Tensor& source) {
  CopyStridedParams params{};
  params.dtype = target.dtype();
  params.accumulate = true;
  params.rank = 1;
  params.shape[0] = target.numel();
  params.src_strides[0] = params.dst_strides[0] = 1;
  params.src = source.raw();
  params.dst = target.raw();
  launch(context, OpKernel::copy_strided, "backward", params);
}

}  // namespace trafo
