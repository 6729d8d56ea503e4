#include "engine/backend/cuda/gemm.h"

#include <limits>
#include <type_traits>

#include "engine/backend/cuda/device/elementwise.cuh"
#include "engine/backend/cuda/gemm_plans.h"
#include "engine/backend/cuda/small_gemms.h"
#include "engine/backend/gemm_kernels.h"

namespace trafo::cuda {

namespace {

// C (+)= bias, or zero without one, row by row; plus dense float32 `sums` [batch, m, n] if there
// are any. A thread takes kWidth neighbours of one row. Index: uint32_t if the count allows it.
template <class B, class C, int kWidth, class Index>
__global__ void __launch_bounds__(256)
    add_bias(C* c, const B* bias, const float* sums, int64_t m, int64_t n, int64_t ldc,
             int64_t count, int64_t stride_c, bool accumulate) {
  const int64_t i = (int64_t{blockIdx.x} * 256 + threadIdx.x) * kWidth;
  if (i >= count) return;
  const auto rows = static_cast<Index>(m), columns = static_cast<Index>(n);
  const Index row = static_cast<Index>(i) / columns, item = row / rows;
  const auto column = static_cast<int64_t>(static_cast<Index>(i) - row * columns);
  C* at = c + static_cast<int64_t>(item) * stride_c +
          static_cast<int64_t>(row - item * rows) * ldc + column;
  float sum[kWidth] = {}, term[kWidth];
  const auto add = [&](const auto* from) {
    load_floats(from, term);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum[j] += term[j];
  };
  if (sums) add(sums + i);
  if (bias) add(bias + column);
  if (accumulate) add(at);
  store_floats(at, sum);
}

template <class B, class C>
int32_t launch_add_bias_as(DeviceState& device, const GemmParams& p, bool accumulate,
                           const float* sums) {
  const int64_t count = p.batch * p.m * p.n;
  auto* c = static_cast<C*>(p.c);
  const auto* bias = static_cast<const B*>(p.bias);
  constexpr int kWide = kPackWidth<C>;
  const auto launch = [&](auto width, auto index) {
    constexpr int kWidth = decltype(width)::value;
    const auto blocks = static_cast<unsigned>((count - 1) / (256 * kWidth) + 1);
    add_bias<B, C, kWidth, decltype(index)><<<blocks, 256, 0, device.stream>>>(
        c, bias, sums, p.m, p.n, p.ldc, count, p.stride_c, accumulate);
  };
  const bool small = count < (int64_t{1} << 31);
  if (small && (p.n | p.ldc | p.stride_c) % kWide == 0 && aligned16(c) && aligned16(bias) &&
      aligned16(sums))
    launch(std::integral_constant<int, kWide>{}, uint32_t{});
  else if (small)
    launch(std::integral_constant<int, 1>{}, uint32_t{});
  else
    launch(std::integral_constant<int, 1>{}, uint64_t{});
  return launched(device, "add_bias");
}

int32_t launch_add_bias(DeviceState& device, const GemmParams& p, bool accumulate,
                        const float* sums = nullptr) {
  if (p.dtype == DType::f32) return launch_add_bias_as<float, float>(device, p, accumulate, sums);
  if (p.c_is_f32) return launch_add_bias_as<bf16, float>(device, p, accumulate, sums);
  return launch_add_bias_as<bf16, bf16>(device, p, accumulate, sums);
}

int32_t no_kernel(DeviceState& device, const GemmParams& p) {
  device.error = "cuBLASLt has no " + std::string(p.dtype == DType::bf16 ? "bfloat16" : "float32") +
                 " kernel for a GEMM with m " + std::to_string(p.m) + ", n " + std::to_string(p.n) +
                 ", k " + std::to_string(p.k) + ", batch " + std::to_string(p.batch) +
                 ", leading dimensions " + std::to_string(p.lda) + ", " + std::to_string(p.ldb) +
                 ", " + std::to_string(p.ldc);
  return kUnsupported;
}

int32_t dispatch(DeviceState& device, const GemmParams& params);

// For a bf16 C that something is added to: C stays float32 until its bias (if any) and the old
// value are added, so that it is rounded once. With beta 1 cuBLASLt would round twice.
int32_t float32_then_sum(DeviceState& device, const GemmParams& p) {
  const int64_t count = p.batch * p.m * p.n;
  auto* sums = static_cast<float*>(device.scratch(static_cast<size_t>(count) * sizeof(float)));
  if (!sums) return kOutOfMemory;
  GemmParams q = p;
  q.bias = nullptr;
  q.accumulate = false;
  q.c_is_f32 = true;
  q.c = sums;
  q.ldc = p.n;
  q.stride_c = p.m * p.n;
  const int32_t result = dispatch(device, q);
  return result == kSuccess ? launch_add_bias(device, p, p.accumulate, sums) : result;
}

// One cuBLASLt call; `found` is false where it has no such kernel.
int32_t run_cublaslt(DeviceState& device, const GemmParams& p, bool& found) {
  int32_t result = kSuccess;
  GemmPlan* plan = plan_of(device, p, result);
  found = plan && plan->found;
  if (!found) return result;
  const cublasStatus_t status = run_plan(device, p, *plan);
  return status == CUBLAS_STATUS_SUCCESS ? kSuccess : blas_failed(device, status, "GEMM");
}

// Calls that name no epilogue; see gemm_kernels.h.
int32_t dispatch(DeviceState& device, const GemmParams& params) {
  if (params.m == 0 || params.n == 0 || params.batch == 0) return kSuccess;
  const GemmParams p = normalised(params);
  GemmCase c;
  c.device = DeviceKind::cuda;
  c.m = p.m;
  c.n = p.n;
  c.k = p.k;
  c.trans_a = p.trans_a;
  c.trans_b = p.trans_b;
  c.accumulate = p.accumulate;
  c.has_bias = p.bias != nullptr;
  c.c_is_bf16 = p.dtype == DType::bf16 && !p.c_is_f32;
  c.bias_in_epilogue = aligned16(p.bias);  // read in pieces of 16 bytes
  c.rows_on_16_bytes = p.dtype == DType::bf16 && p.batch == 1 && (p.k | p.lda | p.ldb) % 8 == 0 &&
                       aligned16(p.a) && aligned16(p.b);
  GemmKernel kernel = gemm_kernel(c);
  if (kernel == GemmKernel::bias_only)
    return p.bias || !p.accumulate ? launch_add_bias(device, p, p.accumulate) : kSuccess;
  if (kernel == GemmKernel::rank_update) return rank_update(device, p);
  if (kernel == GemmKernel::few_rows) return few_rows(device, p);
  if (p.batch > std::numeric_limits<int32_t>::max()) return no_kernel(device, p);

  bool found = false;
  if (kernel == GemmKernel::cublaslt) {
    const int32_t result = run_cublaslt(device, p, found);
    if (found || result != kSuccess) return result;
    if (!p.bias) return no_kernel(device, p);
    c.bias_in_epilogue = false;
    kernel = gemm_kernel(c);
  }
  if (kernel == GemmKernel::float32_then_sum) return float32_then_sum(device, p);
  GemmParams without_bias = p;
  without_bias.bias = nullptr;
  const int32_t result = run_cublaslt(device, without_bias, found);
  if (result != kSuccess) return result;
  return found ? launch_add_bias(device, p, true) : no_kernel(device, p);
}

int32_t with_epilogue(DeviceState& device, const GemmParams& p) {
  const bool backward = p.epilogue == Epilogue::drelu || p.epilogue == Epilogue::dgelu;
  const bool empty = p.m == 0 || p.n == 0;  // then no tensor has an address
  if (p.dtype != DType::bf16 || p.c_is_f32 || p.accumulate || p.batch != 1 || p.ldc != p.n ||
      (backward ? !p.aux && !empty : p.column_sums != nullptr))
    return unsupported(device, "an epilogue belongs to one bfloat16 GEMM that overwrites C");
  if (p.n == 0 || (p.m == 0 && !p.column_sums)) return kSuccess;
  bool taken = false;
  int32_t result = device.epilogues->fused(device, p, taken);
  if (result != kSuccess || taken) return result;
  GemmParams q = p;
  q.epilogue = Epilogue::none;
  q.bias = nullptr;
  if (!backward && p.aux) q.c = p.aux;
  result = dispatch(device, q);
  return result == kSuccess ? device.epilogues->alone(device, p, q.c) : result;
}

int32_t with_term(DeviceState& device, const GemmParams& p) {
  if (p.dtype != DType::bf16 || p.c_is_f32 || p.accumulate || p.batch != 1 || p.trans_a)
    return unsupported(device, "a term belongs to one bfloat16 GEMM that overwrites C");
  bool taken = false;
  int32_t result = device.epilogues->with_term(device, p, taken);
  if (result != kSuccess || taken) return result;
  GemmParams q = p;
  q.term_k = 0;
  result = dispatch(device, q);
  if (result != kSuccess) return result;
  q.accumulate = true;
  q.bias = nullptr;
  q.k = p.term_k;
  q.a = p.term_a;
  q.lda = p.term_lda;
  q.b = p.term_b;
  q.ldb = p.term_ldb;
  return dispatch(device, q);
}

}  // namespace

int32_t gemm(DeviceState& device, const GemmParams& params) {
  if (params.dtype != DType::f32 && params.dtype != DType::bf16)
    return unsupported(device, "GEMM on CUDA takes float32 or bfloat16");
  if (params.epilogue != Epilogue::none) return with_epilogue(device, params);
  if (params.term_k > 0) return with_term(device, params);
  return dispatch(device, params);
}

}  // namespace trafo::cuda
