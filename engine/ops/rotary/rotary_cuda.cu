// CUDA kernels of the rotary position embedding.
#include "engine/ops/rotary/rotary.h"

#include <cmath>

#include "engine/backend/cuda/device/rows.cuh"

namespace trafo {
namespace cuda {
namespace {

template <class T>
struct RotaryArgs {
  const T* from;  // x, or dy
  T* to;          // y, or dx
  const int32_t* positions;
  int64_t from_stride, to_stride, rows;
  double step;  // log2 of the ratio of neighbouring pairs' frequencies
  RotaryAngles angles;
  RotaryRamp ramp;
  int heads, rotated_heads, query_heads, half;  // of a row
  int block_rows;
  bool accumulate;
  Divider packs_of_half, packs_of_row;
};

// (a, b) rotated by the angle of (cosine, sine) and multiplied by a factor.
template <int V>
__device__ __forceinline__ void rotate(const float2* trig, float factor, float sign, float (&a)[V],
                                       float (&b)[V]) {
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const float c = factor * trig[j].x, s = sign * factor * trig[j].y, x = a[j], y = b[j];
    a[j] = fmaf(-y, s, x * c);
    b[j] = fmaf(x, s, y * c);
  }
}

// As RotaryAngles::query_factor.
__device__ __forceinline__ float query_factor(const RotaryAngles& angles, int64_t position) {
  if (angles.query_growth == 0 || position < angles.original_positions) return 1;
  const auto stretches = static_cast<double>(position / angles.original_positions);
  return static_cast<float>(1 + angles.query_growth * log1p(stretches));
}

// A block takes a few rows: first all of their cosines, sines and factors, then V pairs of a head a
// thread.
constexpr int kRotaryThreads = 256;
template <class T, int V, bool kBackward>
__global__ void __launch_bounds__(kRotaryThreads) rotary_kernel(RotaryArgs<T> a) {
  extern __shared__ float2 trig[];  // [block_rows, half]
  const auto factors = reinterpret_cast<float*>(trig + a.block_rows * a.half);  // [block_rows]
  const int64_t first = static_cast<int64_t>(blockIdx.x) * a.block_rows;
  const int rows = static_cast<int>(min(static_cast<int64_t>(a.block_rows), a.rows - first));
  for (int i = threadIdx.x; i < rows * a.half; i += kRotaryThreads) {
    const int row = i / a.half, pair = i - row * a.half;
    // In turns. Whole turns are taken off in float64, so that angles of far positions keep their
    // digits.
    constexpr double kTurn = 0.15915494309189533577;  // 1 / (2 pi)
    double of_position = exp2(pair * a.step) * kTurn;
    if (a.angles.factor != 1) {  // as RotaryAngles::of_pair does
      const double at = a.ramp.by_pair
                            ? -static_cast<double>(pair)
                            : static_cast<double>(a.angles.original_positions) * of_position;
      const double kept = (at - a.ramp.low) / (a.ramp.high - a.ramp.low);
      const double share = fmin(fmax(kept, 0.0), 1.0);
      of_position *= (1 - share) / a.angles.factor + share;
    }
    double turns = a.positions[first + row] * of_position;
    turns -= rint(turns);
    float sine, cosine;
    sincospif(2.0f * static_cast<float>(turns), &sine, &cosine);
    const auto magnitude = static_cast<float>(a.angles.magnitude);
    trig[i] = {magnitude * cosine, magnitude * sine};
    if (pair == 0) factors[row] = query_factor(a.angles, a.positions[first + row]);
  }
  __syncthreads();
  const int width = 2 * a.half;
  const uint32_t items = static_cast<uint32_t>(rows) * a.packs_of_row.divisor;
  for (uint32_t item = threadIdx.x; item < items; item += kRotaryThreads) {
    const uint32_t row = a.packs_of_row.quotient(item);
    const uint32_t in_row = item - row * a.packs_of_row.divisor;
    const int head = static_cast<int>(a.packs_of_half.quotient(in_row));
    const int pair = static_cast<int>(a.packs_of_half.remainder(in_row)) * V;
    const bool rotated = head < a.rotated_heads;
    if (!kBackward && !rotated && a.from == a.to) continue;  // in place
    const T* from = a.from + (first + row) * a.from_stride + head * width + pair;
    T* to = a.to + (first + row) * a.to_stride + head * width + pair;
    float x[V], y[V];
    load_floats<T, V>(from, x);
    load_floats<T, V>(from + a.half, y);
    const float factor = head < a.query_heads ? factors[row] : 1.0f;
    if (rotated) rotate<V>(trig + row * a.half + pair, factor, kBackward ? -1.0f : 1.0f, x, y);
    if constexpr (kBackward) {
      put_floats<T, V>(to, x, a.accumulate);
      put_floats<T, V>(to + a.half, y, a.accumulate);
    } else {
      store_floats<T, V>(to, x);
      store_floats<T, V>(to + a.half, y);
    }
  }
}

template <class T, int V, bool kBackward>
int32_t launch_rotary(DeviceState& device, RotaryArgs<T> args, const char* name) {
  args.packs_of_half = Divider::by(static_cast<uint32_t>(args.half / V));
  args.packs_of_row = Divider::by(static_cast<uint32_t>(args.heads * (args.half / V)));
  // Few rows have a block each, so that they do not wait for each other.
  const int64_t rows_for_all = args.rows / (2 * std::max(1, device.multiprocessors));
  args.block_rows = std::max(1, std::min(kRotaryThreads / args.half,
                                         static_cast<int>(std::min<int64_t>(rows_for_all, 1024))));
  const int64_t blocks = (args.rows + args.block_rows - 1) / args.block_rows;
  const size_t bytes =
      static_cast<size_t>(args.block_rows) * (args.half * sizeof(float2) + sizeof(float));
  rotary_kernel<T, V, kBackward>
      <<<static_cast<unsigned>(blocks), kRotaryThreads, bytes, device.stream>>>(args);
  return launched(device, name);
}

template <bool kBackward, class Params>
int32_t rotary(DeviceState& device, const Params& p, const void* from, void* to,
               int64_t from_stride, int64_t to_stride, bool accumulate, const char* name) {
  if (p.rows == 0) return kSuccess;
  // The angles of a row fill at most the shared memory that every block may have.
  if (p.head_dim > 8192) return unsupported(device, "rotary: heads of more than 8192 elements");
  if ((p.heads + 2 * p.kv_heads) * p.head_dim >= (int64_t{1} << 22))
    return unsupported(device, "rotary: rows of 2^22 elements or more");
  int32_t result = kSuccess;
  const bool typed = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int V = kPackWidth<T>;
    RotaryArgs<T> args{};
    args.from = static_cast<const T*>(from);
    args.to = static_cast<T*>(to);
    args.positions = p.positions;
    args.from_stride = from_stride;
    args.to_stride = to_stride;
    args.rows = p.rows;
    args.step = -2.0 / static_cast<double>(p.head_dim) * std::log2(p.angles.theta);
    args.angles = p.angles;
    args.ramp = p.ramp;
    args.heads = static_cast<int>(p.heads + 2 * p.kv_heads);
    args.rotated_heads = static_cast<int>(p.heads + p.kv_heads);
    args.query_heads = static_cast<int>(p.heads);
    args.half = static_cast<int>(p.head_dim / 2);
    args.accumulate = accumulate;
    const bool packed = args.half % V == 0 && from_stride % V == 0 && to_stride % V == 0 &&
                        aligned16(from) && aligned16(to);
    result = packed ? launch_rotary<T, V, kBackward>(device, args, name)
                    : launch_rotary<T, 1, kBackward>(device, args, name);
  });
  return typed ? result : unsupported(device, "rotary: float32 and bfloat16 only");
}

}  // namespace
}  // namespace cuda

int32_t rotary_forward_cuda(cuda::DeviceState& device, const RotaryForwardParams& p) {
  return cuda::rotary<false>(device, p, p.x, p.y, p.x_stride, p.y_stride, false, "rotary_forward");
}

int32_t rotary_backward_cuda(cuda::DeviceState& device, const RotaryBackwardParams& p) {
  return cuda::rotary<true>(device, p, p.dy, p.dx, p.dy_stride, p.dx_stride, p.accumulate,
                            "rotary_backward");
}

}  // namespace trafo
