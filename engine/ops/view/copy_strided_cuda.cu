#include <type_traits>

#include "engine/backend/cuda/device/elementwise.cuh"
#include "engine/backend/cuda/device/strided.cuh"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

using cuda::DeviceState;
using Layout = cuda::StridedLayout<2>;

constexpr int kSrc = 0, kDst = 1;
constexpr int kThreads = 256;
constexpr int kTile = 32;  // edge of a tile of a transposition
constexpr int kTileRows = kThreads / kTile;

// How elements of a type are put where they go. Copies move bytes: T is only a size there.
struct Copy {
  template <class T>
  __device__ static T join(T, T src) {
    return src;
  }
  static constexpr bool kReads = false;
};
struct Accumulate {
  template <class T>
  __device__ static T join(T dst, T src) {
    if constexpr (std::is_same_v<T, double>)
      return dst + src;
    else
      return cuda::from_float<T>(cuda::to_float(dst) + cuda::to_float(src));
  }
  static constexpr bool kReads = true;
};

template <class Op, class T>
__device__ __forceinline__ void put(T* dst, T src) {
  if constexpr (Op::kReads) src = Op::join(*dst, src);
  *dst = src;
}

// One thread moves kWidth neighbours of one row; kWidth > 1 where both sides are dense and aligned.
template <class T, class Op, int kWidth, class Index>
__global__ void __launch_bounds__(kThreads) copy_rows(Layout layout, const T* src, T* dst) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= layout.count) return;
  int64_t at[2];
  cuda::locate(layout, static_cast<Index>(i), at);
  if constexpr (kWidth == 1) {
    put<Op>(dst + at[kDst], src[at[kSrc]]);
  } else {
    auto pack = cuda::load_pack<T, kWidth>(src + at[kSrc]);
    if constexpr (Op::kReads) {
      const auto old = cuda::load_pack<T, kWidth>(dst + at[kDst]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) pack.v[j] = Op::join(old.v[j], pack.v[j]);
    }
    cuda::store_pack(dst + at[kDst], pack);
  }
}

// A transposition: `height` elements are dense in src, `width` elements (the last dimension) in
// dst. Tiles go through shared memory, so that both sides are accessed along their dense dimension.
struct Transposition {
  Layout outer;  // the dimensions but those two
  int64_t height, width;
  int64_t src_step, dst_step;  // of the last dimension in src, of the dense one in dst
  int64_t row_tiles, column_tiles;
};

template <class T, class Op>
__global__ void __launch_bounds__(kThreads) transpose_tiles(Transposition t, const T* src, T* dst) {
  __shared__ T tile[kTile][kTile + 1];
  int64_t item = blockIdx.x;
  const int64_t column = item % t.column_tiles * kTile;
  item /= t.column_tiles;
  const int64_t row = item % t.row_tiles * kTile;
  int64_t at[2];
  cuda::locate(t.outer, static_cast<uint64_t>(item / t.row_tiles), at);
  const int lane = threadIdx.x % kTile, first = threadIdx.x / kTile;
#pragma unroll
  for (int j = first; j < kTile; j += kTileRows)
    if (row + lane < t.height && column + j < t.width)
      tile[j][lane] = src[at[kSrc] + row + lane + (column + j) * t.src_step];
  __syncthreads();
#pragma unroll
  for (int j = first; j < kTile; j += kTileRows)
    if (row + j < t.height && column + lane < t.width)
      put<Op>(dst + at[kDst] + (row + j) * t.dst_step + column + lane, tile[lane][j]);
}

// The dimension that is dense in src, where the last one is dense only in dst; -1 if that is not
// the case.
int transposed_dimension(const Layout& layout) {
  if (layout.step(kDst) != 1 || layout.step(kSrc) == 1 || layout.width() < 4) return -1;
  for (int i = 0; i + 1 < layout.rank; ++i)
    if (layout.strides[kSrc][i] == 1 && layout.shape[i] >= 4) return i;
  return -1;
}

