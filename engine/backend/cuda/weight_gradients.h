#pragma once

#include <span>

#include "engine/backend/cuda/device_state.h"

namespace trafo::cuda {

// Whether the card has a kernel for them.
bool groups_gemms(const DeviceState& device);

// Backend::grouped_gemm. On compute capability 9.0 one launch computes the bf16 GEMMs that are
// weight gradients; cuBLASLt the others. Sums have a fixed order, and the bits of a GEMM do not
// depend on the others.
int32_t grouped_gemm(DeviceState& device, std::span<const GemmParams> gemms);

// Backend::sums_in_gemm.
bool sums_in_gemm(const DeviceState& device, const GemmParams& params, bool alone);

}  // namespace trafo::cuda
