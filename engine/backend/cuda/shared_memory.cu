#include "engine/backend/cuda/shared_memory.h"

#include <map>
#include <mutex>
#include <utility>

namespace trafo::cuda {

cudaError_t raise_shared_memory(const DeviceState& device, const void* kernel, int64_t bytes) {
  static std::mutex mutex;
  static std::map<std::pair<int32_t, const void*>, int64_t> limits;
  const std::lock_guard lock(mutex);
  int64_t& limit = limits[{device.index, kernel}];
  if (bytes <= limit) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess) limit = bytes;
  return error;
}

}  // namespace trafo::cuda
