// Gradients of weights and biases of one layer, and of a chunk of the vocabulary loss: a GEMM and a
// column sum each, against one launch that does both (Backend::grouped_gemm). Only where the
// device has this launch.
#include <algorithm>
#include <cstdio>

#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "tests/bench/op_sections.h"

namespace trafo::bench {
namespace {

struct Layer {
  int64_t outputs, inputs;
  bool bias;
};

struct Case {
  const char* name;
  int64_t tokens;
  std::vector<Layer> layers;
};

// The layers of a block; biases that another kernel sums up are left out. "logits": a chunk.
std::vector<Case> cases(bool quick) {
  if (quick) return {{"small", 512, {{192, 64, true}, {64, 64, false}}}};
  const auto block = [](const char* name, int64_t tokens, int64_t c) {
    return Case{
        name, tokens, {{3 * c, c, true}, {c, c, false}, {4 * c, c, false}, {c, 4 * c, false}}};
  };
  return {{"124M qkv", 32768, {{2304, 768, true}}},
          {"124M up", 32768, {{3072, 768, false}}},
          block("124M block", 32768, 768),
          {"124M logits", 5472, {{50304, 768, true}}},
          {"350M qkv", 16384, {{3072, 1024, true}}},
          block("350M block", 16384, 1024),
          {"350M logits", 4096, {{50304, 1024, true}}},
          block("1558M block", 8192, 1600),
          {"1558M logits", 2736, {{50304, 1600, true}}},
          {"big logits", 3200, {{32000, 1024, true}}},
          {"base logits", 1568, {{32000, 512, true}}},
          {"iwslt logits", 3040, {{10000, 512, true}}},
          {"hw3 logits", 3904, {{10000, 256, true}}}};
}

int64_t elements(const Case& c, int64_t Layer::*width) {
  int64_t sum = 0;
  for (const Layer& layer : c.layers) sum += c.tokens * layer.*width;
  return sum;
}

// Random values, made once and repeated: making all of them on the host takes long.
Tensor repeated(Context& context, int64_t count) {
  const int64_t piece = std::min<int64_t>(count, int64_t{1} << 22);
  const Tensor values = random_tensor(context, {piece}, DType::bf16).tensor;
  const Tensor all = context.empty({count}, DType::bf16);
  for (int64_t at = 0; at < count; at += piece)
    context.backend().copy(static_cast<std::byte*>(all.raw()) + 2 * at, values.raw(),
                           static_cast<size_t>(2 * std::min(piece, count - at)));
  return all;
}

void measure_case(OpBench& bench, const Case& c, const Tensor& dy, const Tensor& x,
                  const Tensor& dw, const Tensor& db) {
  Context& context = bench.context;
  Backend& backend = context.backend();
  std::vector<GemmParams> gemms;
  double operations = 0;
  int64_t dy_at = 0, x_at = 0, dw_at = 0, db_at = 0;
  for (const Layer& layer : c.layers) {
    GemmParams p;
    p.dtype = DType::bf16;
    p.trans_a = p.c_is_f32 = true;
    p.m = layer.outputs;
    p.n = layer.inputs;
    p.k = c.tokens;
    p.a = static_cast<const BFloat16*>(dy.raw()) + dy_at;
    p.b = static_cast<const BFloat16*>(x.raw()) + x_at;
    p.c = static_cast<float*>(dw.raw()) + dw_at;
    p.lda = layer.outputs;
    p.ldb = p.ldc = layer.inputs;
    p.accumulate = c.layers.size() == 1 && layer.outputs >= 10000;  // chunks after the first
    p.accumulate_a_sums = p.accumulate;
    if (layer.bias) p.a_sums = static_cast<float*>(db.raw()) + db_at;
    dy_at += p.k * p.m;
    x_at += p.k * p.n;
    dw_at += p.m * p.n;
    db_at += p.m;
    operations += 2.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k);
    gemms.push_back(p);
  }
  const auto time = [&](const auto& body) { return time_forward(context, bench.sampling, body); };
  const double apart = time([&] {
    for (const GemmParams& p : gemms) backend.gemm(p);
  });
  const double sums = time([&] {
    for (const GemmParams& p : gemms)
      if (p.a_sums)
        launch(context, OpKernel::column_sum, "bench",
               ColumnSumParams{p.dtype, p.accumulate_a_sums, p.k, p.m, p.a, p.a_sums});
  });
  const double together = time([&] { backend.grouped_gemm(gemms); });
  std::vector<GemmParams> without = gemms;
  for (GemmParams& p : without) p.a_sums = nullptr;
  const double without_sums = time([&] { backend.grouped_gemm(without); });
  const auto rate = [&](double us) { return operations / us / 1e6; };
  std::fprintf(
      stderr,
      "%-14s %7lld tokens: GEMMs %8.1f us (%5.0f TFLOP/s), column sums %7.1f us; one launch "
      "%8.1f us (%5.0f), without sums %8.1f us (%5.0f)\n",
      c.name, static_cast<long long>(c.tokens), apart, rate(apart), sums, together, rate(together),
      without_sums, rate(without_sums));
  bench.report.add({{"sec", "weight_gradients"},
                    {"op", c.name},
                    {"dt", "bf16"},
                    {"tokens", c.tokens},
                    {"gemms_us", apart},
                    {"column_sums_us", sums},
                    {"launch_us", together},
                    {"launch_without_sums_us", without_sums}});
}

}  // namespace

void bench_weight_gradients(OpBench& bench) {
  Context& context = bench.context;
  if (!context.backend().groups_gemms(DType::bf16)) {
    std::fprintf(stderr, "weight_gradients left out: this device has no launch for several\n");
    return;
  }
  const std::vector<Case> all = cases(bench.quick);
  int64_t dy = 0, x = 0, dw = 0, db = 0;
  for (const Case& c : all) {
    dy = std::max(dy, elements(c, &Layer::outputs));
    x = std::max(x, elements(c, &Layer::inputs));
    int64_t weights = 0, biases = 0;
    for (const Layer& layer : c.layers) {
      weights += layer.outputs * layer.inputs;
      biases += layer.outputs;
    }
    dw = std::max(dw, weights);
    db = std::max(db, biases);
  }
  std::fprintf(stderr, "\nGradients of weights and biases in bf16\n");
  guarded(bench, {{"sec", "weight_gradients"}}, [&] {
    const Tensor a = repeated(context, dy), b = repeated(context, x);
    const Tensor c = context.zeros({dw}, DType::f32), sums = context.zeros({db}, DType::f32);
    for (const Case& one : all) measure_case(bench, one, a, b, c, sums);
  });
}

}  // namespace trafo::bench
