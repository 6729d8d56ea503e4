// The family of element-by-element functions that one strided kernel computes, with NumPy
// broadcasting: functions of one tensor (x), of two (a, b), comparisons, and choices by a mask.
//
//   abs |x|   sin   cos   erf   power x^e   clamp min(max(x, low), high)
//   maximum   minimum   pow a^b   compare a < b and others -> 1 or 0
//   where: a where the mask is not 0, else b   masked_fill: a number where it is not 0, else x
//
// Comparisons give int32, and masks are int32: a result of one can be the mask of another op.
//
// Gradients follow from the formulas, summed over broadcast dimensions in a fixed order. At a kink
// they are PyTorch's: 0 for |0|, the whole gradient inside of and at the bounds of clamp, half for
// each of two equal elements of maximum and minimum. NaN stays NaN.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

enum class PointwiseKind : int32_t {
  abs = 0,
  sin = 1,
  cos = 2,
  erf = 3,
  power = 4,
  clamp = 5,
  maximum = 6,
  minimum = 7,
  pow = 8,
  where = 9,
  masked_fill = 10,
  equal = 11,  // the comparisons are last, in the order of Comparison
  not_equal = 12,
  less = 13,
  less_equal = 14,
  greater = 15,
  greater_equal = 16
};

constexpr bool is_comparison(PointwiseKind kind) {
  return kind >= PointwiseKind::equal;
}

// A comparison of two numbers, for the kernels of every device.
template <class T>
constexpr bool holds(PointwiseKind kind, T a, T b) {
  switch (kind) {
    case PointwiseKind::equal:
      return a == b;
    case PointwiseKind::not_equal:
      return a != b;
    case PointwiseKind::less:
      return a < b;
    case PointwiseKind::less_equal:
      return a <= b;
    case PointwiseKind::greater:
      return a > b;
    default:
      return a >= b;
  }
}

// out = f(a, b, mask) over `shape`; a broadcast dimension has stride 0. Members that a kind does
// not read are null.
struct PointwiseForwardParams {
  DType dtype;  // of a and b; int32 for comparisons and choices only
  PointwiseKind kind;
  double first, second;  // power: e; clamp: low, high; masked_fill: the number
  int32_t rank;
  int64_t shape[kMaxRank];
  int64_t strides[3][kMaxRank];  // of a, b and mask
  const void* a;
  const void* b;
  const int32_t* mask;
  void* out;  // contiguous, of `dtype`; int32 for comparisons
};

// Gradients before the broadcast sum, both contiguous over `shape`; null where not wanted.
struct PointwiseBackwardParams {
  DType dtype;
  PointwiseKind kind;
  double first, second;
  int32_t rank;
  int64_t shape[kMaxRank];
  int64_t strides[3][kMaxRank];
  const void* a;
  const void* b;
  const int32_t* mask;
  const void* dout;  // contiguous
  void* da;
  void* db;
};

// Values are part of the C ABI.
enum class Comparison : int32_t {
  equal = 0,
  not_equal = 1,
  less = 2,
  less_equal = 3,
  greater = 4,
  greater_equal = 5
};

namespace ops {

Tensor abs(Context& context, const Tensor& x);
Tensor sin(Context& context, const Tensor& x);
Tensor cos(Context& context, const Tensor& x);
// 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x.
Tensor erf(Context& context, const Tensor& x);
// x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2: the exact GELU (arXiv 1606.08415).
Tensor gelu_erf(Context& context, const Tensor& x);
// x^exponent. NaN for a negative x with an exponent that is no integer.
Tensor power(Context& context, const Tensor& x, double exponent);
// low <= high; either may be infinite.
Tensor clamp(Context& context, const Tensor& x, double low, double high);

Tensor maximum(Context& context, const Tensor& a, const Tensor& b);
Tensor minimum(Context& context, const Tensor& a, const Tensor& b);
// a^b.
Tensor pow(Context& context, const Tensor& a, const Tensor& b);

// a and b floating-point or int32, of one dtype. -> int32: 1 where the comparison holds, else 0. A
// comparison with NaN is 0, except not_equal. No gradient.
Tensor compare(Context& context, const Tensor& a, const Tensor& b, Comparison comparison);
// The same with a number. INVALID_ARGUMENT if a is int32 and the number is no int32.
Tensor compare(Context& context, const Tensor& a, double b, Comparison comparison);
// mask int32; a and b floating-point or int32, of one dtype; all three broadcast. An operand that
// is not chosen affects neither values nor gradients.
Tensor where(Context& context, const Tensor& mask, const Tensor& a, const Tensor& b);
// `value` where the mask is not 0, else x. INVALID_ARGUMENT if x is int32 and the value is no
// int32.
Tensor masked_fill(Context& context, const Tensor& x, const Tensor& mask, double value);
// x below (tril) or above (triu) a diagonal of its last two dimensions, and on it, else 0: elements
// [.., i, j] with j - i <= diagonal (tril) or j - i >= diagonal (triu) stay. rank(x) >= 2.
Tensor tril(Context& context, const Tensor& x, int64_t diagonal);
Tensor triu(Context& context, const Tensor& x, int64_t diagonal);

}  // namespace ops
}  // namespace trafo
