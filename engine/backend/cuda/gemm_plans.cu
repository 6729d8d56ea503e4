#include "engine/backend/cuda/gemm_plans.h"

#include <chrono>
#include <cstring>

#include "engine/backend/cuda/gemm.h"

namespace trafo::cuda {

namespace {

// Bound on the memory of plans when every batch of a run has another shape (a plan takes about 700
// bytes).
constexpr size_t kMaxPlans = 8192;

// Proposals that are asked for without tuning, and those that are measured.
constexpr int kAsked = 8;
constexpr int kMeasured = 16;

// The largest power of two up to 16 that divides the address and every distance between matrices.
// Kernels ask for no more than 16, and few classes keep results independent of where an allocator
// happens to put things.
int64_t alignment(const void* pointer, int64_t stride_bytes) {
  const auto bits =
      reinterpret_cast<uintptr_t>(pointer) | static_cast<uintptr_t>(stride_bytes) | 16u;
  return static_cast<int64_t>(bits & (~bits + 1));
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

cudaDataType_t fp8_type(Fp8Format format) {
  return format == Fp8Format::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

}  // namespace

GemmPlans& plans_of(DeviceState& device) {
  if (!device.gemm_plans) device.gemm_plans = new GemmPlans;
  return *device.gemm_plans;
}

void free_gemm_plans(GemmPlans* plans) {
  delete plans;
}

int32_t blas_failed(DeviceState& device, cublasStatus_t status, const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return report(device, error, what);
  device.error = std::string(what) + ": " + cublasLtGetStatusString(status);
  return status == CUBLAS_STATUS_ALLOC_FAILED ? kOutOfMemory : kFailed;
}

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

PlanKey key_of(const GemmParams& p, bool tf32, Alignments& at, const Fp8Operands* fp8) {
  const auto size = static_cast<int64_t>(dtype_size(p.dtype)),
             c_size = p.c_is_f32 ? int64_t{4} : size;
  at = {alignment(p.a, p.stride_a * size), alignment(p.b, p.stride_b * size),
        alignment(p.c, p.stride_c * c_size)};
  const int64_t formats =
      fp8 ? 1 | static_cast<int64_t>(fp8->a) << 1 | static_cast<int64_t>(fp8->b) << 2 : 0;
  const int64_t flags = (p.trans_a ? 1 : 0) | (p.trans_b ? 2 : 0) | (p.accumulate ? 4 : 0) |
                        (p.c_is_f32 ? 8 : 0) | (p.bias ? 16 : 0) |
                        (p.dtype == DType::bf16 ? 32 : 0) | (tf32 ? 128 : 0) | formats << 16;
  return {flags,   p.m,        p.n,        p.k,        p.lda, p.ldb, p.ldc,
          p.batch, p.stride_a, p.stride_b, p.stride_c, at.a,  at.b,  at.c};
}

// Row-major C [m, n] is column-major C^T [n, m] = B^T A^T; a row-major matrix is its transpose
// column-major, so B and A swap and keep their flags. The epilogue's bias has one element
// for each row of the column-major result, which are the n columns of C.
cublasStatus_t describe(const GemmParams& p, bool tf32, GemmPlan& plan, const Fp8Operands* fp8) {
  const bool half = p.dtype == DType::bf16;
  const cudaDataType_t type = half ? CUDA_R_16BF : CUDA_R_32F;
  const cudaDataType_t a_type = fp8 ? fp8_type(fp8->a) : type;
  const cudaDataType_t b_type = fp8 ? fp8_type(fp8->b) : type;
  const cudaDataType_t c_type = half && !p.c_is_f32 ? CUDA_R_16BF : CUDA_R_32F;
  const cublasComputeType_t compute =
      tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;  // the latter is without TF32
  cublasStatus_t status = cublasLtMatmulDescInit(&plan.operation, compute, CUDA_R_32F);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulDescSetAttribute(&plan.operation, attribute, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type);
  }
  if (fp8) {
    // Fast accumulation leaves sums in the tensor core, with 14 bits or so. That is enough beside
    // the 3 bits of the factors, but not for gradients (E5M2): where one term is large, as the
    // label's, thousands of small ones would be cut off.
    const bool fast = fp8->a == Fp8Format::e4m3 && fp8->b == Fp8Format::e4m3;
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(fast));
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, fp8->b_factor);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, fp8->a_factor);
  }
  const auto layout = [&](cublasLtMatrixLayoutOpaque_t& matrix, cudaDataType_t of, int64_t rows,
                          int64_t cols, int64_t ld, int64_t stride) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status = init_layout(matrix, of, rows, cols, ld, p.batch, stride);
  };
  layout(plan.a, b_type, p.trans_b ? p.k : p.n, p.trans_b ? p.n : p.k, p.ldb, p.stride_b);
  layout(plan.b, a_type, p.trans_a ? p.m : p.k, p.trans_a ? p.k : p.m, p.lda, p.stride_a);
  layout(plan.c, c_type, p.n, p.m, p.ldc, p.stride_c);
  return status;
}

