#include "engine/ops/view/view.h"

#include <optional>

#include "engine/ops/binary/broadcast.h"
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

Tensor permuted_view(const Tensor& x, const std::vector<int>& dims) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  for (int i = 0; i < x.rank(); ++i) {
    shape[i] = x.shape()[dims[static_cast<size_t>(i)]];
    strides[i] = x.strides()[dims[static_cast<size_t>(i)]];
  }
  return x.as_strided(shape, strides, x.offset());
}

Tensor sliced_view(const Tensor& x, int dim, int64_t start, int64_t stop) {
  Shape shape = x.shape();
  shape[dim] = stop - start;
  // An empty slice may start after the last element.
  const int64_t offset =
      element_count(shape) == 0 ? x.offset() : x.offset() + start * x.strides()[dim];
  return x.as_strided(shape, x.strides(), offset);
}

Shape infer_shape(const Tensor& x, const Shape& shape) {
  Shape result = shape;
  int inferred = -1;
  int64_t known = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    require(shape[i] >= -1, ErrorCode::shape_mismatch, "reshape", "dimension ", i, " of ", shape,
            " is negative; one -1 is allowed and stands for the rest");
    if (shape[i] == -1) {
      require(inferred < 0, ErrorCode::shape_mismatch, "reshape", "only one dimension of ", shape,
              " may be -1");
      inferred = i;
    } else {
      known = checked_mul(known, shape[i], "reshape");
    }
  }
  if (inferred >= 0) {
    require(known > 0 && x.numel() % known == 0, ErrorCode::shape_mismatch, "reshape", "shape ",
            x.shape(), " with ", x.numel(), " elements does not fit ", shape);
    result[inferred] = x.numel() / known;
  }
  require(element_count(result) == x.numel(), ErrorCode::shape_mismatch, "reshape", "shape ",
          x.shape(), " has ", x.numel(), " elements, ", result, " has ", element_count(result));
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

Tensor permute(Context& context, const Tensor& x, std::span<const int> dims) {
  const OpRange range(context, "permute", x);
  check_input(context, "permute", "x", x);
  require(static_cast<int>(dims.size()) == x.rank(), ErrorCode::shape_mismatch, "permute", "x ",
          x.shape(), " needs ", x.rank(), " dimensions, got ", dims.size());
  std::vector<int> order(dims.size()), inverse(dims.size(), -1);
  for (size_t i = 0; i < dims.size(); ++i) {
    order[i] = checked_dim("permute", dims[i], x.rank());
    int& place = inverse[static_cast<size_t>(order[i])];
    require(place < 0, ErrorCode::invalid_argument, "permute", "dimension ", order[i],
            " was given twice");
    place = static_cast<int>(i);
  }
  Tensor y = permuted_view(x, order);
  if (context.needs_grad({x}))
    context.record("permute", {x}, {&y}, {}, [inverse = std::move(inverse)](Backward& b) {
      const Tensor grad = b.grad_output();
      const GradTarget target = b.target(0);
      copy_elements(b.context(), "permute", permuted_view(grad, inverse), target.buffer,
                    target.accumulate);
    });
  return y;
}

Tensor expand(Context& context, const Tensor& x, const Shape& shape) {
  const OpRange range(context, "expand", x);
  check_input(context, "expand", "x", x);
  Shape to = shape;
  const int lead = to.rank() - x.rank();
  bool fits = lead >= 0;
  for (int i = 0; fits && i < to.rank(); ++i) {
    if (to[i] == -1 && i >= lead) to[i] = x.shape()[i - lead];
    fits = to[i] >= 0 && (i < lead || x.shape()[i - lead] == to[i] || x.shape()[i - lead] == 1);
  }
  require(fits, ErrorCode::shape_mismatch, "expand", "x ", x.shape(), " does not expand to ", shape,
          ": only dimensions of size 1, and new ones in front, are repeated");
  Strides strides = to;
  int64_t repeated[kMaxRank];
  broadcast_strides(x, to, repeated);
  for (int i = 0; i < to.rank(); ++i) strides[i] = repeated[i];
  Tensor y = x.as_strided(to, strides, x.offset());
  if (context.needs_grad({x}))
    context.record("expand", {x}, {&y}, {}, [from = x.shape()](Backward& b) {
      b.add(0, sum_to_shape(b.context(), "expand", b.grad_output(), from));
    });
  return y;
}

Tensor slice(Context& context, const Tensor& x, int dim, int64_t start, int64_t stop) {
  const OpRange range(context, "slice", x);
  check_input(context, "slice", "x", x);
  const int d = checked_dim("slice", dim, x.rank());
  require(0 <= start && start <= stop && stop <= x.dim(d), ErrorCode::invalid_argument, "slice",
          "[", start, ", ", stop, ") is not a part of dimension ", d, " of ", x.shape());
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
    require(agrees, ErrorCode::shape_mismatch, "concat", "input ", i, " of shape ", tensor.shape(),
            " does not join ", first.shape(), " along dimension ", d);
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
