// GEMMs with a small dimension, for which gemm() has kernels of its own.
#pragma once

#include "engine/backend/cuda/device_state.h"

namespace trafo::cuda {

// C [m, n] = A B^T + bias in bfloat16 for the few rows of A that a decode step has: 1 <= m <=
// kMostFewRows (engine/backend/gemm_kernels.h). B [n, k] is read once, which is nearly all the time
// it takes. k is a multiple of 8, and so are the distances of the rows of A and B, which begin on
// 16 bytes. C is bfloat16 or float32; sums are float32 and rounded once. A row's bits do not depend
// on the others.
int32_t few_rows(DeviceState& device, const GemmParams& params);

// C += A B of bfloat16 with k from 1 to 64, A as stored, no bias: what an adapter adds
// to a product. C is read once and written once, which is nearly all the time it takes; sums are
// float32 and rounded once, and a row's bits do not depend on the others.
int32_t rank_update(DeviceState& device, const GemmParams& params);

}  // namespace trafo::cuda
