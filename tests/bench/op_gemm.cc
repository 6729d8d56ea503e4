// GEMMs of the workloads: what the library proposes first and the fastest of its
// proposals, with and without epilogues, and the kernels that epilogues stand for. Only where a
// GEMM has several kernels.
#include <algorithm>
#include <cstdio>

#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "tests/bench/op_sections.h"

namespace trafo::bench {
namespace {

struct Workload {
  const char* name;
  int64_t tokens, width, ffn, vocabulary;
};

constexpr Workload kWorkloads[] = {
    {"gpt2-124m", 32768, 768, 3072, 50304},
    {"gpt2-350m", 16384, 1024, 4096, 50304},
    {"big", 12800, 1024, 4096, 32000},
    {"base", 19456, 512, 2048, 32000},
};
constexpr Workload kSmall{"small", 512, 64, 256, 1024};

// Chunks of logits hold this many bytes (engine/ops/linear_cross_entropy).
constexpr int64_t kChunkBytes = int64_t{256} << 20;

// Operands of every GEMM lie in the same memory: their values do not matter to the time as long
// as they are random.
struct Operands {
  Tensor a, b, c, aux;
  Tensor bias, sums;

  Operands(Context& context, int64_t elements, int64_t widest)
      : a(random_tensor(context, {elements}, DType::bf16).tensor),
        b(random_tensor(context, {elements}, DType::bf16).tensor),
        c(context.empty({elements}, DType::f32)),
        aux(random_tensor(context, {elements}, DType::bf16).tensor),
        bias(random_tensor(context, {widest}, DType::bf16).tensor),
        sums(context.empty({widest}, DType::f32)) {}
};

struct Gemms {
  OpBench& bench;
  GemmTuner& tuner;
  const Operands& operands;
  const Workload& workload;

  void add(Json row, const std::vector<float>& us, double operations) const {
    if (us.empty()) {
      row["kernels"] = 0;
      std::fprintf(stderr, "%-11s %-10s %-14s %-18s no kernel\n", workload.name,
                   row["op"].get<std::string>().c_str(), row["mode"].get<std::string>().c_str(),
                   row["shape"].dump().c_str());
      bench.report.add(row);
      return;
    }
    const auto best = std::min_element(us.begin(), us.end());
    row["first_us"] = us[0];
    row["best_us"] = *best;
    row["best"] = best - us.begin();
    row["kernels"] = us.size();
    row["first_TF"] = operations / us[0] / 1e6;
    row["best_TF"] = operations / *best / 1e6;
    std::fprintf(stderr, "%-11s %-10s %-14s %-18s %9.1f %9.1f %7.1f %7.1f %6.3f  %d of %zu\n",
                 workload.name, row["op"].get<std::string>().c_str(),
                 row["mode"].get<std::string>().c_str(), row["shape"].dump().c_str(), us[0], *best,
                 operations / us[0] / 1e6, operations / *best / 1e6, us[0] / *best,
                 static_cast<int>(best - us.begin()), us.size());
    bench.report.add(row);
  }

  void gemm(const char* op, const char* mode, const GemmParams& p) const {
    const Json row{{"sec", "gemm"}, {"model", workload.name}, {"op", op},
                   {"mode", mode},  {"dt", "bf16"},           {"shape", {p.m, p.n, p.k}}};
    guarded(bench, row, [&] {
      add(row, tuner.measure(p),
          2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k));
    });
  }

  GemmParams params(int64_t m, int64_t n, int64_t k) const {
    GemmParams p;
    p.dtype = DType::bf16;
    p.m = m;
    p.n = n;
    p.k = k;
    p.a = operands.a.raw();
    p.b = operands.b.raw();
    p.c = operands.c.raw();
    p.lda = k;
    p.ldb = p.ldc = n;
    return p;
  }

  // y = x W^T and its gradients, W [out, in].
  void layer(const std::string& name, int64_t rows, int64_t in, int64_t out) const {
    GemmParams forward = params(rows, out, in);
    forward.trans_b = true;
    forward.ldb = in;
    gemm(name.c_str(), "forward", forward);
    GemmParams with_bias = forward;
    with_bias.bias = operands.bias.raw();
    gemm(name.c_str(), "+ bias", with_bias);
    if (name == "up") {
      GemmParams active = with_bias;
      active.epilogue = Epilogue::relu;
      gemm(name.c_str(), "+ bias, relu", active);
      active.epilogue = Epilogue::gelu;
      gemm(name.c_str(), "+ bias, gelu", active);
      active.aux = operands.aux.raw();
      gemm(name.c_str(), "+ ... and aux", active);
    }
    GemmParams dx = params(rows, in, out);
    gemm(name.c_str(), "dx", dx);
    if (name == "down") {
      dx.epilogue = Epilogue::dgelu;
      dx.aux = operands.aux.raw();
      gemm(name.c_str(), "dx, dgelu", dx);
    }
    GemmParams dw = params(out, in, rows);
    dw.trans_a = true;
    dw.lda = out;
    dw.c_is_f32 = true;
    gemm(name.c_str(), "dw", dw);
    GemmParams added = dw;
    added.accumulate = true;
    gemm(name.c_str(), "dw added", added);
  }

