// Speed of gemm_cpu on the shapes of a small translation model, next to OpenBLAS with one thread:
//   bench_gemm [seconds per measurement]
// Times are the shortest of the repetitions, so that other load on the machine disturbs them least.
#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "engine/backend/cpu/gemm.h"
#include "engine/backend/cpu/simd.h"

namespace {

using trafo::GemmParams;
using trafo::ThreadPool;

struct Shape {
  const char* what;
  int64_t m, n, k;
  bool trans_a = false, trans_b = false, accumulate = false;
};

double shortest(double budget, const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  run();
  double best = INFINITY;
  double total = 0;
  for (int count = 0; total < budget || count < 3; ++count) {
    const auto begin = Clock::now();
    run();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

std::vector<float> random_values(int64_t count) {
  static std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

// Largest error of some elements against sums in double, relative to the sum of magnitudes.
double relative_error(const GemmParams& p, const std::vector<float>& c) {
  std::mt19937 random(2);
  const auto* a = static_cast<const float*>(p.a);
  const auto* b = static_cast<const float*>(p.b);
  double worst = 0;
  for (int sample = 0; sample < 2000; ++sample) {
    const int64_t i = static_cast<int64_t>(random() % static_cast<uint64_t>(p.m));
    const int64_t j = static_cast<int64_t>(random() % static_cast<uint64_t>(p.n));
    double sum = 0;
    double magnitude = 0;
    for (int64_t k = 0; k < p.k; ++k) {
      const double product = static_cast<double>(p.trans_a ? a[k * p.lda + i] : a[i * p.lda + k]) *
                             (p.trans_b ? b[j * p.ldb + k] : b[k * p.ldb + j]);
      sum += product;
      magnitude += std::abs(product);
    }
    worst = std::max(worst, std::abs(c[static_cast<size_t>(i * p.ldc + j)] - sum) / magnitude);
  }
  return worst;
}

void measure(const Shape& shape, double budget) {
  const auto a = random_values(shape.m * shape.k);
  const auto b = random_values(shape.k * shape.n);
  std::vector<float> c(static_cast<size_t>(shape.m * shape.n));
  GemmParams p;
  p.m = shape.m;
  p.n = shape.n;
  p.k = shape.k;
  p.trans_a = shape.trans_a;
  p.trans_b = shape.trans_b;
  p.accumulate = shape.accumulate;
  p.lda = shape.trans_a ? shape.m : shape.k;
  p.ldb = shape.trans_b ? shape.k : shape.n;
  p.ldc = shape.n;
  p.a = a.data();
  p.b = b.data();
  p.c = c.data();

  const auto blas = [&] {
    cblas_sgemm(CblasRowMajor, shape.trans_a ? CblasTrans : CblasNoTrans,
                shape.trans_b ? CblasTrans : CblasNoTrans, static_cast<int>(p.m),
                static_cast<int>(p.n), static_cast<int>(p.k), 1.0f, a.data(),
                static_cast<int>(p.lda), b.data(), static_cast<int>(p.ldb),
                p.accumulate ? 1.0f : 0.0f, c.data(), static_cast<int>(p.ldc));
  };
  ThreadPool one(1);
  ThreadPool two(2);
  // Interleaved, so that a slow spell of the machine meets all three.
  double times[3] = {INFINITY, INFINITY, INFINITY};
  for (int round = 0; round < 3; ++round) {
    times[0] = std::min(times[0], shortest(budget / 3, [&] { trafo::gemm_cpu(one, p); }));
    times[1] = std::min(times[1], shortest(budget / 3, [&] { trafo::gemm_cpu(two, p); }));
    times[2] = std::min(times[2], shortest(budget / 3, blas));
  }
  std::fill(c.begin(), c.end(), 0.0f);
  trafo::gemm_cpu(one, p);
  const double error = relative_error(p, c);
  const double work =
      2e-9 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  std::printf("%-18s %6lld %6lld %6lld  %c%c%c %9.1f %9.1f %9.1f %8.2f %8.2f  %.1e\n", shape.what,
              static_cast<long long>(p.m), static_cast<long long>(p.n), static_cast<long long>(p.k),
              p.trans_a ? 'T' : 'N', p.trans_b ? 'T' : 'N', p.accumulate ? '+' : ' ',
              work / times[0], work / times[1], work / times[2], times[2] / times[0],
              times[0] / times[1], error);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const double budget = argc > 1 ? std::atof(argv[1]) : 0.3;
  openblas_set_num_threads(1);
  const Shape shapes[] = {
      {"qkv", 4096, 384, 128},
      {"attention out", 4096, 128, 128},
      {"cross kv", 4096, 256, 128},
      {"ffn up", 4096, 256, 128},
      {"ffn down", 4096, 128, 256},
      {"ffn up x8", 4096, 1024, 128},
      {"d ffn up", 4096, 128, 256, false, true},
      {"d qkv", 4096, 128, 384, false, true},
      {"logits 256", 256, 8000, 128, false, true},
      {"logits 512", 512, 8000, 128, false, true},
      {"d logits 256", 256, 128, 8000},
      {"d logits 512", 512, 128, 8000},
      {"dW vocab 256", 8000, 128, 256, true, false, true},
      {"dW vocab 512", 8000, 128, 512, true, false, true},
      {"dW qkv", 128, 384, 4096, true, false, true},
      {"dW ffn", 128, 256, 4096, true, false, true},
      {"dW out", 128, 128, 4096, true, false, true},
      {"base qkv", 4096, 1536, 512},
      {"base ffn up", 4096, 2048, 512},
      {"base ffn down", 4096, 512, 2048},
      {"base logits", 512, 32000, 512, false, true},
      {"base d logits", 512, 512, 32000},
      {"base dW vocab", 32000, 512, 512, true, false, true},
      {"base dW ffn", 512, 2048, 4096, true, false, true},
      {"decode logits 1", 1, 8000, 128, false, true},
      {"decode logits 4", 4, 8000, 128, false, true},
      {"decode logits 8", 8, 8000, 128, false, true},
      {"decode logits 16", 16, 8000, 128, false, true},
      {"decode logits 64", 64, 8000, 128, false, true},
      {"decode logits 1", 1, 8000, 128},
      {"decode logits 4", 4, 8000, 128},
      {"decode logits 8", 8, 8000, 128},
      {"decode logits 16", 16, 8000, 128},
      {"decode logits 64", 64, 8000, 128},
      {"decode qkv 1", 1, 384, 128},
      {"decode qkv 8", 8, 384, 128},
      {"decode qkv 64", 64, 384, 128},
      {"decode ffn 64", 64, 128, 256},
  };
  std::printf("gemm_cpu, float32, %s; GFLOP/s\n", trafo::simd_target_name());
  std::printf("%-18s %6s %6s %6s  %3s %9s %9s %9s %8s %8s  %s\n", "", "m", "n", "k", "op",
              "1 thread", "2 threads", "OpenBLAS", "ratio", "speed-up", "error");
  for (const Shape& shape : shapes) measure(shape, budget);
  return 0;
}
