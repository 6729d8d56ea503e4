#include "engine/ops/gather_rows/gather_rows.h"

#include "engine/backend/cuda/device_state.h"

namespace trafo {
namespace cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kUnroll = 4;  // words a thread moves

// Where rows are, all counts in words.
struct RowPlaces {
  const int32_t *index, *out_index;
  int64_t x_rows, out_rows, words, x_stride, out_stride, x_plane_stride, out_plane_stride;
  uint32_t pieces;
};

// A row number outside x cannot be reported from here: its row becomes all ones, which is NaN in
// every floating-point type and -1 in an integer. x and out may be one tensor.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const Word* x, Word* out, const RowPlaces p) {
  const int64_t row = blockIdx.x / p.pieces, plane = blockIdx.y, words = p.words;
  const int64_t begin =
      static_cast<int64_t>(blockIdx.x % p.pieces) * (kThreads * kUnroll) + threadIdx.x;
  const int64_t source = p.index[row], target = p.out_index ? p.out_index[row] : row;
  if (p.out_index && (target < 0 || target >= p.out_rows)) return;
  const bool inside = source >= 0 && source < p.x_rows;
  const Word* from = x + plane * p.x_plane_stride + (inside ? source : 0) * p.x_stride;
  Word* to = out + plane * p.out_plane_stride + target * p.out_stride;
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
  const auto in_words = [&](int64_t elements) { return elements * size / kWord; };
  const RowPlaces places{p.index,
                         p.out_index,
                         p.x_rows,
                         p.out_rows,
                         words,
                         in_words(p.x_stride),
                         in_words(p.out_stride),
                         in_words(p.x_plane_stride),
                         in_words(p.out_plane_stride),
                         static_cast<uint32_t>(pieces)};
  const dim3 blocks(static_cast<unsigned>(p.rows * pieces), static_cast<unsigned>(p.planes));
  gather_rows_kernel<Word><<<blocks, kThreads, 0, device.stream>>>(
      static_cast<const Word*>(p.x), static_cast<Word*>(p.out), places);
  return launched(device, "gather_rows");
}

}  // namespace
}  // namespace cuda

int32_t gather_rows_cuda(cuda::DeviceState& device, const GatherRowsParams& p) {
  using namespace cuda;
  const auto size = static_cast<int64_t>(dtype_size(p.dtype));
  if (p.rows == 0 || p.width == 0 || p.planes == 0) return kSuccess;
  // The widest word that every row starts and ends with.
  const uint64_t bits =
      reinterpret_cast<uintptr_t>(p.x) | reinterpret_cast<uintptr_t>(p.out) |
      static_cast<uint64_t>(p.width * size) | static_cast<uint64_t>(p.x_stride * size) |
      static_cast<uint64_t>(p.out_stride * size) | static_cast<uint64_t>(p.x_plane_stride * size) |
      static_cast<uint64_t>(p.out_plane_stride * size);
  if (bits % 16 == 0) return gather<uint4>(device, p, size);
  if (bits % 4 == 0) return gather<uint32_t>(device, p, size);
  return gather<uint16_t>(device, p, size);  // no dtype is narrower
}

}  // namespace trafo