  // A kernel that an epilogue takes the place of.
  void kernel(const char* op, int64_t rows, int64_t width, double tensors,
              const std::function<void()>& launch) const {
    Json row{{"sec", "gemm"},    {"model", workload.name}, {"op", op},
             {"mode", "kernel"}, {"dt", "bf16"},           {"shape", {rows, width}}};
    guarded(bench, row, [&] {
      const double us = time_forward(bench.context, bench.sampling, launch);
      const double rate =
          tensors * 2 * static_cast<double>(rows) * static_cast<double>(width) / us / 1e3;
      row["kernel_us"] = us;
      row["GBps"] = rate;
      std::fprintf(stderr, "%-11s %-25s %-18s %9.1f us %9.1f GB/s\n", workload.name, op,
                   row["shape"].dump().c_str(), us, rate);
      bench.report.add(row);
    });
  }

  void kernels() const {
    Context& context = bench.context;
    const int64_t rows = workload.tokens, width = workload.ffn;
    BiasActDropoutForwardParams forward{};
    forward.dtype = DType::bf16;
    forward.activation = Activation::gelu;
    forward.rows = rows;
    forward.width = width;
    forward.x = operands.a.raw();
    forward.bias = operands.bias.raw();
    forward.y = operands.c.raw();
    kernel("gelu(x + bias)", rows, width, 2,
           [&] { launch(context, OpKernel::bias_act_dropout_forward, "bench", forward); });
    BiasActDropoutBackwardParams backward{};
    backward.dtype = DType::bf16;
    backward.activation = Activation::gelu;
    backward.rows = rows;
    backward.width = width;
    backward.x = operands.a.raw();
    backward.bias = operands.bias.raw();
    backward.dy = operands.b.raw();
    backward.dx = operands.c.raw();
    backward.dbias = operands.sums.raw();
    kernel("its gradient and dbias", rows, width, 3,
           [&] { launch(context, OpKernel::bias_act_dropout_backward, "bench", backward); });
    const auto sum = [&](const char* op, int64_t columns) {
      const ColumnSumParams p{DType::bf16,        false, rows, columns, operands.a.raw(),
                              operands.sums.raw()};
      kernel(op, rows, columns, 1, [&] { launch(context, OpKernel::column_sum, "bench", p); });
    };
    sum("dbias of up", width);
    sum("dbias of qkv", 3 * workload.width);
  }
};

}  // namespace

void bench_gemms(OpBench& bench) {
  GemmTuner* tuner = bench.context.backend().gemm_tuner();
  if (!tuner) {
    std::fprintf(stderr, "gemm left out: a GEMM has one kernel on this device\n");
    return;
  }
  std::vector<Workload> workloads{kSmall};
  if (!bench.quick) workloads.assign(std::begin(kWorkloads), std::end(kWorkloads));
  int64_t elements = 0, widest = 0;
  const auto chunk = [](const Workload& w) {
    return std::min(w.tokens, kChunkBytes / (2 * w.vocabulary) / 16 * 16);
  };
  for (const Workload& w : workloads) {
    elements = std::max({elements, w.tokens * std::max(3 * w.width, w.ffn),
                         w.vocabulary * std::max(w.width, chunk(w))});
    widest = std::max({widest, 3 * w.width, w.ffn, w.vocabulary});
  }
  std::fprintf(stderr, "\nGEMMs on %s: us and TFLOP/s of the first proposal and of the best\n",
               tuner->library().c_str());
  guarded(bench, {{"sec", "gemm"}}, [&] {
    const Operands operands(bench.context, elements, widest);
    for (const Workload& w : workloads) {
      const Gemms gemms{bench, *tuner, operands, w};
      gemms.layer("qkv", w.tokens, w.width, 3 * w.width);
      gemms.layer("output", w.tokens, w.width, w.width);
      gemms.layer("up", w.tokens, w.width, w.ffn);
      gemms.layer("down", w.tokens, w.ffn, w.width);
      gemms.layer("logits", chunk(w), w.width, w.vocabulary);
      gemms.kernels();
    }
  });
}

}  // namespace trafo::bench
