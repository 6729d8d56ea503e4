#include "engine/backend/cpu/gemm.h"

#include <atomic>

#include "engine/backend/cpu/gemm_internal.h"
#include "engine/backend/cpu/scratch.h"
#include "engine/backend/cpu/simd.h"
#include "engine/core/status.h"

namespace trafo {
namespace {

std::atomic<int64_t> scratch_total{0};

// GEMMs below this many multiplications are not worth a hand-over to another thread.
constexpr int64_t kSmallGemm = 1 << 20;

void check(const GemmParams& p) {
  const auto fits = [](bool ok, const char* what, int64_t ld, int64_t width) {
    require(ok && ld >= width, ErrorCode::invalid_argument, "gemm", "the leading dimension of ",
            what, " must be at least ", width, ", not ", ld);
  };
  require(is_compute(p.dtype), ErrorCode::dtype_mismatch, "gemm",
          "the CPU multiplies float32 or float64, not ", dtype_name(p.dtype));
  require(p.m >= 0 && p.n >= 0 && p.k >= 0 && p.batch >= 0, ErrorCode::invalid_argument, "gemm",
          "sizes must not be negative: m ", p.m, ", n ", p.n, ", k ", p.k, ", batch ", p.batch);
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  require(p.c != nullptr, ErrorCode::invalid_argument, "gemm", "C is null");
  fits(true, "C", p.ldc, p.n);
  if (p.k == 0) return;
  require(p.a != nullptr && p.b != nullptr, ErrorCode::invalid_argument, "gemm", "A or B is null");
  fits(true, "A", p.lda, p.trans_a ? p.m : p.k);
  fits(true, "B", p.ldb, p.trans_b ? p.k : p.n);
}

template <class T>
void gemm_without_k(const GemmParams& p) {
  const T* bias = static_cast<const T*>(p.bias);
  for (int64_t i = 0; i < p.m; ++i) {
    T* row = static_cast<T*>(p.c) + i * p.ldc;
    for (int64_t j = 0; j < p.n; ++j)
      row[j] = (p.accumulate ? row[j] : T{0}) + (bias ? bias[j] : T{0});
  }
}

template <class T>
void gemm_batch(ThreadPool& pool, const GemmParams& p,
                void (*run)(ThreadPool&, const GemmParams&)) {
  const auto item = [&](int64_t index) {
    GemmParams one = p;
    one.batch = 1;
    one.a = static_cast<const T*>(p.a) + index * p.stride_a;
    one.b = static_cast<const T*>(p.b) + index * p.stride_b;
    one.c = static_cast<T*>(p.c) + index * p.stride_c;
    if (p.k == 0)
      gemm_without_k<T>(one);
    else
      run(pool, one);
  };
  // Small GEMMs run whole, one a block; large ones are themselves cut into blocks (inside a
  // block, that runs inline).
  const int64_t work = p.m * p.n * std::max<int64_t>(p.k, 1);
  if (p.batch > 1 && work < 16 * kSmallGemm) {
    parallel_for_range(pool, p.batch, std::max<int64_t>(1, kSmallGemm / work / 4),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t index = begin; index < end; ++index) item(index);
                       });
  } else {
    for (int64_t index = 0; index < p.batch; ++index) item(index);
  }
}

void gemm_fastest_bf16(ThreadPool& pool, const GemmParams& p) {
  gemm_bf16(pool, p, bf16_instructions().front());
}

}  // namespace

int64_t gemm_scratch_bytes() {
  return scratch_total.load(std::memory_order_relaxed);
}

void* gemm_local_scratch(int64_t bytes) {
  thread_local ScratchBuffer buffer(scratch_total);
  return buffer.get(static_cast<size_t>(bytes));
}

void* gemm_shared_scratch(int64_t bytes) {
  thread_local ScratchBuffer buffer(scratch_total);
  return buffer.get(static_cast<size_t>(bytes));
}

bool has_bf16_gemm() {
  return !bf16_instructions().empty();
}

void gemm_cpu(ThreadPool& pool, const GemmParams& params, DType multiply) {
  check(params);
  if (multiply == DType::bf16)
    require(has_bf16_gemm(), ErrorCode::unsupported, "gemm", kNoBf16Gemm);
  if (params.m == 0 || params.n == 0 || params.batch == 0) return;
  if (params.dtype == DType::f32)
    gemm_batch<float>(pool, params, multiply == DType::bf16 ? gemm_fastest_bf16 : gemm_f32);
  else
#ifdef TRAFO_WITHOUT_FLOAT64
    refuse_float64();
#else
    gemm_batch<double>(pool, params, gemm_f64);
#endif
}

}  // namespace trafo
