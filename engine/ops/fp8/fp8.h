// Matrices in FP8 and their product: the GEMMs of training with TrainOptions::fp8.
//
// A tensor has one scale, a power of two, computed from its values at that moment. There is no
// history of earlier values, so a step depends on nothing but its inputs. Sums are float32.
//
// CUDA: cards of compute capability 8.9 and newer, bfloat16 results. The CPU computes the same
// definition in float32; it is the reference of the tests.
#pragma once

#include "engine/core/numeric/fp8.h"
#include "engine/runtime/context.h"

namespace trafo {

// The scale of a tensor x of which |x| <= factor max|v|.
struct Fp8ScaleParams {
  DType dtype;  // of v: float32 or bfloat16
  Fp8Format format;
  int64_t count;
  const void* v;  // null: max|v| is 1
  double factor;  // its sign does not matter
  // [2]: the inverse of the scale, and the scale. cuBLASLt reads the inverse, and only from an
  // address that is a multiple of 16: it comes first.
  float* scale;
};

// A matrix and its FP8 copies. A side of n elements has padded_fp8(n) there; the padding is zero.
struct Fp8Item {
  int64_t rows, columns;
  const void* x;     // [rows, columns]
  float* scale;      // as Fp8ScaleParams::scale
  void* values;      // bytes [padded rows, padded columns], or null
  void* transposed;  // bytes [padded columns, padded rows], or null
  // Bits of the largest magnitude of x as a float32, where x is; null: not known.
  const uint32_t* largest;
};

// Of each item: the scale of the largest magnitude of x, and x times this scale in FP8.
struct Fp8QuantizeParams {
  DType dtype;  // of x: float32 or bfloat16
  Fp8Format format;
  int64_t count;
  const Fp8Item* items;  // in the memory of the host; read before the call returns
};

// C [m, n] (+)= A [m, k] B^T (+ bias [n]), with B [n, k]. A and B are FP8 and contiguous.
struct Fp8GemmParams {
  DType dtype;  // of C and bias: float32 on the CPU, bfloat16 or, without bias, float32 on CUDA
  Fp8Format a_format, b_format;
  int64_t m, n, k;  // CUDA: n and k are multiples of kFp8Multiple
  const void* a;
  const void* b;
  const float* a_scale;  // Fp8ScaleParams::scale of A and B
  const float* b_scale;
  void* c;
  const void* bias;  // or null
  bool accumulate;   // add to the contents of C
};

// Sides of FP8 operands are multiples of this.
inline constexpr int64_t kFp8Multiple = 16;
constexpr int64_t padded_fp8(int64_t size) {
  return (size + kFp8Multiple - 1) / kFp8Multiple * kFp8Multiple;
}

namespace ops {

// Bytes for `elements` values. There is no dtype of 8 bits: the tensor has int32 elements.
Tensor fp8_bytes(Context& context, int64_t elements);

// An operand [rows, columns] of a product, row by row.
struct Fp8Operand {
  Fp8Format format;
  const void* values;
  const float* scale;
  int64_t rows, columns;

  // From a row on.
  Fp8Operand from(int64_t row) const {
    return {format, static_cast<const std::byte*>(values) + row * columns, scale, rows - row,
            columns};
  }
};

// A matrix [rows, columns] with zeros after its rows and columns, see Fp8Item.
struct Fp8Matrix {
  Fp8Format format = Fp8Format::e4m3;
  int64_t rows = 0, columns = 0;
  Tensor values, transposed;  // bytes; undefined: not wanted
  Tensor scale;               // float32 [2]

  float* scales() const { return static_cast<float*>(scale.raw()); }
  // With the padding of both sides.
  Fp8Operand as_stored() const {
    return {format, values.raw(), scales(), padded_fp8(rows), padded_fp8(columns)};
  }
  Fp8Operand as_transposed() const {
    return {format, transposed.raw(), scales(), padded_fp8(columns), padded_fp8(rows)};
  }
};

enum class Fp8Copies { stored, transposed, both };

// Memory for the copies of a matrix.
Fp8Matrix fp8_matrix(Context& context, Fp8Format format, int64_t rows, int64_t columns,
                     Fp8Copies copies);
// `x` [rows, columns] with its scale.
Fp8Matrix to_fp8(Context& context, const char* op, const Tensor& x, Fp8Format format,
                 Fp8Copies copies);
// The work of fp8_quantize for this matrix.
Fp8Item fp8_item(const Tensor& x, const Fp8Matrix& matrix);
// c [rows, b.rows] (+)= the first `rows` of a, times b^T (+ bias [b.rows], if defined).
void fp8_product(const Context& context, const char* op, const Fp8Operand& a, const Fp8Operand& b,
                 int64_t rows, DType dtype, void* c, const Tensor& bias = {},
                 bool accumulate = false);

// UNSUPPORTED, naming what is missing, if the device has no FP8 GEMMs. A dry run has them.
void require_fp8_device(const Context& context, const char* op);
// DTYPE_MISMATCH for one that FP8 products do not have on the device.
void require_fp8_dtype(const Context& context, const char* op, const Tensor& x);
// INVALID_ARGUMENT for sizes that FP8 GEMMs do not have.
void require_fp8_multiple(const char* op, const char* what, int64_t size);
// SHAPE_MISMATCH unless `narrow` can be this weight in FP8, with both copies.
void require_fp8_weight(const char* op, const Tensor& weight, const Fp8Matrix& narrow);

}  // namespace ops
}  // namespace trafo
