// CUDA kernels of row numbers and masks: an element a thread.
#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device_state.h"
#include "engine/ops/masks/masks.h"

namespace trafo {
namespace cuda {
namespace {

constexpr int kThreads = 256;

unsigned grid_of(int64_t elements) {
  return static_cast<unsigned>((elements + kThreads - 1) / kThreads);
}

__device__ __forceinline__ int64_t element() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

__global__ void __launch_bounds__(kThreads) padded_rows_kernel(PaddedRowsParams p) {
  const int64_t place = element();
  if (place >= p.sequences * p.length) return;
  const int64_t b = place / p.length, i = place % p.length;
  const int64_t begin = p.begin[b], count = p.end[b] - begin;
  const int64_t last = max(int64_t{0}, min(i, count - 1));
  p.from[place] = static_cast<int32_t>(max(int64_t{0}, min(begin + last, p.rows - 1)));
  // The caller vouches for the row numbers; one outside must not become a write outside.
  if (p.to && i < count && begin + i >= 0 && begin + i < p.rows)
    p.to[begin + i] = static_cast<int32_t>(place);
}

template <class T>
__global__ void __launch_bounds__(kThreads) visible_keys_kernel(VisibleKeysParams p) {
  const int64_t at = element();
  if (at >= p.sequences * p.queries * p.keys) return;
  const int64_t row = at / p.keys, j = at % p.keys;
  const int64_t b = row / p.queries, i = row % p.queries;
  const int64_t queries = p.query_begin ? p.query_end[b] - p.query_begin[b] : p.queries;
  const int64_t keys = p.key_begin ? p.key_end[b] - p.key_begin[b] : p.keys;
  bool sees = i < queries && j < keys;
  const int64_t ahead = p.causal ? 1 : p.window;
  if (ahead > 0) sees = sees && j < i + keys - queries + ahead;
  if (p.window > 0) sees = sees && j > i + keys - queries - p.window;
  if (p.masked) sees = sees && p.masked[b * p.keys + j] == 0;
  static_cast<T*>(p.out)[at] = from_float<T>(sees ? 1.0f : 0.0f);
}

template <class T>
__global__ void __launch_bounds__(kThreads) one_hot_kernel(OneHotParams p) {
  const int64_t at = element();
  if (at >= p.rows * p.classes) return;
  const int32_t label = p.labels[at / p.classes];
  const bool hit = at % p.classes == label && label != p.ignore;
  static_cast<T*>(p.out)[at] = from_float<T>(hit ? 1.0f : 0.0f);
}

}  // namespace
}  // namespace cuda

int32_t padded_rows_cuda(cuda::DeviceState& device, const PaddedRowsParams& p) {
  using namespace cuda;
  const int64_t places = p.sequences * p.length;
  if (places == 0) return kSuccess;
  padded_rows_kernel<<<grid_of(places), kThreads, 0, device.stream>>>(p);
  return launched(device, "padded_rows");
}

int32_t visible_keys_cuda(cuda::DeviceState& device, const VisibleKeysParams& p) {
  using namespace cuda;
  const int64_t elements = p.sequences * p.queries * p.keys;
  if (elements == 0) return kSuccess;
  const bool known = with_device_type(p.dtype, [&](auto zero) {
    visible_keys_kernel<decltype(zero)><<<grid_of(elements), kThreads, 0, device.stream>>>(p);
  });
  if (!known) return unsupported(device, "visible_keys: float32 and bfloat16 only");
  return launched(device, "visible_keys");
}

int32_t one_hot_cuda(cuda::DeviceState& device, const OneHotParams& p) {
  using namespace cuda;
  const int64_t elements = p.rows * p.classes;
  if (elements == 0) return kSuccess;
  const bool known = with_device_type(p.dtype, [&](auto zero) {
    one_hot_kernel<decltype(zero)><<<grid_of(elements), kThreads, 0, device.stream>>>(p);
  });
  if (!known) return unsupported(device, "one_hot: float32 and bfloat16 only");
  return launched(device, "one_hot");
}

}  // namespace trafo
