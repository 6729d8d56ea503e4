// A device in the background issues its work to a stream of the lowest priority: the card starts
// the blocks of other streams first.
#include "engine/backend/cuda/priority_api.h"

#include <utility>

#include "engine/backend/cuda/device_state.h"

extern "C" __attribute__((visibility("default"))) int32_t trafo_cuda_priority(
    void* device, int32_t background, trafo::cuda::Why why) {
  using namespace trafo::cuda;
  DeviceState& state = enter(device);
  int least = 0, greatest = 0;
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (error == cudaSuccess) error = cudaStreamSynchronize(state.stream);
  if (error == cudaSuccess)
    error =
        cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, background ? least : greatest);
  if (error == cudaSuccess) error = cudaStreamDestroy(std::exchange(state.stream, stream));
  return checked(device, error, "setting the priority", why);
}
