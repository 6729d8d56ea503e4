#pragma once

#include "engine/backend/cuda/device_state.h"

namespace trafo::cuda {

// C += A B of bfloat16 with k from 1 to 64, A as stored, no bias: what an adapter adds
// to a product. C is read once and written once, which is nearly all the time it takes; sums are
// float32 and rounded once, and a row's bits do not depend on the others.
int32_t rank_update(DeviceState& device, const GemmParams& params);

}  // namespace trafo::cuda