namespace {

// Proposals of kernels that need no more workspace than this.
cublasStatus_t ask(DeviceState& device, const Alignments& at, const GemmPlan& plan, int most,
                   size_t workspace_bytes, std::vector<Proposal>& proposals) {
  proposals.clear();
  cublasLtMatmulPreferenceOpaque_t preference;
  cublasStatus_t status = cublasLtMatmulPreferenceInit(&preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes});
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(at.b));  // its A is our B
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(at.a));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(at.c));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(at.c));
  if (status != CUBLAS_STATUS_SUCCESS) return status;

  cublasLtMatmulHeuristicResult_t results[GemmTimes::kMost] = {};
  int found = 0;
  GemmPlan described = plan;
  status = cublasLtMatmulAlgoGetHeuristic(device.blas, &described.operation, &described.a,
                                          &described.b, &described.c, &described.c, &preference,
                                          most, results, &found);
  // It has no such GEMM, or no such epilogue for these types.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
    return CUBLAS_STATUS_SUCCESS;
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  for (int i = 0; i < found; ++i)
    if (results[i].state == CUBLAS_STATUS_SUCCESS)
      proposals.push_back({results[i].algo, results[i].workspaceSize});
  return status;
}

// The workspace of a kernel whose blocks draw their tiles from a counter. cuBLASLt clears it before
// each launch, which is a separate node in a graph and costs 2 us. The same kernels also divide
// their tiles without a counter, and are offered so where there is no workspace.
bool draws_tiles(const Proposal& proposal) {
  constexpr size_t kCounterBytes = 16;
  return proposal.workspace_bytes > 0 && proposal.workspace_bytes <= kCounterBytes;
}

}  // namespace

// Only algorithms that sum in a fixed order: without split-K, or with the parts summed from the
// workspace in float32. In-place reduction adds atomically and is left out.
cublasStatus_t propose(DeviceState& device, const Alignments& at, const GemmPlan& plan, int most,
                       std::vector<Proposal>& proposals) {
  cublasStatus_t status = ask(device, at, plan, most, kBlasWorkspaceBytes, proposals);
  if (status != CUBLAS_STATUS_SUCCESS || proposals.empty() || !draws_tiles(proposals[0]))
    return status;
  std::vector<Proposal> without;
  status = ask(device, at, plan, most, 0, without);
  if (!without.empty()) proposals = std::move(without);
  return status;
}

