#include "engine/backend/cuda/gemm.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <type_traits>

#include "engine/backend/cuda/device/elementwise.cuh"

namespace trafo::cuda {

namespace {

// Everything that a choice of algorithm depends on. Batches of one have stride 0, so that products
// of one shape meet.
using PlanKey = std::array<int64_t, 16>;

// Bound on the memory of plans when every batch of a run has another shape (a plan takes about 700
// bytes).
constexpr size_t kMaxPlans = 8192;

}  // namespace

struct GemmPlan {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, c;  // as cuBLASLt names them: its A is our B
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace_bytes = 0;
  bool found = false;  // false: cuBLASLt has no kernel for this product
};

struct GemmPlans {
  std::map<PlanKey, GemmPlan> by_key;
};

void free_gemm_plans(GemmPlans* plans) {
  delete plans;
}

namespace {

int32_t blas_failed(DeviceState& device, cublasStatus_t status, const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return report(device, error, what);
  device.error = std::string(what) + ": " + cublasLtGetStatusString(status);
  return status == CUBLAS_STATUS_ALLOC_FAILED ? kOutOfMemory : kFailed;
}

// The largest power of two up to 16 that divides the address and every distance between matrices.
// Kernels ask for no more than 16, and few classes keep results independent of where an allocator
// happens to put things.
int64_t alignment(const void* pointer, int64_t stride_bytes) {
  const auto bits =
      reinterpret_cast<uintptr_t>(pointer) | static_cast<uintptr_t>(stride_bytes) | 16u;
  return static_cast<int64_t>(bits & (~bits + 1));
}

// The same product with what does not matter made uniform.
GemmParams normalised(const GemmParams& params) {
  GemmParams p = params;
  if (p.batch == 1) p.stride_a = p.stride_b = p.stride_c = 0;
  // A matrix of one row may come with any leading dimension, but cuBLASLt checks it.
  const int64_t a_rows = p.trans_a ? p.k : p.m, a_cols = p.trans_a ? p.m : p.k;
  const int64_t b_rows = p.trans_b ? p.n : p.k, b_cols = p.trans_b ? p.k : p.n;
  if (a_rows == 1) p.lda = a_cols;
  if (b_rows == 1) p.ldb = b_cols;
  if (p.m == 1) p.ldc = p.n;
  return p;
}

cublasStatus_t init_layout(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t type, int64_t rows,
                           int64_t cols, int64_t ld, int64_t batch, int64_t stride) {
  cublasStatus_t status = cublasLtMatrixLayoutInit(&layout, type, static_cast<uint64_t>(rows),
                                                   static_cast<uint64_t>(cols), ld);
  if (status != CUBLAS_STATUS_SUCCESS || batch == 1) return status;
  const auto count = static_cast<int32_t>(batch);
  status = cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                            sizeof count);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  return cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                          &stride, sizeof stride);
}

// Row-major C [m, n] is column-major C^T [n, m] = B^T A^T; a row-major matrix is its transpose
// column-major, so B and A trade places and keep their flags. The epilogue's bias has one element
// for each row of the column-major result, which are the n columns of C.
cublasStatus_t describe(const GemmParams& p, bool with_bias, GemmPlan& plan) {
  const bool half = p.dtype == DType::bf16;
  const cudaDataType_t type = half ? CUDA_R_16BF : CUDA_R_32F;
  const cudaDataType_t c_type = half && !p.c_is_f32 ? CUDA_R_16BF : CUDA_R_32F;
  // CUBLAS_COMPUTE_32F: float32 products stay float32, TF32 has a compute type of its own.
  cublasStatus_t status = cublasLtMatmulDescInit(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* value, size_t size) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulDescSetAttribute(&plan.operation, attribute, value, size);
  };
  const cublasOperation_t op_a = p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_b = p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
  set(CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
  if (with_bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof p.bias);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
  }
  const auto layout = [&](cublasLtMatrixLayoutOpaque_t& matrix, cudaDataType_t of, int64_t rows,
                          int64_t cols, int64_t ld, int64_t stride) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status = init_layout(matrix, of, rows, cols, ld, p.batch, stride);
  };
  layout(plan.a, type, p.trans_b ? p.k : p.n, p.trans_b ? p.n : p.k, p.ldb, p.stride_b);
  layout(plan.b, type, p.trans_a ? p.m : p.k, p.trans_a ? p.k : p.m, p.lda, p.stride_a);
  layout(plan.c, c_type, p.n, p.m, p.ldc, p.stride_c);
  return status;
}

struct Alignments {
  int64_t a, b, c;
};

