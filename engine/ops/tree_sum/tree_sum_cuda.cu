#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device_state.h"
#include "engine/ops/tree_sum/tree_sum.h"

namespace trafo {
namespace {

using cuda::bf16;
using cuda::DeviceState;

constexpr int kTreeWidth = 8;  // elements of a thread: 16 bytes of bfloat16

// kWidth elements of a term as they are in memory. Their kind is examined only when they are added,
// so that the loads of the next term do not wait for the loads of this one.
template <int kWidth>
struct TreeWords {
  uint4 low, high;
};
template <>
struct TreeWords<1> {
  uint32_t word;
};

__device__ __forceinline__ TreeTerm term_at(const TreeTerm* terms, int32_t i) {
  const int4 words = __ldg(reinterpret_cast<const int4*>(terms) + i);
  TreeTerm term;
  static_assert(sizeof term == sizeof words);
  __builtin_memcpy(&term, &words, sizeof term);
  return term;
}

__device__ __forceinline__ void fetch(const TreeTerm& term, int64_t first,
                                      TreeWords<kTreeWidth>& words) {
  if (term.kind == TermKind::bfloat16) {
    words.low = *reinterpret_cast<const uint4*>(static_cast<const bf16*>(term.x) + first);
  } else {
    const auto* from = reinterpret_cast<const uint4*>(static_cast<const float*>(term.x) + first);
    words.low = from[0];
    words.high = from[1];
  }
}
__device__ __forceinline__ void fetch(const TreeTerm& term, int64_t first, TreeWords<1>& words) {
  if (term.kind == TermKind::bfloat16)
    words.word = static_cast<const uint16_t*>(term.x)[first];
  else
    words.word = static_cast<const uint32_t*>(term.x)[first];
}

__device__ __forceinline__ float rounded_to_bf16(float x) {
  return __bfloat162float(__float2bfloat16_rn(x));
}

__device__ __forceinline__ void to_values(TermKind kind, const TreeWords<kTreeWidth>& words,
                                          float (&x)[kTreeWidth]) {
  if (kind == TermKind::bfloat16) return cuda::to_floats<bf16, kTreeWidth>(words.low, x);
  float low[4], high[4];
  cuda::to_floats<float, 4>(words.low, low);
  cuda::to_floats<float, 4>(words.high, high);
#pragma unroll
  for (int j = 0; j < 4; ++j) x[j] = low[j], x[4 + j] = high[j];
  if (kind == TermKind::plain) return;
#pragma unroll
  for (int j = 0; j < kTreeWidth; ++j) x[j] = rounded_to_bf16(x[j]);
}
__device__ __forceinline__ void to_values(TermKind kind, const TreeWords<1>& words, float (&x)[1]) {
  x[0] = __uint_as_float(kind == TermKind::bfloat16 ? words.word << 16 : words.word);
  if (kind == TermKind::rounded) x[0] = rounded_to_bf16(x[0]);
}

// Elements `first` to `count`, kWidth a thread; their number is a multiple of it. The topmost sum
// is in registers, the sums below it in shared memory: for two terms, no sums are below. A thread
// has read its elements of all terms before it writes, so `out` may be one of them.
template <int kWidth>
__global__ void tree_sum_kernel(const TreeTerm* terms, int32_t term_count, int64_t first,
                                int64_t count, float* out) {
  extern __shared__ float below[];  // [depth][kWidth][threads]
  const auto threads = static_cast<int>(blockDim.x);
  const int64_t i = first + (int64_t{blockIdx.x} * threads + threadIdx.x) * kWidth;
  if (i >= count) return;
  const auto spilled = [&](int level, int j) -> float& {
    return below[(level * kWidth + j) * threads + threadIdx.x];
  };
  float top[kWidth];
  int level = 0;
  TreeTerm term = term_at(terms, 0);
  TreeWords<kWidth> words;
  fetch(term, i, words);
  for (int32_t t = 0; t < term_count; ++t) {
    const TreeTerm current = term;
    const TreeWords<kWidth> fetched = words;
    if (t + 1 < term_count) {
      term = term_at(terms, t + 1);
      fetch(term, i, words);
    }
    float x[kWidth];
    to_values(current.kind, fetched, x);
    if (current.additions == 0 && t > 0) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) spilled(level, j) = top[j];
      ++level;
    }
    if (current.additions > 0) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) x[j] = top[j] + x[j];
    }
    for (int32_t a = 1; a < current.additions; ++a) {
      --level;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) x[j] = spilled(level, j) + x[j];
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) top[j] = x[j];
  }
  if constexpr (kWidth == 1) {
    out[i] = top[0];
  } else {
#pragma unroll
    for (int j = 0; j < kWidth; j += 4)
      cuda::store_pack(out + i + j,
                       cuda::Pack<float, 4>{top[j], top[j + 1], top[j + 2], top[j + 3]});
  }
}

template <int kWidth>
void launch_tree_sum(DeviceState& device, const TreeSumParams& p, int64_t first, int64_t count) {
  if (first >= count) return;
  // At most 48 KiB of shared memory a block. A tree of 65,536 lanes has a depth of 16.
  const int threads = p.depth <= 8 ? 128 : 32;
  const auto shared = static_cast<size_t>(p.depth * kWidth * threads) * sizeof(float);
  const int64_t elements = int64_t{threads} * kWidth;
  const auto grid = static_cast<unsigned>((count - first + elements - 1) / elements);
  tree_sum_kernel<kWidth><<<grid, threads, shared, device.stream>>>(
      p.terms, p.term_count, first, count, static_cast<float*>(p.out));
}

}  // namespace

int32_t tree_sum_cuda(DeviceState& device, const TreeSumParams& p) {
  if (p.dtype != DType::f32) return cuda::unsupported(device, "tree_sum is float32 on CUDA");
  if (p.depth > 48) return cuda::unsupported(device, "tree_sum has at most 48 open sums on CUDA");
  const int64_t whole = p.aligned ? p.count / kTreeWidth * kTreeWidth : 0;
  launch_tree_sum<kTreeWidth>(device, p, 0, whole);
  launch_tree_sum<1>(device, p, whole, p.count);
  return cuda::launched(device, "tree_sum");
}

}  // namespace trafo
