// CUDA kernel of fake_quant_rows. The roundings are written out, so that no option of the compiler
// changes a bit.
#include <cuda_fp16.h>

#include "engine/backend/cuda/device/rows.cuh"
#include "engine/ops/fake_quant_rows/fake_quant_rows.h"

namespace trafo {
namespace cuda {
namespace {

constexpr const char* kName = "fake_quant_rows";
constexpr int kThreads = 256;
constexpr int kGroup = 32;  // columns of a scale of 4 bits, formats::kInt4.group
// Packs of a lane that stay in registers between the two passes.
template <int kBits>
inline constexpr int kHeldPacks = kBits == 4 ? 1 : 8;
// Matrices of a launch. The weights of a model have one or a few launches, an input has its own:
// what is passed to a kernel costs time, too.
constexpr int kMostMatrices = 64;

template <int kMost>
struct MatrixList {
  int count;
  unsigned first_block[kMost];
  MatrixPlace at[kMost];
};

// Threads that share a scale, with V elements in each load: a row of 8 bits, a group of 4.
template <int kBits, int V>
inline constexpr int kLanes = kBits == 4 ? kGroup / V : 32;
template <int kBits, int V>
inline constexpr int kScalesOfBlock = kThreads / kLanes<kBits, V>;

struct Codes {
  float scale, factor;
  bool finite;
};

// `largest`: the bits of the largest magnitude. Those of infinity and of NaN are above all others.
template <int kBits>
__device__ __forceinline__ Codes codes_of(uint32_t largest) {
  const float most = __uint_as_float(largest);
  if (largest >= 0x7f800000u) return {__int_as_float(0x7fffffff), 0.0f, false};
  if (most < 0x1p-100f) return {0.0f, 0.0f, true};
  float scale;
  if constexpr (kBits == 4) {
    scale = __half2float(__float2half_rn(fminf(__fdiv_rn(most, 7.0f), 65504.0f)));
  } else {  // ScaleType::bfloat16 of quant/weight_format.h
    const uint32_t exact = __float_as_uint(__fdiv_rn(most, 127.0f));
    scale = __uint_as_float((exact + 0xffffu) & 0xffff0000u);
  }
  return {scale, scale > 0 ? __fdiv_rn(1.0f, scale) : 0.0f, true};
}

template <int kBits>
__device__ __forceinline__ float rounded(float x, const Codes& codes) {
  constexpr float kBound = kBits == 4 ? 7.0f : 127.0f;
  // Of NaN and infinity no code is made: NaN times the 0 in their place.
  const float code = codes.finite ? rintf(__fmul_rn(x, codes.factor)) : 0.0f;
  return __fmul_rn(fminf(fmaxf(code, -kBound), kBound), codes.scale);
}

template <int N>
__device__ __forceinline__ uint32_t largest_bits(const float (&x)[N], uint32_t largest) {
#pragma unroll
  for (int j = 0; j < N; ++j) largest = max(largest, __float_as_uint(x[j]) & 0x7fffffffu);
  return largest;
}

template <class From, class To, int V, int kBits, int kMost>
__global__ void __launch_bounds__(kThreads)
    fake_quant_rows_kernel(const From* x, To* y, const __grid_constant__ MatrixList<kMost> list) {
  constexpr int kWays = kLanes<kBits, V>, kStep = kWays * V, kHeld = kHeldPacks<kBits>;
  int m = 0;  // the last matrix that does not begin after this block
  if constexpr (kMost > 1) {
    int behind = list.count;
    while (behind - m > 1) {
      const int middle = (m + behind) / 2;
      if (list.first_block[middle] <= blockIdx.x)
        m = middle;
      else
        behind = middle;
    }
  }
  const MatrixPlace matrix = list.at[m];
  const int64_t groups = kBits == 4 ? (matrix.width + kGroup - 1) / kGroup : 1;
  const int64_t index =
      int64_t{blockIdx.x - list.first_block[m]} * kScalesOfBlock<kBits, V> + threadIdx.x / kWays;
  const bool there = index < matrix.rows * groups;  // all lanes of a warp shuffle
  const int64_t row = there ? index / groups : 0;
  const int64_t column = there ? index % groups * kGroup : 0;
  const int64_t whole = kBits == 4 ? min(int64_t{kGroup}, matrix.width - column) : matrix.width;
  const int64_t count = there ? whole : 0;
  const int64_t begin = matrix.offset + row * matrix.width + column;
  x += begin;
  y += begin;
  const int first = static_cast<int>(threadIdx.x % kWays) * V;
  const bool held_whole = count <= int64_t{kHeld} * kStep;

  Held<From, V> held[kHeld];
  float values[V];
  uint32_t largest = 0;
  if (held_whole) {
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (first + k * kStep < count) held[k] = load_held<From, V>(x + first + k * kStep);
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (first + k * kStep >= count) continue;
      to_floats<From, V>(held[k], values);
      largest = largest_bits(values, largest);
    }
  } else {
    for (int64_t c = first; c < count; c += kStep) {
      load_floats<From, V>(x + c, values);
      largest = largest_bits(values, largest);
    }
  }
#pragma unroll
  for (int offset = kWays / 2; offset > 0; offset /= 2)
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, offset));

