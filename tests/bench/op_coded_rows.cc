// Products of a decode step with frozen weights in few bits: x [m, in] W^T of few rows, with the
// codes as they are, with dequantized values, and with a weight in the dtype of x. Each call has
// another copy of the weight, so that it comes from memory and not from a cache. On a device the
// calls are one graph, as the decode steps are.
#include <algorithm>
#include <cstdio>

#include "engine/backend/stream_device.h"
#include "engine/ops/quantized_linear/quantized_linear.h"
#include "tests/bench/op_sections.h"

namespace trafo::bench {
namespace {

constexpr int64_t kColdBytes = int64_t{256} << 20;  // of all copies: some times a cache of 50 MB
constexpr BasePrecision kCodedForms[] = {BasePrecision::int4, BasePrecision::nf4,
                                         BasePrecision::int8};

// [out, in] of a Llama of 1 B parameters.
std::vector<Shape> weight_shapes(bool quick) {
  if (quick) return {{128, 64}};
  return {{2048, 2048}, {512, 2048}, {8192, 2048}, {2048, 8192}};
}

struct RowsBench {
  OpBench& bench;
  DType dtype;
  int64_t out, in;

  int64_t copies(int64_t bytes) const {
    return bench.quick || bench.on_cpu() ? 2 : std::max<int64_t>(2, kColdBytes / bytes);
  }

  // Microseconds a call of `call(i)` for i < count.
  double us(int64_t count, const std::function<void(int64_t)>& call) const {
    const auto all = [&] {
      for (int64_t i = 0; i < count; ++i) call(i);
    };
    const auto calls = static_cast<double>(count);
    StreamDevice* const device = bench.context.backend().stream_device();
    if (!device) return time_forward(bench.context, bench.sampling, all) / calls;
    all();  // loads and tunes
    char reason[256] = "";
    device->begin_capture();
    all();
    void* const graph = device->end_capture(reason, sizeof reason);
    require(graph, ErrorCode::internal, "bench", reason);
    const double time =
        time_forward(bench.context, bench.sampling, [&] { device->launch_graph(graph); });
    device->release_graph(graph);
    return time / calls;
  }

  std::vector<CodedMatrix> coded(BasePrecision precision) const {
    Context& context = bench.context;
    const RandomValues random{1, 0.02, DType::f32};
    std::vector<float> values(static_cast<size_t>(out * in));
    parallel_rows(out * in, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        values[static_cast<size_t>(i)] = static_cast<float>(random.at(i));
    });
    std::vector<CodedMatrix> matrices{make_coded_matrix(context, precision, out, in)};
    std::vector<std::byte> bytes(matrices[0].bytes.bytes());
    encode_base(precision, values, out, in, bytes);
    const int64_t count = copies(static_cast<int64_t>(bytes.size()));
    while (static_cast<int64_t>(matrices.size()) < count)
      matrices.push_back(make_coded_matrix(context, precision, out, in));
    for (const CodedMatrix& matrix : matrices)
      context.backend().copy_from_host(matrix.bytes.raw(), bytes.data(), bytes.size());
    return matrices;
  }

  // y = x W^T with the values of W.
  void gemm(const Tensor& x, const Tensor& values, const Tensor& y) const {
    GemmParams p;
    p.dtype = dtype;
    p.trans_b = true;
    p.m = x.dim(0);
    p.n = p.ldc = out;
    p.k = p.lda = p.ldb = in;
    p.a = x.raw();
    p.b = values.raw();
    p.c = y.raw();
    bench.context.backend().gemm(p);
  }

  Json row(const char* form, int64_t tokens, double bytes, double us) const {
    const double rate = bytes / us / 1e3;
    std::fprintf(stderr, "coded_rows %-5s m %2d  [%5d, %5d] %9.2f us %8.1f GB/s", form,
                 static_cast<int>(tokens), static_cast<int>(out), static_cast<int>(in), us, rate);
    return {{"sec", "coded_rows"},
            {"dt", form},
            {"shape", {tokens, out, in}},
            {"device", device_name(bench.context.device())},
            {"us", us},
            {"GBps", rate}};
  }

  std::vector<Tensor> values() const {
    Context& context = bench.context;
    std::vector<Tensor> weights{random_tensor(context, {out, in}, dtype, 0.02).tensor};
    const size_t bytes = weights[0].bytes();
    while (static_cast<int64_t>(weights.size()) < copies(static_cast<int64_t>(bytes))) {
      weights.push_back(context.empty({out, in}, dtype));
      context.backend().copy(weights.back().raw(), weights[0].raw(), bytes);
    }
    return weights;
  }

  void values_case(const std::vector<Tensor>& weights, int64_t tokens) const {
    Context& context = bench.context;
    const RandomTensor x = random_tensor(context, {tokens, in}, dtype);
    const Tensor y = context.empty({tokens, out}, dtype);
    const double time = us(static_cast<int64_t>(weights.size()),
                           [&](int64_t i) { gemm(x.tensor, weights[static_cast<size_t>(i)], y); });
    const Json figures =
        row(dtype_name(dtype), tokens, static_cast<double>(weights[0].bytes()), time);
    std::fprintf(stderr, "\n");
    bench.report.add(figures);
  }

  void coded_case(const std::vector<CodedMatrix>& weights, int64_t tokens) const {
    Context& context = bench.context;
    const RandomTensor x = random_tensor(context, {tokens, in}, dtype);
    const Tensor y = context.empty({tokens, out}, dtype), values = context.empty({out, in}, dtype);
    const auto count = static_cast<int64_t>(weights.size());
    const auto weight = [&](int64_t i) { return weights[static_cast<size_t>(i)]; };
    const double time = us(
        count, [&](int64_t i) { ops::coded_product(context, x.tensor, weight(i), {}, tokens, y); });
    const double dequantized = us(count, [&](int64_t i) {
      ops::dequantize_into(context, weight(i), {0, 0, out, in}, values);
      gemm(x.tensor, values, y);
    });
    Json figures = row(enum_name(weights[0].precision), tokens,
                       static_cast<double>(weights[0].bytes.bytes()), time);
    figures["dequantize_us"] = dequantized;
    std::fprintf(stderr, "; dequantize and GEMM %9.2f us (%.2f x)\n", dequantized,
                 dequantized / time);
    bench.report.add(figures);
  }
};

}  // namespace

void bench_coded_rows(OpBench& bench) {
  const DType dtype = bench.on_cpu() ? DType::f32 : DType::bf16;
  for (const DType of_x : bench.dtypes_or({dtype}))
    for (const Shape& shape : weight_shapes(bench.quick)) {
      const RowsBench rows{bench, of_x, shape[0], shape[1]};
      const Json identity{{"sec", "coded_rows"}, {"shape", {shape[0], shape[1]}}};
      guarded(bench, identity, [&] {
        const std::vector<Tensor> weights = rows.values();
        for (const int64_t tokens : {1, 8, 16}) rows.values_case(weights, tokens);
      });
      for (const BasePrecision precision : kCodedForms)
        guarded(bench, identity, [&] {
          const std::vector<CodedMatrix> weights = rows.coded(precision);
          for (const int64_t tokens : {1, 8, 16}) rows.coded_case(weights, tokens);
        });
    }
}

}  // namespace trafo::bench
