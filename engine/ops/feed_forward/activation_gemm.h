// GEMMs of bfloat16 with an activation in their epilogue (GemmEpilogues), CUDA side only.
#pragma once

#include "engine/backend/cuda/device_state.h"

namespace trafo::cuda {

// One kernel for all, if `taken`: on cards of compute capability 9.0, for shapes that keep them
// busy.
int32_t activation_gemm(DeviceState& device, const GemmParams& p, bool& taken);

// The epilogue of `p` after a GEMM that has written A B to `product`.
int32_t activation_alone(DeviceState& device, const GemmParams& p, const void* product);

// activation_gemm_wgmma_cuda.cu; `taken` as above.
int32_t activation_gemm_wgmma(DeviceState& device, const GemmParams& p, bool& taken);

}  // namespace trafo::cuda
