#include "engine/ops/fp8/fp8.h"

#include "engine/core/checked.h"
#include "engine/core/shape_text.h"
#include "engine/ops/fp8/fp8_magnitudes.h"
#include "engine/ops/op_kernel.h"

namespace trafo::ops {

Tensor fp8_bytes(Context& context, int64_t elements) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(int32_t));
  return context.empty({(elements + kBytes - 1) / kBytes}, DType::i32);
}

Fp8Matrix fp8_matrix(Context& context, Fp8Format format, int64_t rows, int64_t columns,
                     Fp8Copies copies) {
  const int64_t elements = checked_mul(padded_fp8(rows), padded_fp8(columns), "fp8");
  Fp8Matrix m;
  m.format = format;
  m.rows = rows;
  m.columns = columns;
  m.scale = context.empty({2}, DType::f32);
  if (copies != Fp8Copies::transposed) m.values = fp8_bytes(context, elements);
  if (copies != Fp8Copies::stored) m.transposed = fp8_bytes(context, elements);
  return m;
}

Fp8Item fp8_item(const Tensor& x, const Fp8Matrix& m) {
  const auto bytes = [](const Tensor& copy) { return copy.defined() ? copy.raw() : nullptr; };
  return {m.rows, m.columns, x.raw(), m.scales(), bytes(m.values), bytes(m.transposed), nullptr};
}

Fp8Matrix to_fp8(Context& context, const char* op, const Tensor& x, Fp8Format format,
                 Fp8Copies copies) {
  const Fp8Matrix m = fp8_matrix(context, format, x.dim(0), x.dim(1), copies);
  Fp8Item item = fp8_item(x, m);
  item.largest = Fp8Magnitudes::find(context, x);
  launch(context, OpKernel::fp8_quantize, op, Fp8QuantizeParams{x.dtype(), format, 1, &item});
  return m;
}

void fp8_product(const Context& context, const char* op, const Fp8Operand& a, const Fp8Operand& b,
                 int64_t rows, DType dtype, void* c, const Tensor& bias, bool accumulate) {
  Fp8GemmParams p{};
  p.dtype = dtype;
  p.a_format = a.format;
  p.b_format = b.format;
  p.m = rows;
  p.n = b.rows;
  p.k = b.columns;
  p.a = a.values;
  p.b = b.values;
  p.a_scale = a.scale;
  p.b_scale = b.scale;
  p.c = c;
  p.bias = bias.defined() ? bias.raw() : nullptr;
  p.accumulate = accumulate;
  launch(context, OpKernel::fp8_gemm, op, p);
}

void require_fp8_device(const Context& context, const char* op) {
  Fp8GemmParams none{};
  none.dtype = context.device().kind == DeviceKind::cpu ? DType::f32 : DType::bf16;
  launch(context, OpKernel::fp8_gemm, op, none);  // looks at the card before the sizes
}

void require_fp8_dtype(const Context& context, const char* op, const Tensor& x) {
  const bool cpu = context.device().kind == DeviceKind::cpu;
  require(x.dtype() == (cpu ? DType::f32 : DType::bf16), ErrorCode::dtype_mismatch, op,
          "FP8 is for ", cpu ? "float32" : "bfloat16", " on ", context.device(), ", x is ",
          dtype_name(x.dtype()));
}

void require_fp8_multiple(const char* op, const char* what, int64_t size) {
  require(size % kFp8Multiple == 0, ErrorCode::invalid_argument, op, "FP8 needs a multiple of ",
          kFp8Multiple, " as ", what, ", got ", size);
}

void require_fp8_weight(const char* op, const Tensor& weight, const Fp8Matrix& narrow) {
  require(narrow.rows == weight.dim(0) && narrow.columns == weight.dim(1) &&
              narrow.format == Fp8Format::e4m3 && narrow.values.defined() &&
              narrow.transposed.defined(),
          ErrorCode::shape_mismatch, op, "the weight ", weight.shape(),
          " needs both copies of a matrix of this shape in E4M3, the FP8 weight is [", narrow.rows,
          ", ", narrow.columns, "]");
}

}  // namespace trafo::ops
