#include "engine/backend/cuda/device/tensor_map.cuh"

namespace trafo::cuda {
namespace {

constexpr cuuint64_t kElementBytes = 2;

// From the driver, which the plugin is not linked to; null if it has no such function.
using Encode = decltype(&cuTensorMapEncodeTiled);
Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
  if (error != cudaSuccess) {
    cudaGetLastError();  // is answered here
    return nullptr;
  }
  return found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
}

}  // namespace

bool make_tensor_map(CUtensorMap& map, const void* x, int64_t stride, int64_t rows, int64_t heads,
                     int64_t head_dim, int box_rows) {
  static const Encode encode = find_encode();
  if (!encode || rows <= 0 || rows > INT32_MAX) return false;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(head_dim), static_cast<cuuint64_t>(heads),
                              static_cast<cuuint64_t>(rows)};
  const cuuint64_t bytes[] = {static_cast<cuuint64_t>(head_dim) * kElementBytes,
                              static_cast<cuuint64_t>(stride) * kElementBytes};
  const cuuint32_t box[] = {64, 1, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1, 1};
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(x), sizes, bytes, box,
                steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace trafo::cuda
