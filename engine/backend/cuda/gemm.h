#pragma once

#include "engine/backend/cuda/device_state.h"

namespace trafo::cuda {

inline constexpr size_t kBlasWorkspaceBytes = size_t{64} << 20;

// GemmParams on cuBLASLt: float32 (true float32 products) and bfloat16 with float32 sums; plans are cached by shape.
int32_t gemm(DeviceState& device, const GemmParams& params);

}  // namespace trafo::cuda
