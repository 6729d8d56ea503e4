// Linear layers and embeddings whose weight is an Int8Matrix or Int4Panels, on the CPU in float32.
// They have no gradient: models with quantized weights only compute forward.
//
// They have no line in op_list.def: the list is of kernels that every device has.
#pragma once

#include "engine/ops/embedding/embedding.h"
#include "engine/quant/int4_panels.h"
#include "engine/quant/int8_matrix.h"
#include "engine/runtime/context.h"

namespace trafo::ops {

// y = x W^T + bias: x [.., in], weight [out, in], bias [out] or undefined -> [.., out]. Each row of
// x is quantized as quant/int8_kernel.h says; a row of y does not depend on the other rows.
// UNSUPPORTED on another device and where a gradient is wanted, DTYPE_MISMATCH unless x is float32,
// SHAPE_MISMATCH.
Tensor int8_linear(Context& context, const Tensor& x, const Int8Matrix& weight,
                   const Tensor& bias = {});
// The same with int4 codes; a row of x is quantized to int8 codes as well.
Tensor int4_linear(Context& context, const Tensor& x, const Int4Panels& weight,
                   const Tensor& bias = {});

// ops::embedding with table[v, c] = scales[v] * codes[v, c]. Errors as above, UNSUPPORTED with
// dropout, and INVALID_ARGUMENT for ids and positions out of range.
Tensor int8_embedding(Context& context, const Tensor& ids, const Int8Matrix& table,
                      const EmbeddingOptions& options = {});
Tensor int4_embedding(Context& context, const Tensor& ids, const Int4Panels& table,
                      const EmbeddingOptions& options = {});

}  // namespace trafo::ops
