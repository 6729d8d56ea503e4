// Plans of GEMMs: cuBLASLt's descriptors and the algorithm that runs them. CUDA side
// only.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "engine/backend/cuda/device_state.h"
#include "engine/core/numeric/fp8.h"

namespace trafo::cuda {

// A and B of a GEMM are FP8; C and bias are as of a GEMM of bf16. The factors, on the device,
// multiply A and B.
struct Fp8Operands {
  Fp8Format a, b;
  const float* a_factor;
  const float* b_factor;
};

// Everything that a choice of algorithm depends on. Batches of one have stride 0, so that GEMMs
// of one shape share a plan.
using PlanKey = std::array<int64_t, 16>;
static_assert(sizeof(PlanKey) == sizeof(GemmChoice::gemm));
using AlgorithmWords = std::array<uint64_t, 8>;
static_assert(sizeof(AlgorithmWords) == sizeof(cublasLtMatmulAlgo_t));

struct Alignments {
  int64_t a, b, c;
};

struct GemmPlan {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, c;  // as cuBLASLt names them: its A is our B
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace_bytes = 0;
  bool found = false;  // false: cuBLASLt has no kernel for this GEMM
};

// An algorithm that cuBLASLt proposes.
struct Proposal {
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace_bytes;
};

struct GemmPlans {
  std::map<PlanKey, GemmPlan> by_key;
  std::map<PlanKey, AlgorithmWords> choices;  // measured ones, here or in an earlier run
  bool refused_choice_fails = false;
  bool tuning = false;
  bool tf32 = false;  // for GEMMs of float32
  double budget = 0;  // seconds
  GemmTuningCost cost;

  // Large GEMMs are not measured: they run at the power limit of the card, where the fastest kernel
  // alone is not the fastest in a step.
  static constexpr double kMostMeasuredOperations = 0x1p34;
  bool measures(const GemmParams& p) const {
    return tuning && cost.seconds < budget &&
           2.0 * static_cast<double>(p.batch) * static_cast<double>(p.m) *
                   static_cast<double>(p.n) * static_cast<double>(p.k) <=
               kMostMeasuredOperations;
  }
  bool multiplies_in_tf32(const GemmParams& p) const { return tf32 && p.dtype == DType::f32; }
};
GemmPlans& plans_of(DeviceState& device);

// The same GEMM with the fields that do not matter set to fixed values. Plans are of normalised
// GEMMs.
GemmParams normalised(const GemmParams& params);

// The plan of a GEMM, made on its first call: the kernel from the autotuning cache, or the fastest
// while tuning is on, or cuBLASLt's first proposal. Null after an error, which is then in `result`.
GemmPlan* plan_of(DeviceState& device, const GemmParams& params, int32_t& result,
                  const Fp8Operands* fp8 = nullptr);

// Issues the GEMM. `plan` belongs to `params` and was found. Of FP8 operands the plan has the
// factors.
cublasStatus_t run_plan(DeviceState& device, const GemmParams& params, GemmPlan& plan);

// A GEMM of FP8 operands: batch 1, trans_b without trans_a, contiguous.
int32_t fp8_gemm(DeviceState& device, const GemmParams& params, const Fp8Operands& fp8);

int32_t blas_failed(DeviceState& device, cublasStatus_t status, const char* what);

// --- gemm_plans.cu, for gemm_tuning.cu ---
// tf32: GemmPlans::multiplies_in_tf32. A GEMM has a plan and a choice with it and others without.
PlanKey key_of(const GemmParams& params, bool tf32, Alignments& at,
               const Fp8Operands* fp8 = nullptr);
cublasStatus_t describe(const GemmParams& params, bool tf32, GemmPlan& plan,
                        const Fp8Operands* fp8 = nullptr);
// cuBLASLt's proposals, its first choice first, at most `most` of GemmTimes::kMost; none for a
// GEMM that it does not do.
cublasStatus_t propose(DeviceState& device, const Alignments& at, const GemmPlan& plan, int most,
                       std::vector<Proposal>& proposals);
// --- gemm_tuning.cu, for gemm_plans.cu ---
// Times proposals of a described GEMM and leaves the fastest in `plan`. `times`, if given, gets the
// microseconds of all; otherwise slow ones are timed only once. Ends after `seconds` with the
// fastest so far. kOutOfMemory leaves the plan as it is.
int32_t measure(DeviceState& device, const GemmParams& params, const Alignments& at, int most,
                double seconds, GemmPlan& plan, GemmTimes* times);

}  // namespace trafo::cuda
