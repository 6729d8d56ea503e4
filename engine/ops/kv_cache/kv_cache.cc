#include "engine/ops/kv_cache/kv_cache.h"

#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"

namespace trafo::ops {
namespace {

constexpr const char* kKvCacheOp = "kv_cache_append";

void check_columns(const Context& context, const char* name, const Tensor& tensor, int64_t column,
                   int64_t columns) {
  check_input(context, kKvCacheOp, name, tensor);
  require(tensor.rank() == 2, ErrorCode::shape_mismatch, kKvCacheOp, name,
          " must be [rows, width], got ", tensor.shape());
  require(columns >= 0 && column >= 0 && column <= tensor.dim(1) - columns,
          ErrorCode::shape_mismatch, kKvCacheOp, name, " has ", tensor.dim(1), " columns; ",
          columns, " from number ", column, " on are not among them");
  require(tensor.dim(1) <= 1 || tensor.strides()[1] == 1, ErrorCode::shape_mismatch, kKvCacheOp,
          name, " must have the columns of a row side by side");
}

void* first_column(const Tensor& tensor, int64_t column) {
  return static_cast<std::byte*>(tensor.raw()) +
         column * static_cast<int64_t>(dtype_size(tensor.dtype()));
}

}  // namespace

void kv_cache_append(Context& context, const Tensor& x, int64_t column, int64_t columns,
                     const Tensor& slots, const Tensor& cache, int64_t cache_column) {
  const OpRange range(context, kKvCacheOp, x, slots, cache);
  check_columns(context, "x", x, column, columns);
  check_columns(context, "cache", cache, cache_column, columns);
  check_same_dtype(kKvCacheOp, "x", x, "cache", cache);
  check_input(context, kKvCacheOp, "slots", slots);
  require(slots.dtype() == DType::i32, ErrorCode::dtype_mismatch, kKvCacheOp,
          "slots must be int32, got ", dtype_name(slots.dtype()));
  require(slots.rank() == 1 && slots.is_contiguous() && slots.dim(0) == x.dim(0),
          ErrorCode::shape_mismatch, kKvCacheOp, "slots must be [", x.dim(0),
          "], one for each row of x; its shape is ", slots.shape());
  require(!context.needs_grad({x, cache}), ErrorCode::unsupported, kKvCacheOp,
          "a cache has no backward; append under no-grad or detach x");

  KvCacheAppendParams p{};
  p.dtype = x.dtype();
  p.tokens = x.dim(0);
  p.columns = columns;
  p.cache_rows = cache.dim(0);
  p.x_stride = x.strides()[0];
  p.cache_stride = cache.strides()[0];
  p.x = first_column(x, column);
  p.slots = slots.data<int32_t>();
  p.cache = first_column(cache, cache_column);
  cache.mark_written();
  launch(context, OpKernel::kv_cache_append, kKvCacheOp, p);
}

}  // namespace trafo::ops
