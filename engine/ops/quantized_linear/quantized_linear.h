// Linear layers whose weight is frozen and kept in few bits (quant/base_codes.h).
//
// A GEMM reads values: of a part of the matrix at a time on the CPU (kPanelElements), of the whole
// matrix on an accelerator. They are in scratch memory, in the dtype of x, and are computed again
// for backward. No other copy of the values is kept, and the weight has no gradient.
//
// quantized_linear has no line in op_list.def: its kernels are dequantize and GEMMs.
#pragma once

#include "engine/quant/base_codes.h"
#include "engine/runtime/context.h"

namespace trafo {

// A matrix [rows, columns] in few bits, on a device.
struct CodedMatrix {
  BasePrecision precision = BasePrecision::none;
  int64_t rows = 0, columns = 0;
  Tensor bytes;  // int32 [n]: the bytes of base_codes::Places
};

struct DequantizeParams {
  BasePrecision precision;
  DType to;
  int64_t rows, columns;
  MatrixTile part;
  const void* bytes;
  void* values;  // [part.rows, part.columns]
};

// Zeros, which are codes of no particular matrix.
CodedMatrix make_coded_matrix(Context& context, BasePrecision precision, int64_t rows,
                              int64_t columns);

namespace ops {

// Elements of the part of a matrix that is dequantized at a time on the CPU: 1 MiB of float32.
inline constexpr int64_t kPanelElements = int64_t{1} << 18;

// Writes the values of a part of the matrix to `values` [part.rows, part.columns], contiguous. No
// autodiff.
void dequantize_into(Context& context, const CodedMatrix& matrix, const MatrixTile& part,
                     const Tensor& values);
// All values, [rows, columns].
Tensor dequantized(Context& context, const CodedMatrix& matrix, DType dtype);

// y = x W^T + bias: x [.., in], weight [out, in], bias [out] or undefined -> [.., out]. Backward
// gives the gradients of x and bias. SHAPE_MISMATCH; DTYPE_MISMATCH as of ops::linear.
Tensor quantized_linear(Context& context, const Tensor& x, const CodedMatrix& weight,
                        const Tensor& bias = {});

}  // namespace ops
}  // namespace trafo