// The heuristics' first choice among the algorithms that sum in a fixed order: without split-K, or
// with the parts summed from the workspace in float32. In-place reduction adds atomically and is
// left out.
cublasStatus_t choose(DeviceState& device, const Alignments& at, GemmPlan& plan) {
  cublasLtMatmulPreferenceOpaque_t preference;
  cublasStatus_t status = cublasLtMatmulPreferenceInit(&preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kBlasWorkspaceBytes});
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(at.b));  // its A is our B
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(at.a));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(at.c));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(at.c));
  if (status != CUBLAS_STATUS_SUCCESS) return status;

  constexpr int kAsked = 8;
  cublasLtMatmulHeuristicResult_t results[kAsked] = {};
  int found = 0;
  status = cublasLtMatmulAlgoGetHeuristic(device.blas, &plan.operation, &plan.a, &plan.b, &plan.c,
                                          &plan.c, &preference, kAsked, results, &found);
  // It has no such product, or no such epilogue for these types: found stays false.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
    return CUBLAS_STATUS_SUCCESS;
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  for (int i = 0; i < found && !plan.found; ++i) {
    if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
    plan.algorithm = results[i].algo;
    plan.workspace_bytes = results[i].workspaceSize;
    plan.found = true;
  }
  return CUBLAS_STATUS_SUCCESS;
}

// The plan of a product, made when it is met first; null after an error.
GemmPlan* plan_of(DeviceState& device, const GemmParams& p, bool with_bias, int32_t& result) {
  const auto size = static_cast<int64_t>(dtype_size(p.dtype)),
             c_size = p.c_is_f32 ? int64_t{4} : size;
  const Alignments at{alignment(p.a, p.stride_a * size), alignment(p.b, p.stride_b * size),
                      alignment(p.c, p.stride_c * c_size)};
  const int64_t flags = (p.trans_a ? 1 : 0) | (p.trans_b ? 2 : 0) | (p.accumulate ? 4 : 0) |
                        (p.c_is_f32 ? 8 : 0) | (with_bias ? 16 : 0) |
                        (p.dtype == DType::bf16 ? 32 : 0);
  const PlanKey key{flags,   p.m,        p.n,        p.k,        p.lda, p.ldb, p.ldc,
                    p.batch, p.stride_a, p.stride_b, p.stride_c, at.a,  at.b,  at.c};
  if (!device.gemm_plans) device.gemm_plans = new GemmPlans;
  auto& plans = device.gemm_plans->by_key;
  const auto known = plans.find(key);
  if (known != plans.end()) return &known->second;

  GemmPlan plan{};
  cublasStatus_t status = describe(p, with_bias, plan);
  if (status == CUBLAS_STATUS_SUCCESS) status = choose(device, at, plan);
  if (status != CUBLAS_STATUS_SUCCESS) {
    result = blas_failed(device, status, "preparing a matrix product");
    return nullptr;
  }
  if (plans.size() >= kMaxPlans) plans.clear();
  return &plans.emplace(key, plan).first->second;
}

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

// For a bf16 C that something is added to: the product stays float32 until its bias (if any) and
// the old value are added, so that C is rounded once. With beta 1 cuBLASLt would round twice.
int32_t product_then_sum(DeviceState& device, const GemmParams& p) {
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
  const int32_t result = gemm(device, q);
  return result == kSuccess ? launch_add_bias(device, p, p.accumulate, product) : result;
}

}  // namespace

int32_t gemm(DeviceState& device, const GemmParams& params) {
  if (params.dtype != DType::f32 && params.dtype != DType::bf16)
    return unsupported(device, "matrix products on CUDA are float32 or bfloat16");
  if (params.m == 0 || params.n == 0 || params.batch == 0) return kSuccess;
  GemmParams p = normalised(params);
  if (p.k == 0) {
    if (!p.bias && p.accumulate) return kSuccess;
    return launch_add_bias(device, p, p.accumulate);
  }
  if (p.batch > std::numeric_limits<int32_t>::max()) return no_kernel(device, p);

  int32_t result = kSuccess;
  const bool c_is_bf16 = p.dtype == DType::bf16 && !p.c_is_f32;
  if (c_is_bf16 && p.accumulate) return product_then_sum(device, p);
  // The epilogue reads the bias in 16-byte pieces.
  bool with_bias = p.bias != nullptr && aligned16(p.bias);
  GemmPlan* plan = plan_of(device, p, with_bias, result);
  if (plan && !plan->found && with_bias) {
    with_bias = false;
    plan = plan_of(device, p, false, result);
  }
  if (!plan) return result;
  if (c_is_bf16 && p.bias && !with_bias) return product_then_sum(device, p);
  if (!plan->found) return no_kernel(device, p);

  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  if (with_bias)
    status = cublasLtMatmulDescSetAttribute(&plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                            &p.bias, sizeof p.bias);
  const float alpha = 1.0f, beta = p.accumulate ? 1.0f : 0.0f;
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmul(device.blas, &plan->operation, &alpha, p.b, &plan->a, p.a, &plan->b,
                            &beta, p.c, &plan->c, p.c, &plan->c, &plan->algorithm,
                            device.blas_workspace, plan->workspace_bytes, device.stream);
  if (status != CUBLAS_STATUS_SUCCESS) return blas_failed(device, status, "matrix product");
  return p.bias && !with_bias ? launch_add_bias(device, p, true) : kSuccess;
}

}  // namespace trafo::cuda
