#include "engine/ops/fp8/fp8.h"

#include "engine/core/checked.h"
#include "engine/ops/op_kernel.h"

namespace trafo::ops {

Tensor fp8_bytes(Context& context, int64_t elements) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(int32_t));
  return context.empty({(elements + kBytes - 1) / kBytes}, DType::i32);
}

Fp8Matrix to_fp8(Context& context, const char* op, const Tensor& x, Fp8Format format,
                 bool transposed) {
  Fp8Matrix m;
  m.format = format;
  m.rows = x.dim(0);
  m.columns = x.dim(1);
  m.scale = context.empty({2}, DType::f32);
  m.values = fp8_bytes(context, x.numel());
  if (transposed) m.transposed = fp8_bytes(context, x.numel());
  launch(context, OpKernel::fp8_scale, op,
         Fp8ScaleParams{x.dtype(), format, x.numel(), x.raw(), 1, m.scales()});
  launch(context, OpKernel::fp8_quantize, op,
         Fp8QuantizeParams{x.dtype(), format, m.rows, m.columns, x.raw(), m.scales(),
                           m.values.raw(), transposed ? m.transposed.raw() : nullptr});
  return m;
}

void fp8_product(const Context& context, const char* op, const Fp8Operand& a, const Fp8Operand& b,
                 int64_t rows, DType dtype, void* c, const Tensor& bias) {
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
          "FP8 is for ", cpu ? "float32" : "bfloat16", " on ", device_name(context.device()),
          ", x is ", dtype_name(x.dtype()));
}

void require_fp8_multiple(const char* op, const char* what, int64_t size) {
  require(size % kFp8Multiple == 0, ErrorCode::invalid_argument, op, "FP8 needs a multiple of ",
          kFp8Multiple, " as ", what, ", got ", size);
}

}  // namespace trafo::ops
