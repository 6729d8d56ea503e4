// How much shared memory kernels may ask for.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/backend/cuda/device_state.h"

namespace trafo::cuda {

// Lets launches of `kernel` on this GPU ask for up to `bytes` of dynamic shared memory, or more.
// The limit belongs to the kernel and the GPU, so the contexts of a process share it, and a graph
// needs it until the graph is instantiated. It is therefore only raised. Any thread may call this.
cudaError_t raise_shared_memory(const DeviceState& device, const void* kernel, int64_t bytes);

}  // namespace trafo::cuda
