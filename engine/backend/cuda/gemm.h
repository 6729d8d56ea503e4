#pragma once

#include "engine/backend/cuda/device_state.h"

namespace trafo::cuda {

inline constexpr size_t kBlasWorkspaceBytes = size_t{64} << 20;

// GemmParams: float32, TF32 if asked for, and bfloat16, all with float32 sums, by the kernels of
// engine/backend/gemm_kernels.h. Plans of cuBLASLt are cached by shape. Sums have a fixed order:
// the same GEMM gives the same bits on one kind of device. k 0 leaves zero (or C) plus bias.
int32_t gemm(DeviceState& device, const GemmParams& params);

// Frees DeviceState::gemm_plans; null is allowed.
void free_gemm_plans(GemmPlans* plans);

}  // namespace trafo::cuda
