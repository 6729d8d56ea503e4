// CUDA kernels of the masked softmax. A row lives in the registers of a part of a warp, of a warp
// or of a block; it is read once and written once. Rows longer than a block's registers go through
// an online maximum and are read twice.
#include <cmath>

#include "engine/backend/cuda/device/rows.cuh"
#include "engine/ops/softmax/softmax.h"

namespace trafo {
namespace cuda {
namespace {

constexpr int kLoopThreads = 512;

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <class T>
struct ForwardArgs {
  const T* x;
  const int32_t* padding_mask;  // [batch, keys] or null
  T* y;
  int64_t rows, keys, queries, rows_of_batch;
  float scale;   // times log2(e): exponentials are powers of two; never 0
  float masked;  // the value of a masked key: infinite, and -infinity once it is scaled
  bool causal;
  bool streamed;  // x and y are tensors of kStreamedBytes or more
};

// The keys a row may see: the first `count` but those its mask hides.
struct Visible {
  int64_t count;
  const int32_t* mask;
};

template <class T>
__device__ __forceinline__ Visible visible_keys(const ForwardArgs<T>& a, int64_t row) {
  Visible visible{a.keys, nullptr};
  const bool small = a.rows <= 0xffffffffll;  // 64-bit division is slow
  if (a.causal) {
    const int64_t query =
        small ? static_cast<uint32_t>(row) % static_cast<uint32_t>(a.queries) : row % a.queries;
    visible.count = max(int64_t{0}, min(a.keys, query + a.keys - a.queries + 1));
  }
  if (a.padding_mask) {
    const int64_t batch = small
                              ? static_cast<uint32_t>(row) / static_cast<uint32_t>(a.rows_of_batch)
                              : row / a.rows_of_batch;
    visible.mask = a.padding_mask + batch * a.keys;
  }
  return visible;
}

// Which of V keys from `column` on are hidden: bit j is key column + j.
template <class T, int V>
__device__ __forceinline__ uint32_t hidden_keys(const ForwardArgs<T>& a, const Visible& visible,
                                                int64_t column) {
  const int left = static_cast<int>(max(min(visible.count - column, int64_t{V}), int64_t{0}));
  uint32_t hidden = ((1u << V) - 1) & ~((1u << left) - 1);
  if (visible.mask && left > 0) {
    constexpr int kInts = V > 4 ? 4 : V;
#pragma unroll
    for (int part = 0; part < V / kInts; ++part) {
      const Pack<int32_t, kInts> mask =
          load_pack<int32_t, kInts>(visible.mask + column + part * kInts);
#pragma unroll
      for (int j = 0; j < kInts; ++j) hidden |= (mask.v[j] ? 1u : 0u) << (part * kInts + j);
    }
  }
  return hidden;
}

// v = V keys, the hidden ones as a.masked.
template <class T, int V>
__device__ __forceinline__ void masked_floats(const ForwardArgs<T>& a, uint32_t hidden,
                                              const Held<T, V>& in, float (&v)[V]) {
  to_floats<T>(in, v);
  if (__builtin_expect(hidden != 0, false)) {
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = hidden >> j & 1 ? a.masked : v[j];
  }
}

template <class T, int V, int Lanes, int P>
__global__ void __launch_bounds__(kThreadsOfBlock<Lanes>, 1) forward_rows(ForwardArgs<T> a) {
  constexpr int kRows = kThreadsOfBlock<Lanes> / Lanes;
  __shared__ float shared[2][kWarpsOfRow<Lanes>];
  const int lane = threadIdx.x % Lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / Lanes;
  const bool there = row < a.rows;  // the others take part in the shuffles
  const Visible visible = there ? visible_keys(a, row) : Visible{0, nullptr};
  const T* x = a.x + row * a.keys;
  Held<T, V> in[P] = {};
#pragma unroll
  for (int k = 0; k < P; ++k) {
    const int column = (k * Lanes + lane) * V;
    if (column < visible.count) in[k] = load_stream<T, V>(x + column, a.streamed);
  }
  // The mask comes from a cache while the keys are in flight.
  static_assert(P * V <= 32);
  uint32_t hidden = 0;
#pragma unroll
  for (int k = 0; k < P; ++k)
    hidden |= hidden_keys<T, V>(a, visible, (k * Lanes + lane) * V) << (k * V);
  float v[P][V];
  float top = -INFINITY;
#pragma unroll
  for (int k = 0; k < P; ++k) {
    masked_floats<T, V>(a, hidden >> (k * V) & ((1u << V) - 1), in[k], v[k]);
#pragma unroll
    for (int j = 0; j < V; ++j) top = fmaxf(top, v[k][j] * a.scale);
  }
  top = row_reduce<Max, Lanes>(top, shared[0]);
  if (top <= Max::kIdentity) top = 0;  // nothing to see: every power is 0
  float sum = 0;
#pragma unroll
  for (int k = 0; k < P; ++k) {
#pragma unroll
    for (int j = 0; j < V; ++j) {
      v[k][j] = exp2_fast(fmaf(v[k][j], a.scale, -top));
      sum += v[k][j];
    }
  }
  sum = row_reduce<Add, Lanes>(sum, shared[1]);
  const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
  T* y = a.y + row * a.keys;
#pragma unroll
  for (int k = 0; k < P; ++k) {
    const int column = (k * Lanes + lane) * V;
#pragma unroll
    for (int j = 0; j < V; ++j) v[k][j] *= inverse;
    if (there && column < a.keys)
      store_stream<T, V>(y + column, from_floats<T, V>(v[k]), a.streamed);
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kLoopThreads) forward_loop(ForwardArgs<T> a) {
  __shared__ float shared[2][kWarpsOfRow<kLoopThreads>];
  const int64_t row = blockIdx.x;
  const Visible visible = visible_keys(a, row);
  const T* x = a.x + row * a.keys;
  float top = -INFINITY, sum = 0;
  for (int64_t column = threadIdx.x * V; column < visible.count; column += kLoopThreads * V) {
    float v[V];
    masked_floats<T, V>(a, hidden_keys<T, V>(a, visible, column), load_held<T, V>(x + column), v);
    float highest = top;
#pragma unroll
    for (int j = 0; j < V; ++j) highest = fmaxf(highest, v[j] * a.scale);
    if (highest == -INFINITY) continue;
    sum *= exp2_fast(top - highest);
    top = highest;
#pragma unroll
    for (int j = 0; j < V; ++j) sum += exp2_fast(fmaf(v[j], a.scale, -top));
  }
  float highest = row_reduce<Max, kLoopThreads>(top, shared[0]);
  if (highest <= Max::kIdentity) highest = 0;
  sum = row_reduce<Add, kLoopThreads>(sum * exp2_fast(top - highest), shared[1]);
  const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
  T* y = a.y + row * a.keys;
  for (int64_t column = threadIdx.x * V; column < a.keys; column += kLoopThreads * V) {
    float v[V] = {};
    if (column < visible.count) {
      masked_floats<T, V>(a, hidden_keys<T, V>(a, visible, column), load_held<T, V>(x + column), v);
#pragma unroll
      for (int j = 0; j < V; ++j) v[j] = exp2_fast(fmaf(v[j], a.scale, -highest)) * inverse;
    }
    store_floats<T, V>(y + column, v);
  }
}

template <class T>
struct BackwardArgs {
  const T* y;
  const T* dy;
  T* dx;
  int64_t rows, keys;
  float scale;
  bool accumulate;
};

template <class T, int V>
__device__ __forceinline__ float product_sum(const Held<T, V>& y, const Held<T, V>& dy) {
  float a[V], b[V], sum = 0;
  to_floats<T>(y, a);
  to_floats<T>(dy, b);
#pragma unroll
  for (int j = 0; j < V; ++j) sum = fmaf(a[j], b[j], sum);
  return sum;
}

// dx = scale y (dy - dot) of V keys.
template <class T, int V>
__device__ __forceinline__ void write_gradient(const BackwardArgs<T>& a, T* dx, const Held<T, V>& y,
                                               const Held<T, V>& dy, float dot) {
  float out[V], d[V];
  to_floats<T>(y, out);
  to_floats<T>(dy, d);
#pragma unroll
  for (int j = 0; j < V; ++j) out[j] = a.scale * out[j] * (d[j] - dot);
  put_floats<T, V>(dx, out, a.accumulate);
}

template <class T, int V, int Lanes, int P>
__global__ void __launch_bounds__(kThreadsOfBlock<Lanes>, 1) backward_rows(BackwardArgs<T> a) {
  constexpr int kRows = kThreadsOfBlock<Lanes> / Lanes;
  __shared__ float shared[kWarpsOfRow<Lanes>];
  const int lane = threadIdx.x % Lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / Lanes;
  const int64_t keys = row < a.rows ? a.keys : 0;
  const int64_t start = row * a.keys;
  Held<T, V> y[P] = {}, dy[P] = {};
#pragma unroll
  for (int k = 0; k < P; ++k) {
    const int column = (k * Lanes + lane) * V;
    if (column < keys) {
      y[k] = load_once<T, V>(a.y + start + column);
      dy[k] = load_once<T, V>(a.dy + start + column);
    }
  }
  float dot = 0;
#pragma unroll
  for (int k = 0; k < P; ++k) {
    dot += product_sum<T, V>(y[k], dy[k]);
  }
  dot = row_reduce<Add, Lanes>(dot, shared);
#pragma unroll
  for (int k = 0; k < P; ++k) {
    const int column = (k * Lanes + lane) * V;
    if (column < keys) write_gradient<T, V>(a, a.dx + start + column, y[k], dy[k], dot);
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kLoopThreads) backward_loop(BackwardArgs<T> a) {
  __shared__ float shared[kWarpsOfRow<kLoopThreads>];
  const int64_t start = static_cast<int64_t>(blockIdx.x) * a.keys;
  float dot = 0;
  for (int64_t column = threadIdx.x * V; column < a.keys; column += kLoopThreads * V) {
    const Held<T, V> y = load_held<T, V>(a.y + start + column),
                     dy = load_held<T, V>(a.dy + start + column);
    dot += product_sum<T, V>(y, dy);
  }
  dot = row_reduce<Add, kLoopThreads>(dot, shared);
  for (int64_t column = threadIdx.x * V; column < a.keys; column += kLoopThreads * V) {
    const Held<T, V> y = load_held<T, V>(a.y + start + column),
                     dy = load_held<T, V>(a.dy + start + column);
    write_gradient<T, V>(a, a.dx + start + column, y, dy, dot);
  }
}

// A kernel for rows of `packs` packs: fn.rows<Lanes, P>() or fn.loop(). The sizes that fit a card's
// bandwidth were measured (docs/lab/gpu-kernel-notes.md): backward loads two tensors and wants one
// pack a thread, forward has two sums to wait for and wants more, in small blocks.
template <int V, class Fn>
void with_row_layout(int64_t packs, const Fn& fn) {
  if constexpr (V == 1) {
    if (packs <= 64) return fn.template rows<32, 2>();
    if (packs <= 1024) return fn.template rows<128, 8>();
  } else {
    if (packs <= 4) return fn.template rows<4, 1>();
    if (packs <= 8) return fn.template rows<8, 1>();
    if (packs <= 16) return fn.template rows<8, 2>();
    if (packs <= 32) return fn.template rows<16, 2>();
    if constexpr (Fn::kBackward) {
      if (packs <= 64) return fn.template rows<64, 1>();
      if (packs <= 128) return fn.template rows<128, 1>();
      if (packs <= 256) return fn.template rows<256, 1>();
      if (packs <= 512) return fn.template rows<512, 1>();
    } else {
      if (packs <= 64) return fn.template rows<32, 2>();
      if (packs <= 128) return fn.template rows<64, 2>();
      if (packs <= 256) return fn.template rows<128, 2>();
      if (packs <= 512) return fn.template rows < V == 4 ? 64 : 128, V == 4 ? 8 : 4 > ();
    }
    if (packs <= 1024) return fn.template rows<256, 4>();
  }
  fn.loop();
}

template <class T, int V>
struct LaunchForward {
  static constexpr bool kBackward = false;
  const ForwardArgs<T>& args;
  cudaStream_t stream;
  template <int Lanes, int P>
  void rows() const {
    constexpr int kRows = kThreadsOfBlock<Lanes> / Lanes;
    forward_rows<T, V, Lanes, P><<<static_cast<unsigned>((args.rows + kRows - 1) / kRows),
                                   kThreadsOfBlock<Lanes>, 0, stream>>>(args);
  }
  void loop() const {
    forward_loop<T, V><<<static_cast<unsigned>(args.rows), kLoopThreads, 0, stream>>>(args);
  }
};

template <class T, int V>
struct LaunchBackward {
  static constexpr bool kBackward = true;
  const BackwardArgs<T>& args;
  cudaStream_t stream;
  template <int Lanes, int P>
  void rows() const {
    constexpr int kRows = kThreadsOfBlock<Lanes> / Lanes;
    backward_rows<T, V, Lanes, P><<<static_cast<unsigned>((args.rows + kRows - 1) / kRows),
                                    kThreadsOfBlock<Lanes>, 0, stream>>>(args);
  }
  void loop() const {
    backward_loop<T, V><<<static_cast<unsigned>(args.rows), kLoopThreads, 0, stream>>>(args);
  }
};

constexpr const char* kNoType = "softmax: float32 and bfloat16 only";

}  // namespace
}  // namespace cuda

int32_t softmax_forward_cuda(cuda::DeviceState& device, const SoftmaxForwardParams& p) {
  using namespace cuda;
  const int64_t rows = p.batch * p.heads * p.queries;
  if (rows == 0 || p.keys == 0) return kSuccess;
  const bool typed = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    ForwardArgs<T> args{};
    args.x = static_cast<const T*>(p.x);
    args.padding_mask = p.padding_mask;
    args.y = static_cast<T*>(p.y);
    args.rows = rows;
    args.keys = p.keys;
    args.queries = p.queries;
    args.rows_of_batch = p.heads * p.queries;
    args.scale = static_cast<float>(p.scale * 1.4426950408889634074);
    // A scale of 0 would make NaN of the masked keys' infinity.
    if (args.scale == 0) args.scale = 1.1754944e-38f;
    args.masked = args.scale > 0 ? -INFINITY : INFINITY;
    args.causal = p.causal;
    args.streamed = rows * p.keys * static_cast<int64_t>(sizeof(T)) >= kStreamedBytes;
    constexpr int V = kPackWidth<T>;
    const bool packed =
        p.keys % V == 0 && aligned16(p.x) && aligned16(p.y) && aligned16(p.padding_mask);
    if (packed)
      with_row_layout<V>(p.keys / V, LaunchForward<T, V>{args, device.stream});
    else
      with_row_layout<1>(p.keys, LaunchForward<T, 1>{args, device.stream});
  });
  return typed ? launched(device, "softmax_forward") : unsupported(device, kNoType);
}

int32_t softmax_backward_cuda(cuda::DeviceState& device, const SoftmaxBackwardParams& p) {
  using namespace cuda;
  if (p.rows == 0 || p.keys == 0) return kSuccess;
  const bool typed = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    BackwardArgs<T> args{};
    args.y = static_cast<const T*>(p.y);
    args.dy = static_cast<const T*>(p.dy);
    args.dx = static_cast<T*>(p.dx);
    args.rows = p.rows;
    args.keys = p.keys;
    args.scale = static_cast<float>(p.scale);
    args.accumulate = p.accumulate;
    constexpr int V = kPackWidth<T>;
    const bool packed = p.keys % V == 0 && aligned16(p.y) && aligned16(p.dy) && aligned16(p.dx);
    if (packed)
      with_row_layout<V>(p.keys / V, LaunchBackward<T, V>{args, device.stream});
    else
      with_row_layout<1>(p.keys, LaunchBackward<T, 1>{args, device.stream});
  });
  return typed ? launched(device, "softmax_backward") : unsupported(device, kNoType);
}

}  // namespace trafo
