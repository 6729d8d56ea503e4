#include "engine/ops/masks/masks.h"

#include <limits>

#include "engine/ops/dropout/dropout.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/unary/unary.h"

namespace trafo::ops {

PaddedRows padded_rows(Context& context, const int32_t* begin, const int32_t* end,
                       int64_t sequences, int64_t length, int64_t rows, bool to) {
  const int64_t places = checked_mul(sequences, length, "padded_rows");
  require(places <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument, "padded_rows",
          sequences, " sequences of ", length,
          " rows are more than int32 counts; use fused kernels or smaller batches");
  PaddedRows padded{context.empty({places}, DType::i32),
                    to ? context.empty({rows}, DType::i32) : Tensor{}};
  PaddedRowsParams p{};
  p.sequences = sequences;
  p.length = length;
  p.rows = rows;
  p.begin = begin;
  p.end = end;
  p.from = static_cast<int32_t*>(padded.from.raw());
  p.to = to ? static_cast<int32_t*>(padded.to.raw()) : nullptr;
  launch(context, OpKernel::padded_rows, "padded_rows", p);
  return padded;
}

Tensor visible_keys(Context& context, const VisibleKeysParams& without_out, const Shape& shape) {
  VisibleKeysParams p = without_out;
  Tensor out = context.empty(shape, p.dtype);
  p.out = out.raw();
  launch(context, OpKernel::visible_keys, "visible_keys", p);
  return out;
}

Tensor one_hot(Context& context, const Tensor& labels, int64_t classes, int32_t ignore,
               DType dtype) {
  Tensor out = context.empty({labels.numel(), classes}, dtype);
  launch(context, OpKernel::one_hot, "one_hot",
         OneHotParams{dtype, labels.numel(), classes, ignore,
                      static_cast<const int32_t*>(labels.raw()), out.raw()});
  return out;
}

Tensor dropout_mask(Context& context, const Shape& shape, DType dtype, const Dropout& dropout) {
  const Tensor ones = shift(context, context.zeros(shape, dtype), 1);
  Tensor mask = context.empty(shape, dtype);
  launch(context, OpKernel::dropout_forward, "dropout",
         DropoutForwardParams{dtype, dropout, mask.numel(), ones.raw(), mask.raw()});
  return mask;
}

}  // namespace trafo::ops
