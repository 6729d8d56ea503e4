#include "engine/backend/cuda/device_state.h"
#include "engine/ops/kv_cache/kv_cache.h"

namespace trafo {
namespace cuda {
namespace {

constexpr int kThreads = 128;

// A block for each token. All counts in words.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    append_kernel(const Word* __restrict__ x, const int32_t* __restrict__ slots,
                  Word* __restrict__ cache, int64_t cache_rows, int64_t words, int64_t x_stride,
                  int64_t cache_stride) {
  const int64_t slot = slots[blockIdx.x];
  if (slot < 0 || slot >= cache_rows) return;
  const Word* from = x + blockIdx.x * x_stride;
  Word* to = cache + slot * cache_stride;
  for (int64_t i = threadIdx.x; i < words; i += kThreads) to[i] = from[i];
}

template <class Word>
int32_t append(DeviceState& device, const KvCacheAppendParams& p, int64_t size) {
  constexpr int64_t kWord = sizeof(Word);
  append_kernel<Word><<<static_cast<unsigned>(p.tokens), kThreads, 0, device.stream>>>(
      static_cast<const Word*>(p.x), p.slots, static_cast<Word*>(p.cache), p.cache_rows,
      p.columns * size / kWord, p.x_stride * size / kWord, p.cache_stride * size / kWord);
  return launched(device, "kv_cache_append");
}

}  // namespace
}  // namespace cuda

int32_t kv_cache_append_cuda(cuda::DeviceState& device, const KvCacheAppendParams& p) {
  using namespace cuda;
  const auto size = static_cast<int64_t>(dtype_size(p.dtype));
  if (p.tokens == 0 || p.columns == 0) return kSuccess;
  // The widest word that every row starts and ends with.
  const uint64_t bits = reinterpret_cast<uintptr_t>(p.x) | reinterpret_cast<uintptr_t>(p.cache) |
                        static_cast<uint64_t>(p.columns * size) |
                        static_cast<uint64_t>(p.x_stride * size) |
                        static_cast<uint64_t>(p.cache_stride * size);
  if (bits % 16 == 0) return append<uint4>(device, p, size);
  if (bits % 4 == 0) return append<uint32_t>(device, p, size);
  return append<uint16_t>(device, p, size);  // no dtype is narrower
}

}  // namespace trafo
