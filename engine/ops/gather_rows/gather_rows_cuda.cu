#include "engine/ops/gather_rows/gather_rows.h"

#include "engine/backend/cuda/device_state.h"

namespace trafo {
namespace cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kUnroll = 4;  // words a thread moves

// All counts in words. A row number outside x cannot be reported from here: its row becomes all
// ones, which is NaN in every floating-point type and -1 in an integer.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const Word* __restrict__ x, const int32_t* __restrict__ index,
                       Word* __restrict__ out, int64_t x_rows, int64_t words, uint32_t pieces,
                       int64_t x_stride, int64_t out_stride) {
  const int64_t row = blockIdx.x / pieces;
  const int64_t begin =
      static_cast<int64_t>(blockIdx.x % pieces) * (kThreads * kUnroll) + threadIdx.x;
  const int64_t source = index[row];
  const bool inside = source >= 0 && source < x_rows;
  const Word* from = x + (inside ? source : 0) * x_stride;
  Word* to = out + row * out_stride;
  Word moved[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t i = begin + u * kThreads;
    if (inside && i < words)
      moved[u] = from[i];
    else
      memset(&moved[u], 0xff, sizeof(Word));
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t i = begin + u * kThreads;
    if (i < words) to[i] = moved[u];
  }
}

template <class Word>
int32_t gather(DeviceState& device, const GatherRowsParams& p, int64_t size) {
  constexpr int64_t kWord = sizeof(Word);
  const int64_t words = p.width * size / kWord;
  const int64_t pieces = (words + kThreads * kUnroll - 1) / (kThreads * kUnroll);
  gather_rows_kernel<Word><<<static_cast<unsigned>(p.rows * pieces), kThreads, 0, device.stream>>>(
      static_cast<const Word*>(p.x), p.index, static_cast<Word*>(p.out), p.x_rows, words,
      static_cast<uint32_t>(pieces), p.x_stride * size / kWord, p.out_stride * size / kWord);
  return launched(device, "gather_rows");
}

}  // namespace
}  // namespace cuda

int32_t gather_rows_cuda(cuda::DeviceState& device, const GatherRowsParams& p) {
  using namespace cuda;
  const auto size = static_cast<int64_t>(dtype_size(p.dtype));
  if (p.rows == 0 || p.width == 0) return kSuccess;
  // The widest word that every row starts and ends with.
  const uint64_t bits = reinterpret_cast<uintptr_t>(p.x) | reinterpret_cast<uintptr_t>(p.out) |
                        static_cast<uint64_t>(p.width * size) |
                        static_cast<uint64_t>(p.x_stride * size) |
                        static_cast<uint64_t>(p.out_stride * size);
  if (bits % 16 == 0) return gather<uint4>(device, p, size);
  if (bits % 4 == 0) return gather<uint32_t>(device, p, size);
  return gather<uint16_t>(device, p, size);  // no dtype is narrower
}

}  // namespace trafo