namespace {

bool recording(DeviceState& device) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(device.stream, &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

// The kernel that was chosen for this GEMM. False if cuBLASLt refuses it: it is from a file.
bool take_choice(DeviceState& device, const AlgorithmWords& choice, GemmPlan& plan) {
  std::memcpy(&plan.algorithm, choice.data(), sizeof plan.algorithm);
  cublasLtMatmulHeuristicResult_t checked{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      device.blas, &plan.operation, &plan.a, &plan.b, &plan.c, &plan.c, &plan.algorithm, &checked);
  if (status != CUBLAS_STATUS_SUCCESS || checked.workspaceSize > kBlasWorkspaceBytes) return false;
  plan.workspace_bytes = checked.workspaceSize;
  plan.found = true;
  return true;
}

// Measures the GEMM within the budget. Where that is not possible, the plan stays as it is.
int32_t measure_in_budget(DeviceState& device, const GemmParams& p, const Alignments& at,
                          GemmPlan& plan) {
  using Clock = std::chrono::steady_clock;
  GemmPlans& plans = plans_of(device);
  const Clock::time_point begin = Clock::now();
  const int32_t result =
      measure(device, p, at, kMeasured, plans.budget - plans.cost.seconds, plan, nullptr);
  plans.cost.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  ++plans.cost.measured;
  return result == kOutOfMemory ? kSuccess : result;
}

int32_t choose(DeviceState& device, const GemmParams& p, const PlanKey& key, const Alignments& at,
               GemmPlan& plan) {
  GemmPlans& plans = plans_of(device);
  const auto known = plans.choices.find(key);
  if (known != plans.choices.end()) {
    if (take_choice(device, known->second, plan)) return kSuccess;
    if (plans.refused_choice_fails) {
      device.error = "cuBLASLt refuses the kernel that gemm-cache names for a GEMM";
      return kFailed;
    }
    plans.choices.erase(known);
  }
  std::vector<Proposal> proposals;
  const cublasStatus_t status = propose(device, at, plan, kAsked, proposals);
  if (status != CUBLAS_STATUS_SUCCESS) return blas_failed(device, status, "preparing a GEMM");
  if (proposals.empty()) return kSuccess;
  plan.algorithm = proposals[0].algorithm;
  plan.workspace_bytes = proposals[0].workspace_bytes;
  plan.found = true;
  if (!plans.measures(p)) return kSuccess;
  // Where nothing can be measured the first proposal is the choice, and stays it.
  if (!recording(device)) {
    const int32_t result = measure_in_budget(device, p, at, plan);
    if (result != kSuccess) return result;
  }
  std::memcpy(plans.choices[key].data(), &plan.algorithm, sizeof plan.algorithm);
  return kSuccess;
}

}  // namespace

GemmPlan* plan_of(DeviceState& device, const GemmParams& p, int32_t& result,
                  const Fp8Operands* fp8) {
  Alignments at;
  const GemmPlans& all = plans_of(device);
  const bool tf32 = all.multiplies_in_tf32(p);
  const PlanKey key = key_of(p, tf32, at, fp8);
  auto& plans = plans_of(device).by_key;
  const auto known = plans.find(key);
  // A GEMM that first ran without tuning, as in validation, is still to be measured.
  if (known != plans.end() &&
      (!all.measures(p) || !known->second.found || all.choices.contains(key)))
    return &known->second;

  GemmPlan plan{};
  const cublasStatus_t status = describe(p, tf32, plan, fp8);
  result = status == CUBLAS_STATUS_SUCCESS ? choose(device, p, key, at, plan)
                                           : blas_failed(device, status, "preparing a GEMM");
  if (result != kSuccess) return nullptr;
  if (plans.size() >= kMaxPlans) plans.clear();
  return &plans.insert_or_assign(key, plan).first->second;
}

cublasStatus_t run_plan(DeviceState& device, const GemmParams& p, GemmPlan& plan) {
  if (p.bias) {
    const cublasStatus_t status = cublasLtMatmulDescSetAttribute(
        &plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof p.bias);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  const float alpha = 1.0f, beta = p.accumulate ? 1.0f : 0.0f;
  return cublasLtMatmul(device.blas, &plan.operation, &alpha, p.b, &plan.a, p.a, &plan.b, &beta,
                        p.c, &plan.c, p.c, &plan.c, &plan.algorithm, device.blas_workspace,
                        plan.workspace_bytes, device.stream);
}

int32_t fp8_gemm(DeviceState& device, const GemmParams& params, const Fp8Operands& fp8) {
  const GemmParams p = normalised(params);
  int32_t result = kSuccess;
  GemmPlan* plan = plan_of(device, p, result, &fp8);
  if (!plan) return result;
  if (!plan->found) {
    device.error = "cuBLASLt has no FP8 kernel for a GEMM with m " + std::to_string(p.m) + ", n " +
                   std::to_string(p.n) + ", k " + std::to_string(p.k);
    return kUnsupported;
  }
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const auto point = [&](cublasLtMatmulDescAttributes_t attribute, const float* factor) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulDescSetAttribute(&plan->operation, attribute, &factor, sizeof factor);
  };
  point(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, fp8.b_factor);
  point(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, fp8.a_factor);
  if (status == CUBLAS_STATUS_SUCCESS) status = run_plan(device, p, *plan);
  return status == CUBLAS_STATUS_SUCCESS ? kSuccess : blas_failed(device, status, "FP8 GEMM");
}

}  // namespace trafo::cuda
