// The part of a link between GPUs that LinkFunctions needs. CUDA side only.
#pragma once

#include "engine/backend/cuda/device_state.h"
#include "engine/backend/cuda/link_api.h"

namespace trafo::cuda {

// Links derive from it. Their handles are pointers to this part.
struct LinkStreams {
  DeviceState* device = nullptr;
  int32_t index = 0;
  volatile uint64_t* done = nullptr;  // pinned host memory, which the device writes
  // For exchanges beside the computation; made on first use.
  cudaStream_t beside = nullptr;
  cudaEvent_t marks[kLinkMarks] = {};
  cudaEvent_t joined = nullptr;
};

cudaError_t open_streams(LinkStreams& link, DeviceState& device);
// Works without the device's handle, which may be closed.
void close_streams(LinkStreams& link);
// Where an exchange goes: the device's stream or, with `after` from 0 to kLinkMarks - 1, the second
// one, which waits for that mark.
cudaError_t stream_of_exchange(LinkStreams& link, int32_t after, cudaStream_t& stream);
// Nothing if there is one already.
cudaError_t make_event(cudaEvent_t& event);

LinkFunctions link_functions();

}  // namespace trafo::cuda
