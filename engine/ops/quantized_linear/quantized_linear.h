// Linear layers whose weight is frozen and kept in few bits (quant/base_codes.h).
//
// A GEMM reads values: of a part of the matrix at a time on the CPU (kPanelElements), of the whole
// matrix on an accelerator. They are in scratch memory, in the dtype of x, and are computed again
// for backward. No other copy of the values is kept, and the weight has no gradient.
//
// Decode steps have few rows of x, and the bytes of the weight are their time. There an accelerator
// multiplies by the codes as they are (coded_rows), forward.
//
// quantized_linear has no line in op_list.def: its kernels are dequantize, coded_rows and GEMMs.
#pragma once

#include "engine/quant/base_codes.h"
#include "engine/runtime/context.h"

namespace trafo {

// A matrix [rows, columns] in few bits, on a device.
struct CodedMatrix {
  BasePrecision precision = BasePrecision::none;
  int64_t rows = 0, columns = 0;
  // int32 [n]: the bytes of base_codes::Places. Written by copies only, never by a kernel:
  // coded_rows reads them before the kernel in front of it has ended.
  Tensor bytes;
};

struct DequantizeParams {
  BasePrecision precision;
  DType to;
  int64_t rows, columns;
  MatrixTile part;
  const void* bytes;
  void* values;  // [part.rows, part.columns]
};

// A term of low rank (LoRA) of coded_rows: rows first[i] to first[i] + count[i] - 1 of W add
// scale d_i up_i^T, where d_i has the columns i rank to (i + 1) rank - 1 of d [tokens, ranges
// rank], and up_i the count[i] rows of up [.., rank] that follow those of the ranges before it.
struct CodedTerm {
  static constexpr int kMostRanges = 4;
  const void* d = nullptr;  // of the dtype of x; null: no term
  const void* up = nullptr;
  float scale = 0;
  int ranges = 0;
  int64_t rank = 0;
  int64_t first[kMostRanges] = {}, count[kMostRanges] = {};
};

// y [tokens, rows] = x [tokens, columns] W^T + bias + term, W [rows, columns] in codes.
//
// The values of W that are multiplied are those that dequantize writes in `dtype`. Sums are float32
// (float64 for float64), in a fixed order, and rounded once. A row's bits do not depend on the
// others. The CPU computes the definition; it is the reference of the tests.
struct CodedRowsParams {
  BasePrecision precision;
  DType dtype;  // of x, bias and y: float32 or float64 on the CPU, float32 or bfloat16 on CUDA
  int64_t tokens, rows, columns;
  const void* x;
  const void* bytes;
  const void* bias;  // or null
  void* y;
  CodedTerm term = {};
};

// Most rows of x for which coded_rows is the faster way.
inline constexpr int64_t kMostCodedRows = 16;
// Columns of W are a multiple of this: the lanes of a warp read whole words of 16 bytes, and an
// absmax of nf4 belongs to one row.
inline constexpr int64_t kCodedColumns = 64;
// At most: the bytes of 32 rows are counted in 32 bits.
inline constexpr int64_t kMostCodedColumns = int64_t{1} << 26;

// Whether y = x W^T has a kernel that reads the codes. By device and shape alone, so that a region
// that is computed again gives the same bits.
constexpr bool takes_coded_rows(DeviceKind device, DType dtype, int64_t tokens, int64_t columns) {
  return device == DeviceKind::cuda && (dtype == DType::f32 || dtype == DType::bf16) &&
         tokens >= 1 && tokens <= kMostCodedRows && columns >= 1 && columns <= kMostCodedColumns &&
         columns % kCodedColumns == 0;
}

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
// y [T, out] = x [T, in] W^T + bias, all contiguous, bias undefined or [out]; reads the codes if
// takes_coded_rows, else the values, in panels. A term only where it reads the codes. No autodiff.
void coded_product(Context& context, const Tensor& x, const CodedMatrix& weight, const Tensor& bias,
                   int64_t tokens, const Tensor& y, const CodedTerm& term = {});
// All values, [rows, columns].
Tensor dequantized(Context& context, const CodedMatrix& matrix, DType dtype);

// y = x W^T + bias: x [.., in], weight [out, in], bias [out] or undefined -> [.., out]. Backward
// gives the gradients of x and bias. SHAPE_MISMATCH; DTYPE_MISMATCH as of ops::linear.
Tensor quantized_linear(Context& context, const Tensor& x, const CodedMatrix& weight,
                        const Tensor& bias = {});

}  // namespace ops
}  // namespace trafo