  const Codes codes = codes_of<kBits>(largest);
  const auto put = [&](int64_t c) {
    float codes_times_scale[V];
#pragma unroll
    for (int j = 0; j < V; ++j) codes_times_scale[j] = rounded<kBits>(values[j], codes);
    store_floats<To, V>(y + c, codes_times_scale);
  };
  if (held_whole) {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (first + k * kStep >= count) continue;
      to_floats<From, V>(held[k], values);
      put(first + k * kStep);
    }
  } else {
    for (int64_t c = first; c < count; c += kStep) {
      load_floats<From, V>(x + c, values);
      put(c);
    }
  }
}

template <class From, class To, int V, int kBits, int kMost>
int32_t launch_list(DeviceState& device, const FakeQuantRowsParams& p,
                    const MatrixList<kMost>& list, unsigned blocks) {
  if (blocks == 0) return kSuccess;
  fake_quant_rows_kernel<From, To, V, kBits, kMost><<<blocks, kThreads, 0, device.stream>>>(
      static_cast<const From*>(p.x), static_cast<To*>(p.y), list);
  return launched(device, kName);
}

// The matrices whose rows are whole packs of V elements, or the others.
template <class From, class To, int V, int kBits>
int32_t run_matrices(DeviceState& device, const FakeQuantRowsParams& p) {
  const auto packed = [&](const MatrixPlace& matrix) {
    return matrix.width % kPackWidth<From> == 0 && matrix.offset % kPackWidth<From> == 0 &&
           aligned16(p.x) && aligned16(p.y);
  };
  const auto blocks_of = [](const MatrixPlace& matrix) {
    const int64_t groups = kBits == 4 ? (matrix.width + kGroup - 1) / kGroup : 1;
    constexpr int64_t kScales = kScalesOfBlock<kBits, V>;
    return static_cast<unsigned>((matrix.rows * groups + kScales - 1) / kScales);
  };
  if (p.count == 1) {
    if (packed(p.matrices[0]) != (V > 1)) return kSuccess;
    const MatrixList<1> one{1, {0}, {p.matrices[0]}};
    return launch_list<From, To, V, kBits>(device, p, one, blocks_of(p.matrices[0]));
  }
  MatrixList<kMostMatrices> list{};
  unsigned blocks = 0;
  for (int64_t i = 0; i < p.count; ++i) {
    if (packed(p.matrices[i]) != (V > 1)) continue;
    if (list.count == kMostMatrices) {
      const int32_t result = launch_list<From, To, V, kBits>(device, p, list, blocks);
      if (result != kSuccess) return result;
      list.count = 0;
      blocks = 0;
    }
    list.first_block[list.count] = blocks;
    list.at[list.count++] = p.matrices[i];
    blocks += blocks_of(p.matrices[i]);
  }
  return launch_list<From, To, V, kBits>(device, p, list, blocks);
}

template <class From, class To>
int32_t run(DeviceState& device, const FakeQuantRowsParams& p) {
  constexpr int V = kPackWidth<From>;
  const int32_t result = p.bits == 4 ? run_matrices<From, To, V, 4>(device, p)
                                     : run_matrices<From, To, V, 8>(device, p);
  if (result != kSuccess) return result;
  return p.bits == 4 ? run_matrices<From, To, 1, 4>(device, p)
                     : run_matrices<From, To, 1, 8>(device, p);
}

}  // namespace
}  // namespace cuda

int32_t fake_quant_rows_cuda(cuda::DeviceState& device, const FakeQuantRowsParams& p) {
  using cuda::bf16;
  if (p.from == DType::f32 && p.to == DType::f32) return cuda::run<float, float>(device, p);
  if (p.from == DType::f32 && p.to == DType::bf16) return cuda::run<float, bf16>(device, p);
  if (p.from == DType::bf16 && p.to == DType::bf16) return cuda::run<bf16, bf16>(device, p);
  return cuda::unsupported(device, "fake_quant_rows: float32 and bfloat16 only");
}

}  // namespace trafo
