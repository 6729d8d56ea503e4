#include "engine/backend/cuda/gemm.h"

#include <limits>
#include <type_traits>

#include "engine/backend/cuda/device/elementwise.cuh"
#include "engine/backend/cuda/gemm_plans.h"

namespace trafo::cuda {

namespace {

// Whether the gradient of a bias is summed inside the product that makes the weight's
// (CUBLASLT_EPILOGUE_BGRADB), or by a kernel of its own.
constexpr bool kSumsInProducts = false;

// C (+)= bias, or zero without one, row by row; plus a dense float32 `product` [batch, m, n] if
// there is one. A thread takes kWidth neighbours of one row. Index: uint32_t if the count allows
// it.
template <class B, class C, int kWidth, class Index>
__global__ void __launch_bounds__(256)
    add_bias(C* c, const B* bias, const float* product, int64_t m, int64_t n, int64_t ldc,
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
  if (product) add(product + i);
  if (bias) add(bias + column);
  if (accumulate) add(at);
  store_floats(at, sum);
}

template <class B, class C>
int32_t launch_add_bias_as(DeviceState& device, const GemmParams& p, bool accumulate,
                           const float* product) {
  const int64_t count = p.batch * p.m * p.n;
  auto* c = static_cast<C*>(p.c);
  const auto* bias = static_cast<const B*>(p.bias);
  constexpr int kWide = kPackWidth<C>;
  const auto launch = [&](auto width, auto index) {
    constexpr int kWidth = decltype(width)::value;
    const auto blocks = static_cast<unsigned>((count - 1) / (256 * kWidth) + 1);
    add_bias<B, C, kWidth, decltype(index)><<<blocks, 256, 0, device.stream>>>(
        c, bias, product, p.m, p.n, p.ldc, count, p.stride_c, accumulate);
  };
  const bool small = count < (int64_t{1} << 31);
  if (small && (p.n | p.ldc | p.stride_c) % kWide == 0 && aligned16(c) && aligned16(bias) &&
      aligned16(product))
    launch(std::integral_constant<int, kWide>{}, uint32_t{});
  else if (small)
    launch(std::integral_constant<int, 1>{}, uint32_t{});
  else
    launch(std::integral_constant<int, 1>{}, uint64_t{});
  return launched(device, "add_bias");
}

int32_t launch_add_bias(DeviceState& device, const GemmParams& p, bool accumulate,
                        const float* product = nullptr) {
  if (p.dtype == DType::f32)
    return launch_add_bias_as<float, float>(device, p, accumulate, product);
  if (p.c_is_f32) return launch_add_bias_as<bf16, float>(device, p, accumulate, product);
  return launch_add_bias_as<bf16, bf16>(device, p, accumulate, product);
}

int32_t no_kernel(DeviceState& device, const GemmParams& p) {
  device.error = "cuBLASLt has no " + std::string(p.dtype == DType::bf16 ? "bfloat16" : "float32") +
                 " kernel for a product with m " + std::to_string(p.m) + ", n " +
                 std::to_string(p.n) + ", k " + std::to_string(p.k) + ", batch " +
                 std::to_string(p.batch) + ", leading dimensions " + std::to_string(p.lda) + ", " +
                 std::to_string(p.ldb) + ", " + std::to_string(p.ldc);
  return kUnsupported;
}

int32_t plain(DeviceState& device, const GemmParams& params);

// For a bf16 C that something is added to: the product stays float32 until its bias (if any) and
// the old value are added, so that C is rounded once. With beta 1 cuBLASLt would round twice.
int32_t gemm_then_sum(DeviceState& device, const GemmParams& p) {
  const int64_t count = p.batch * p.m * p.n;
  auto* product = static_cast<float*>(device.scratch(static_cast<size_t>(count) * sizeof(float)));
  if (!product) return kOutOfMemory;
  GemmParams q = p;
  q.bias = nullptr;
  q.accumulate = false;
  q.c_is_f32 = true;
  q.c = product;
  q.ldc = p.n;
  q.stride_c = p.m * p.n;
  const int32_t result = plain(device, q);
  return result == kSuccess ? launch_add_bias(device, p, p.accumulate, product) : result;
}

int32_t plain(DeviceState& device, const GemmParams& params) {
  if (params.m == 0 || params.n == 0 || params.batch == 0) return kSuccess;
  GemmParams p = normalised(params);
  if (p.k == 0) {
    if (!p.bias && p.accumulate) return kSuccess;
    return launch_add_bias(device, p, p.accumulate);
  }
  if (p.batch > std::numeric_limits<int32_t>::max()) return no_kernel(device, p);

  int32_t result = kSuccess;
  const bool c_is_bf16 = p.dtype == DType::bf16 && !p.c_is_f32;
  if (c_is_bf16 && p.accumulate) return gemm_then_sum(device, p);
  GemmParams direct = p;
  // The epilogue reads the bias in 16-byte pieces.
  if (!aligned16(p.bias)) direct.bias = nullptr;
  GemmPlan* plan = plan_of(device, direct, result);
  if (plan && !plan->found && direct.bias) {
    direct.bias = nullptr;
    plan = plan_of(device, direct, result);
  }
  if (!plan) return result;
  const bool bias_is_left = p.bias && !direct.bias;
  if (c_is_bf16 && bias_is_left) return gemm_then_sum(device, p);
  if (!plan->found) return no_kernel(device, p);
  const cublasStatus_t status = run_plan(device, direct, *plan);
  if (status != CUBLAS_STATUS_SUCCESS) return blas_failed(device, status, "matrix product");
  return bias_is_left ? launch_add_bias(device, p, true) : kSuccess;
}

// One kernel if cuBLASLt has it: `done` says so.
int32_t in_one_kernel(DeviceState& device, const GemmParams& params, bool& done) {
  int32_t result = kSuccess;
  const GemmParams p = normalised(params);
  GemmPlan* plan = plan_of(device, p, result);
  if (!plan || !plan->found) return result;
  const cublasStatus_t status = run_plan(device, p, *plan);
  if (status != CUBLAS_STATUS_SUCCESS) return blas_failed(device, status, "matrix product");
  done = true;
  return kSuccess;
}

int32_t with_epilogue(DeviceState& device, const GemmParams& p) {
  if (p.dtype != DType::bf16 || p.c_is_f32 || p.accumulate || p.batch != 1 || p.ldc != p.n ||
      p.a_sums || (p.epilogue == Epilogue::dgelu && (!p.aux || p.bias)) ||
      (p.epilogue == Epilogue::relu && p.aux))
    return unsupported(device, "an epilogue belongs to one bfloat16 product that overwrites C");
  if (p.m == 0 || p.n == 0) return kSuccess;
  bool done = false;
  // cuBLASLt wants aux in rows of whole 16 bytes.
  if (p.k > 0 && p.n % 8 == 0 && aligned16(p.aux) && aligned16(p.bias)) {
    const int32_t result = in_one_kernel(device, p, done);
    if (result != kSuccess || done) return result;
  }
  GemmParams q = p;
  q.epilogue = Epilogue::none;
  q.aux = nullptr;
  if (p.epilogue == Epilogue::gelu && p.aux) q.c = p.aux;
  const int32_t result = plain(device, q);
  if (result != kSuccess) return result;
  const int64_t count = p.m * p.n;
  if (p.epilogue == Epilogue::dgelu)
    return device.fallbacks->gelu_gradient(device, count, p.aux, p.c, p.c);
  return device.fallbacks->activate(device, p.epilogue, count, q.c, p.c);
}

int32_t with_sums(DeviceState& device, const GemmParams& p) {
  if (p.m == 0) return kSuccess;
  if (p.dtype != DType::bf16 || !p.c_is_f32 || p.batch != 1 || !p.trans_a || p.bias ||
      (p.k > 1 && p.lda != p.m))
    return unsupported(device, "sums of A belong to one bfloat16 product of A^T with float32 C");
  if (kSumsInProducts && p.n > 0 && p.k > 0 && aligned16(p.a_sums)) {
    GemmParams q = p;
    // The epilogue overwrites.
    if (p.accumulate_sums) q.a_sums = device.scratch(static_cast<size_t>(p.m) * sizeof(float));
    if (!q.a_sums) return kOutOfMemory;
    bool done = false;
    const int32_t result = in_one_kernel(device, q, done);
    if (result != kSuccess) return result;
    if (done && !p.accumulate_sums) return kSuccess;
    if (done) {
      GemmParams sums;
      sums.m = 1;
      sums.n = sums.ldc = p.m;
      sums.c = p.a_sums;
      return launch_add_bias(device, sums, true, static_cast<const float*>(q.a_sums));
    }
  }
  GemmParams q = p;
  q.a_sums = nullptr;
  const int32_t result = plain(device, q);
  if (result != kSuccess) return result;
  return device.fallbacks->column_sum(device, p.k, p.m, p.a, p.a_sums, p.accumulate_sums);
}

}  // namespace

int32_t gemm(DeviceState& device, const GemmParams& params) {
  if (params.dtype != DType::f32 && params.dtype != DType::bf16)
    return unsupported(device, "matrix products on CUDA are float32 or bfloat16");
  if (params.epilogue != Epilogue::none) return with_epilogue(device, params);
  if (params.a_sums) return with_sums(device, params);
  return plain(device, params);
}

}  // namespace trafo::cuda
