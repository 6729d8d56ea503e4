#include "engine/core/tensor.h"

#include "engine/core/shape_text.h"

namespace trafo {
namespace {

bool strides_are_contiguous(const Shape& shape, const Strides& strides) {
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape,
               const Strides& strides, int64_t offset) {
  require(shape.rank() == strides.rank(), ErrorCode::shape_mismatch, "tensor", "shape ", shape,
          " and strides ", strides, " differ in rank");
  const int64_t numel = quick_element_count(shape);
  if (numel > 0) {
    int64_t low = offset, high = offset;
    for (int i = 0; i < shape.rank(); ++i) {
      const int64_t reach = checked_mul(shape[i] - 1, strides[i], "tensor");
      int64_t& end = reach < 0 ? low : high;
      end = checked_add(end, reach, "tensor");
    }
    const int64_t capacity = static_cast<int64_t>(storage->bytes() / dtype_size(dtype));
    require(low >= 0 && high < capacity, ErrorCode::invalid_argument, "tensor", "a view of shape ",
            shape, ", strides ", strides, ", offset ", offset, " leaves its storage of ", capacity,
            " elements");
  }
  const bool contiguous = numel == 0 || strides_are_contiguous(shape, strides);
  impl_ = std::make_shared<Impl>(
      Impl{std::move(storage), dtype, shape, strides, offset, numel, contiguous, nullptr});
}

Tensor Tensor::as_strided(const Shape& shape, const Strides& strides, int64_t offset) const {
  return Tensor(impl_->storage, impl_->dtype, shape, strides, offset);
}

Tensor Tensor::reshaped(const Shape& shape) const {
  require(quick_element_count(shape) == numel(), ErrorCode::shape_mismatch, "reshape", "shape ",
          impl_->shape, " has ", numel(), " elements, ", shape, " has ",
          quick_element_count(shape));
  require(is_contiguous(), ErrorCode::invalid_argument, "reshape",
          "the tensor is a strided view; make it contiguous first");
  return Tensor(impl_->storage, impl_->dtype, shape, contiguous_strides(shape), impl_->offset);
}

Tensor Tensor::detach() const {
  return Tensor(impl_->storage, impl_->dtype, impl_->shape, impl_->strides, impl_->offset);
}

}  // namespace trafo
