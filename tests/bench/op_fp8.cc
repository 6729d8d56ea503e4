// Linear layers with FP8 GEMMs: forward and backward as in a training step, and what makes both FP8
// copies of x, with its largest magnitude known and not.
#include <cstdio>

#include "engine/autograd/variable.h"
#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "engine/ops/fp8/fp8_linear.h"
#include "engine/ops/fp8/fp8_magnitudes.h"
#include "engine/ops/matmul/matmul.h"
#include "tests/bench/op_sections.h"

namespace trafo::bench {
namespace {

// [tokens, in, out] of GPT-2 124M, 350M and 1558M, and of big.
std::vector<Shape> layer_shapes(bool quick) {
  if (quick) return {{256, 64, 128}};
  return {{32768, 768, 2304},  {32768, 768, 768},   {32768, 768, 3072},  {32768, 3072, 768},
          {16384, 1024, 3072}, {16384, 1024, 1024}, {16384, 1024, 4096}, {16384, 4096, 1024},
          {8192, 1600, 4800},  {8192, 1600, 1600},  {8192, 1600, 6400},  {8192, 6400, 1600}};
}

void layer_case(OpBench& bench, const Shape& shape) {
  Context& context = bench.context;
  const int64_t tokens = shape[0], in = shape[1], out = shape[2];
  const double operations = 6.0 * static_cast<double>(element_count(shape));
  if (!bench.takes("fp8", shape, static_cast<double>(tokens * (in + out)), operations)) return;
  const DType dtype = bench.on_cpu() ? DType::f32 : DType::bf16;
  Json row{{"sec", "fp8"}, {"dt", dtype_name(dtype)}};
  row["shape"] = std::vector<int64_t>(shape.begin(), shape.end());
  row["device"] = device_name(context.device());
  guarded(bench, row, [&] {
    const RandomTensor x = random_tensor(context, {tokens, in}, dtype);
    const RandomTensor weight = random_tensor(context, {out, in}, dtype, 0.02);
    const RandomTensor dy = random_tensor(context, {tokens, out}, dtype, 1e-3);
    const Tensor dx = context.empty({tokens, in}, dtype);
    const Tensor dweight = context.empty({out, in}, DType::f32);
    const ops::Fp8Matrix narrow =
        ops::to_fp8(context, "fp8", weight.tensor, Fp8Format::e4m3, ops::Fp8Copies::both);
    const auto step = [&](bool fp8) {
      const TapeScope tape(context);
      const Tensor a = make_leaf(x.tensor, dx), w = make_leaf(weight.tensor, dweight);
      context.backward(fp8 ? ops::fp8_linear(context, a, w, narrow) : ops::linear(context, a, w),
                       dy.tensor);
    };
    const auto us = [&](const std::function<void()>& body) {
      body();
      return time_calls(context, bench.sampling, body);
    };
    row["bf16_us"] = us([&] { step(false); });
    row["fp8_us"] = us([&] { step(true); });
    row["quantize_us"] =
        us([&] { ops::to_fp8(context, "fp8", x.tensor, Fp8Format::e4m3, ops::Fp8Copies::both); });
    {
      ops::Fp8Magnitudes magnitudes(context, true);
      const Tensor y = ops::bias_act_dropout(context, x.tensor, {}, Activation::relu, {});
      row["copies_us"] =
          us([&] { ops::to_fp8(context, "fp8", y, Fp8Format::e4m3, ops::Fp8Copies::both); });
    }
    // dW alone, from copies that are there.
    const ops::Fp8Matrix columns =
        ops::to_fp8(context, "fp8", x.tensor, Fp8Format::e4m3, ops::Fp8Copies::transposed);
    const ops::Fp8Matrix gradient =
        ops::to_fp8(context, "fp8", dy.tensor, Fp8Format::e5m2, ops::Fp8Copies::transposed);
    row["dw_fp8_us"] = us([&] {
      ops::fp8_product(context, "fp8", gradient.as_transposed(), columns.as_transposed(), out,
                       DType::f32, dweight.raw());
    });
    GemmParams product;
    product.dtype = dtype;
    product.trans_a = true;
    product.c_is_f32 = dtype == DType::bf16;
    product.m = product.lda = out;
    product.n = product.ldb = product.ldc = in;
    product.k = tokens;
    product.a = dy.tensor.raw();
    product.b = x.tensor.raw();
    product.c = dweight.raw();
    row["dw_bf16_us"] = us([&] { context.backend().gemm(product); });
    // x is read twice and written twice, or read once (on the CPU it is always read twice).
    const auto elements = static_cast<double>(tokens * in),
               size = static_cast<double>(dtype_size(dtype));
    row["quantize_GBs"] = elements * (2 * size + 2) / row["quantize_us"].get<double>() / 1e3;
    row["copies_GBs"] = elements * (size + 2) / row["copies_us"].get<double>() / 1e3;
    std::fprintf(stderr,
                 "fp8 linear %-22s %s %9.1f us, FP8 %9.1f us (%.2f x); dW %7.1f us, FP8 %7.1f us; "
                 "copies of x %7.1f us, %6.0f GB/s; with its scale known %7.1f us, %6.0f GB/s\n",
                 shape.str().c_str(), dtype_name(dtype), row["bf16_us"].get<double>(),
                 row["fp8_us"].get<double>(),
                 row["bf16_us"].get<double>() / row["fp8_us"].get<double>(),
                 row["dw_bf16_us"].get<double>(), row["dw_fp8_us"].get<double>(),
                 row["quantize_us"].get<double>(), row["quantize_GBs"].get<double>(),
                 row["copies_us"].get<double>(), row["copies_GBs"].get<double>());
    bench.report.add(row);
  });
}

}  // namespace

void bench_fp8(OpBench& bench) {
  for (const Shape& shape : layer_shapes(bench.quick)) layer_case(bench, shape);
}

}  // namespace trafo::bench
