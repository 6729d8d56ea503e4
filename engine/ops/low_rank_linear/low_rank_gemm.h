// GEMMs of bfloat16 with a term of low rank (GemmParams::term_k), CUDA side only.
#pragma once

#include "engine/backend/cuda/device_state.h"

namespace trafo::cuda {

// One kernel for all, if `taken`: on cards of compute capability 9.0, for shapes that keep them
// busy, without a bias.
int32_t low_rank_gemm_wgmma(DeviceState& device, const GemmParams& p, bool& taken);

}  // namespace trafo::cuda