Transposition transposition(const Layout& layout, int dense) {
  Transposition t{};
  t.height = layout.shape[dense];
  t.width = layout.width();
  t.src_step = layout.step(kSrc);
  t.dst_step = layout.strides[kDst][dense];
  t.row_tiles = (t.height - 1) / kTile + 1;
  t.column_tiles = (t.width - 1) / kTile + 1;
  int64_t shape[kMaxRank], src[kMaxRank], dst[kMaxRank];
  int rank = 0;
  for (int i = 0; i + 1 < layout.rank; ++i) {
    if (i == dense) continue;
    shape[rank] = layout.shape[i];
    src[rank] = layout.strides[kSrc][i];
    dst[rank++] = layout.strides[kDst][i];
  }
  t.outer = cuda::strided_layout<2>(rank, shape, {src, dst});
  return t;
}

template <class T, class Op>
int32_t run(DeviceState& device, const Layout& layout, const CopyStridedParams& p) {
  const T* src = static_cast<const T*>(p.src);
  T* dst = static_cast<T*>(p.dst);
  if (const int dense = transposed_dimension(layout); dense >= 0) {
    const Transposition t = transposition(layout, dense);
    const auto blocks = static_cast<unsigned>(t.outer.count * t.row_tiles * t.column_tiles);
    transpose_tiles<T, Op><<<blocks, kThreads, 0, device.stream>>>(t, src, dst);
    return cuda::launched(device, "copy_strided");
  }
  constexpr int kWide = cuda::kPackWidth<T>;
  const bool small = layout.count < (int64_t{1} << 31);
  const bool wide = small && layout.width() % kWide == 0 && layout.step(kSrc) == 1 &&
                    layout.step(kDst) == 1 && layout.rows_aligned(kSrc, kWide) &&
                    layout.rows_aligned(kDst, kWide) && cuda::aligned16(src) &&
                    cuda::aligned16(dst);
  const auto blocks =
      static_cast<unsigned>((layout.count - 1) / (kThreads * (wide ? kWide : 1)) + 1);
  if (wide)
    copy_rows<T, Op, kWide, uint32_t><<<blocks, kThreads, 0, device.stream>>>(layout, src, dst);
  else if (small)
    copy_rows<T, Op, 1, uint32_t><<<blocks, kThreads, 0, device.stream>>>(layout, src, dst);
  else
    copy_rows<T, Op, 1, uint64_t><<<blocks, kThreads, 0, device.stream>>>(layout, src, dst);
  return cuda::launched(device, "copy_strided");
}

struct Sum {
  template <int kWidth>
  __device__ void operator()(int64_t, const float (&in)[1][kWidth], float (&out)[kWidth]) const {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) out[j] = in[0][j];
  }
};

}  // namespace

int32_t copy_strided_cuda(DeviceState& device, const CopyStridedParams& p) {
  const Layout layout = cuda::strided_layout<2>(p.rank, p.shape, {p.src_strides, p.dst_strides});
  if (layout.count == 0) return cuda::kSuccess;
  const bool dense = layout.rank == 1 && layout.step(kSrc) == 1 && layout.step(kDst) == 1;
  if (p.accumulate) {
    if (p.dtype == DType::f64) return run<double, Accumulate>(device, layout, p);
    int32_t result = cuda::kSuccess;
    const bool known = cuda::with_device_type(p.dtype, [&](auto zero) {
      using T = decltype(zero);
      if (dense)
        result = cuda::elementwise<cuda::kPackWidth<T>>(
            device, "copy_strided", cuda::ElementwiseInputs<T, 1>{{static_cast<const T*>(p.src)}},
            static_cast<T*>(p.dst), layout.count, true, Sum{});
      else
        result = run<T, Accumulate>(device, layout, p);
    });
    return known ? result
                 : cuda::unsupported(device, "only floating-point tensors can be added to");
  }
  const size_t size = dtype_size(p.dtype);
  if (dense) {
    const cudaError_t error =
        cudaMemcpyAsync(p.dst, p.src, static_cast<size_t>(layout.count) * size,
                        cudaMemcpyDeviceToDevice, device.stream);
    return error == cudaSuccess ? cuda::kSuccess : cuda::report(device, error, "copy_strided");
  }
  if (size == 2) return run<uint16_t, Copy>(device, layout, p);
  if (size == 4) return run<uint32_t, Copy>(device, layout, p);
  return run<uint64_t, Copy>(device, layout, p);
}

}  // namespace trafo
