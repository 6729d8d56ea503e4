#include "engine/ops/top_k/top_k.h"

#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device/reduce.cuh"
#include "engine/backend/cuda/device_state.h"

namespace trafo {
namespace cuda {
namespace {

// Classes a thread keeps at hand; when they are used up it looks through its share of the row
// again.
constexpr int kKept = 4;

struct Banned {
  int32_t count;
  int32_t ids[kMaxBannedClasses];
};

// A number that is larger for a larger value and, of equal values, for the lower class; never 0.
__device__ __forceinline__ uint64_t order_key(float value, uint32_t id) {
  const uint32_t bits = value == 0 ? 0u : __float_as_uint(value);
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - id);
}
__device__ __forceinline__ float key_value(uint64_t key) {
  const auto ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}
__device__ __forceinline__ uint32_t key_id(uint64_t key) {
  return 0xffffffffu - static_cast<uint32_t>(key);
}

// The largest keys of every Threads-th class from `first` on that are below `bound`, largest first;
// 0 where there are no more.
template <class T, int Threads>
__device__ __forceinline__ void collect(const T* row, int64_t classes, int first,
                                        const Banned& banned, uint64_t bound,
                                        uint64_t (&kept)[kKept]) {
#pragma unroll
  for (int i = 0; i < kKept; ++i) kept[i] = 0;
#pragma unroll 4
  for (int64_t c = first; c < classes; c += Threads) {
    uint64_t key = order_key(to_float(row[c]), static_cast<uint32_t>(c));
    if (key <= kept[kKept - 1] || key >= bound) continue;
    bool allowed = true;
    for (int32_t b = 0; b < banned.count; ++b) allowed = allowed && banned.ids[b] != c;
    if (!allowed) continue;
#pragma unroll
    for (int i = 0; i < kKept; ++i)
      if (key > kept[i]) {
        const uint64_t lower = kept[i];
        kept[i] = key;
        key = lower;
      }
  }
}

__device__ __forceinline__ uint64_t larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

template <int Threads>
__device__ uint64_t block_largest(uint64_t key, uint64_t* shared) {
  constexpr int kWarps = Threads / 32;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    key = larger(key, __shfl_xor_sync(0xffffffffu, key, offset));
  if (lane == 0) shared[threadIdx.x / 32] = key;
  __syncthreads();
  key = lane < kWarps ? shared[lane] : 0;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    key = larger(key, __shfl_xor_sync(0xffffffffu, key, offset));
  __syncthreads();
  return key;
}

// A block for each row.
template <class T, int Threads>
__global__ void __launch_bounds__(Threads, 1)
    top_k_kernel(const T* __restrict__ logits, int64_t classes, int64_t k, Banned banned_classes,
                 float* __restrict__ log_probabilities, int32_t* __restrict__ ids) {
  __shared__ Banned banned;
  if (threadIdx.x == 0) banned = banned_classes;
  __shared__ float float_shared[Threads / 32];
  __shared__ uint64_t key_shared[Threads / 32];
  const int64_t r = blockIdx.x;
  const T* row = logits + r * classes;
  float* values_out = log_probabilities + r * k;
  int32_t* ids_out = ids + r * k;

  // From the lowest finite number: exp(-infinity - maximum) is then 0 and not NaN.
  float maximum = Max::kIdentity;
#pragma unroll 4
  for (int64_t c = threadIdx.x; c < classes; c += Threads)
    maximum = fmaxf(maximum, to_float(row[c]));
  maximum = block_reduce<Max, Threads>(maximum, float_shared);
  float sum = 0;
#pragma unroll 4
  for (int64_t c = threadIdx.x; c < classes; c += Threads) sum += expf(to_float(row[c]) - maximum);
  sum = block_reduce<Add, Threads>(sum, float_shared);
  const float log_total = logf(sum);
  if (!isfinite(log_total)) {
    if (threadIdx.x == 0)
      for (int64_t i = 0, id = 0; i < k; ++id) {
        bool allowed = true;
        for (int32_t b = 0; b < banned.count; ++b) allowed = allowed && banned.ids[b] != id;
        if (!allowed) continue;
        values_out[i] = __int_as_float(0x7fffffff);
        ids_out[i++] = static_cast<int32_t>(id);
      }
    return;
  }

  uint64_t kept[kKept];
  collect<T, Threads>(row, classes, threadIdx.x, banned, ~uint64_t{0}, kept);
  for (int64_t i = 0; i < k; ++i) {
    const uint64_t best = block_largest<Threads>(kept[0], key_shared);
    if (kept[0] == best) {  // keys are unique: one thread
      values_out[i] = (key_value(best) - maximum) - log_total;
      ids_out[i] = static_cast<int32_t>(key_id(best));
#pragma unroll
      for (int j = 0; j + 1 < kKept; ++j) kept[j] = kept[j + 1];
      kept[kKept - 1] = 0;
      if (kept[0] == 0) collect<T, Threads>(row, classes, threadIdx.x, banned, best, kept);
    }
  }
}

}  // namespace
}  // namespace cuda

int32_t top_k_cuda(cuda::DeviceState& device, const TopKParams& p) {
  using namespace cuda;
  if (p.rows == 0) return kSuccess;
  Banned banned{p.banned_count, {}};
  for (int32_t i = 0; i < p.banned_count; ++i) banned.ids[i] = p.banned[i];
  const bool known = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto grid = static_cast<unsigned>(p.rows);
    const T* logits = static_cast<const T*>(p.logits);
    auto* out = static_cast<float*>(p.log_probabilities);
    if (p.classes <= 2048)
      top_k_kernel<T, 128>
          <<<grid, 128, 0, device.stream>>>(logits, p.classes, p.k, banned, out, p.ids);
    else
      top_k_kernel<T, 1024>
          <<<grid, 1024, 0, device.stream>>>(logits, p.classes, p.k, banned, out, p.ids);
  });
  if (!known) return unsupported(device, "top_k: CUDA has float32 and bfloat16");
  return launched(device, "top_k");
}

}  // namespace trafo
