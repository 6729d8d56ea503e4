// CUDA kernels of RMS norm, built like the kernels of layer norm: rows that fit the registers of a
// warp or a block are read once, others are read again from the cache.
#include "engine/ops/rms_norm/rms_norm.h"

#include "engine/backend/cuda/shared_memory.h"
#include "engine/ops/layer_norm/norm_forward.cuh"

namespace trafo {
namespace cuda {
namespace {

constexpr const char* kForward = "rms_norm_forward";
constexpr const char* kBackward = "rms_norm_backward";

template <class T>
struct ForwardArgs {
  const T* x;
  const T* residual;  // or null
  const T* gamma;
  T* sum;
  T* y;
  float* rstd;  // or null
  int64_t rows, width;
  float epsilon;
  bool known, dropping;
  DropoutArgs dropout;
  uint32_t* largest;  // or null
};

template <class T, int V>
__device__ __forceinline__ void write_normed(const ForwardArgs<T>& a, int64_t start, int64_t column,
                                             float rstd, float (&v)[V], Largest<T>& seen) {
  float gamma[V];
  load_floats<T, V>(a.gamma + column, gamma);
#pragma unroll
  for (int j = 0; j < V; ++j) v[j] = v[j] * rstd * gamma[j];
  const Held<T, V> written = from_floats<T, V>(v);
  store_held<T, V>(a.y + start + column, written);
  if (a.largest) seen.see(written);
}

// Of the squares of a row; the same in all of its threads.
template <class T>
__device__ __forceinline__ float rstd_of(const ForwardArgs<T>& a, int64_t row, float squares) {
  return a.known ? a.rstd[row] : row_rstd<T>(squares / static_cast<float>(a.width) + a.epsilon);
}

template <class T, int V, int Lanes, int P>
__global__ void __launch_bounds__(kThreadsOfBlock<Lanes>) forward_rows(ForwardArgs<T> a) {
  constexpr int kRows = kThreadsOfBlock<Lanes> / Lanes;
  __shared__ float shared[kWarpsOfRow<Lanes>];
  const int lane = threadIdx.x % Lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / Lanes;
  const bool there = row < a.rows;  // the others take part in the shuffles
  const int width = there ? static_cast<int>(a.width) : 0;
  const int64_t start = row * a.width;
  Held<T, V> x[P] = {}, residual[P] = {};
#pragma unroll
  for (int k = 0; k < P; ++k) {
    const int column = (k * Lanes + lane) * V;
    if (column < width) {
      x[k] = load_once<T, V>(a.x + start + column);
      if (a.residual) residual[k] = load_once<T, V>(a.residual + start + column);
    }
  }
  float v[P][V], squares = 0;
#pragma unroll
  for (int k = 0; k < P; ++k) {
    const int column = (k * Lanes + lane) * V;
    if (column < width) {
      if (a.residual) {
        store_held<T, V>(a.sum + start + column,
                         residual_sum_at<T, V>(x[k], nullptr, residual[k], a.dropping, a.dropout,
                                               start + column, column, v[k]));
      } else {
        to_floats<T>(x[k], v[k]);
      }
#pragma unroll
      for (int j = 0; j < V; ++j) squares = fmaf(v[k][j], v[k][j], squares);
    }
  }
  squares = row_reduce<Add, Lanes>(squares, shared);
  const float rstd = there ? rstd_of(a, row, squares) : 0.0f;
  if (there && lane == 0 && a.rstd && !a.known) a.rstd[row] = rstd;
  Largest<T> seen;
#pragma unroll
  for (int k = 0; k < P; ++k) {
    const int column = (k * Lanes + lane) * V;
    if (column < width) write_normed<T, V>(a, start, column, rstd, v[k], seen);
  }
  if (a.largest) leave_largest<kThreadsOfBlock<Lanes>>(seen, a.largest);
}

// A block a row of any width. V is 1 or a whole pack.
constexpr int kLoopThreads = 256;
template <class T, int V>
__global__ void __launch_bounds__(kLoopThreads) forward_loop(ForwardArgs<T> a) {
  __shared__ float shared[kLoopThreads / 32];
  const int64_t row = blockIdx.x, start = row * a.width;
  float squares = 0;
  for (int64_t column = threadIdx.x * V; column < a.width; column += kLoopThreads * V) {
    float v[V];
    if (a.residual) {
      store_held<T, V>(a.sum + start + column,
                       residual_sum_at<T, V>(load_held<T, V>(a.x + start + column), nullptr,
                                             load_held<T, V>(a.residual + start + column),
                                             a.dropping, a.dropout, start + column, column, v));
    } else {
      load_floats<T, V>(a.x + start + column, v);
    }
#pragma unroll
    for (int j = 0; j < V; ++j) squares = fmaf(v[j], v[j], squares);
  }
  squares = row_reduce<Add, kLoopThreads>(squares, shared);
  const float rstd = rstd_of(a, row, squares);
  if (threadIdx.x == 0 && a.rstd && !a.known) a.rstd[row] = rstd;
  // With a residual each thread reads back what it wrote itself.
  const T* in = a.residual ? a.sum : a.x;
  Largest<T> seen;
  for (int64_t column = threadIdx.x * V; column < a.width; column += kLoopThreads * V) {
    float v[V];
    load_floats<T, V>(in + start + column, v);
    write_normed<T, V>(a, start, column, rstd, v, seen);
  }
  if (a.largest) leave_largest<kLoopThreads>(seen, a.largest);
}

template <class T>
int32_t forward(DeviceState& device, const RmsNormForwardParams& p) {
  constexpr int V = kPackWidth<T>;
  ForwardArgs<T> args{};
  args.x = static_cast<const T*>(p.x);
  args.residual = static_cast<const T*>(p.residual);
  args.gamma = static_cast<const T*>(p.gamma);
  args.sum = static_cast<T*>(p.sum);
  args.y = static_cast<T*>(p.y);
  args.rstd = static_cast<float*>(p.rstd);
  args.rows = p.rows;
  args.width = p.width;
  args.epsilon = static_cast<float>(p.epsilon);
  args.known = p.rstd_known;
  args.dropping = p.dropout.active();
  args.dropout = DropoutArgs::of(device, p.dropout);
  args.largest = p.largest;
  const bool packed = p.width % V == 0 && aligned16(p.x) && aligned16(p.residual) &&
                      aligned16(p.gamma) && aligned16(p.sum) && aligned16(p.y);
  const auto rows = [&](auto lanes, auto packs) {
    constexpr int Lanes = lanes(), P = packs(), kRows = kThreadsOfBlock<Lanes> / Lanes;
    forward_rows<T, V, Lanes, P><<<static_cast<unsigned>((p.rows + kRows - 1) / kRows),
                                   kThreadsOfBlock<Lanes>, 0, device.stream>>>(args);
  };
  const auto grid = static_cast<unsigned>(p.rows);
  const int64_t packs = p.width / V;
  using std::integral_constant;
  if (!packed)
    forward_loop<T, 1><<<grid, kLoopThreads, 0, device.stream>>>(args);
  else if (packs <= 64)
    rows(integral_constant<int, 32>{}, integral_constant<int, 2>{});
  else if (packs <= 128)
    rows(integral_constant<int, 32>{}, integral_constant<int, 4>{});
  else if (packs <= 512)
    rows(integral_constant<int, 128>{}, integral_constant<int, 4>{});
  else if (packs <= 1024)
    rows(integral_constant<int, 256>{}, integral_constant<int, 4>{});
  else
    forward_loop<T, V><<<grid, kLoopThreads, 0, device.stream>>>(args);
  return launched(device, kForward);
}

template <class T>
struct BackwardArgs {
  const T* sum;
  const T* gamma;
  const float* rstd;
  const T* dsum;  // or null
  const T* dy;
  T* dx;         // or null
  T* dresidual;  // or null
  int64_t rows, width;
  bool accumulate_dx, accumulate_dresidual, dropping;
  DropoutArgs dropout;
  uint32_t* largest;  // place for the largest magnitude of dx, without dx of dresidual; or null
};

// dresidual and dx of V elements from the gradient of the sum.
template <class T, int V>
__device__ __forceinline__ void write_gradients(const BackwardArgs<T>& a, int64_t i,
                                                float (&total)[V], Largest<T>& seen) {
  if (a.dresidual) put_floats<T, V>(a.dresidual + i, total, a.accumulate_dresidual);
  if (!a.dx) {
    if (a.largest) seen.see(from_floats<T, V>(total));
    return;
  }
  if (a.dropping) {
    float factor[V];
    dropout_factors<V>(a.dropout, i, factor);
#pragma unroll
    for (int j = 0; j < V; ++j) total[j] *= factor[j];
  }
  put_floats<T, V>(a.dx + i, total, a.accumulate_dx);
  if (a.largest) seen.see(from_floats<T, V>(total));
}

// As add_norm_rows_kernel: a row is one pack for each of Lanes threads, rows of a block lie
// `blocks` steps apart so that the sums over rows stay in registers, and what a thread needs of its
// next rows is copied ahead into its own slots of shared memory.
constexpr int kBackThreads = 512, kBackBlocks = 2, kBackStages = 3;

template <class T, int Lanes>
__global__ void __launch_bounds__(kBackThreads, kBackBlocks)
    backward_rows(BackwardArgs<T> a, float* partials) {
  constexpr int V = kPackWidth<T>, kRows = kBackThreads / Lanes, kWarps = Lanes / 32;
  using Vector = Held<T, V>;
  extern __shared__ uint4 slots[];  // [stage][tensor][thread]
  __shared__ float shared[2][kBackThreads / 32];
  __shared__ uint32_t shared_largest[kBackThreads / 32];
  const WarpLargest largest{&shared_largest[threadIdx.x / 32]};
  largest.begin();
  const int tensors = a.dsum ? 3 : 2;
  const int lane = threadIdx.x % Lanes, group = threadIdx.x / Lanes, warp = threadIdx.x / 32;
  const int column = lane * V;
  const bool inside = column < a.width;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRows;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows;
  const auto slot = [&](int stage, int tensor) {
    return &slots[(stage * tensors + tensor) * kBackThreads + threadIdx.x];
  };
  const auto fetch = [&](int64_t row, int stage) {
    if (inside && row < a.rows) {
      const int64_t i = row * a.width + column;
      copy_ahead(slot(stage, 0), a.sum + i);
      copy_ahead(slot(stage, 1), a.dy + i);
      if (a.dsum) copy_ahead(slot(stage, 2), a.dsum + i);
    }
    end_copy_group();
  };
#pragma unroll
  for (int stage = 0; stage < kBackStages; ++stage) fetch(first + stage * step + group, stage);

  float dgamma[V] = {};
  const float inverse_width = 1.0f / static_cast<float>(a.width);
  float rstd = first + group < a.rows ? a.rstd[first + group] : 0.0f;
  int stage = 0, parity = 0;
  // The same number of turns for every thread: barriers inside.
  for (int64_t base = first; base < a.rows; base += step) {
    const int64_t row = base + group;
    const bool there = inside && row < a.rows;
    const float next_rstd = row + step < a.rows ? a.rstd[row + step] : 0.0f;
    wait_copy_groups<kBackStages - 1>();
    float xhat[V] = {}, g[V] = {}, product = 0;
    if (there) {
      float weight[V];
      to_floats<T>(*reinterpret_cast<const Vector*>(slot(stage, 0)), xhat);
      to_floats<T>(*reinterpret_cast<const Vector*>(slot(stage, 1)), g);
      to_floats<T>(load_held<T, V>(a.gamma + column), weight);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        xhat[j] *= rstd;
        dgamma[j] = fmaf(g[j], xhat[j], dgamma[j]);
        g[j] *= weight[j];
        product = fmaf(g[j], xhat[j], product);
      }
    }
    product = warp_reduce<Add>(product);
    if constexpr (kWarps > 1) {
      // Two turns take turns with the memory: one barrier suffices.
      if (threadIdx.x % 32 == 0) shared[parity][warp] = product;
      __syncthreads();
      product = shared[parity][warp / kWarps * kWarps + threadIdx.x % kWarps];
      product = warp_reduce<Add, kWarps>(product);
    }
    Largest<T> seen;
    if (there) {
      const float mean = product * inverse_width;
      float total[V];
#pragma unroll
      for (int j = 0; j < V; ++j) total[j] = rstd * fmaf(-xhat[j], mean, g[j]);
      if (a.dsum) {
        float dsum[V];
        to_floats<T>(*reinterpret_cast<const Vector*>(slot(stage, 2)), dsum);
#pragma unroll
        for (int j = 0; j < V; ++j) total[j] += dsum[j];
      }
      write_gradients<T, V>(a, row * a.width + column, total, seen);
    }
    if (a.largest) largest.see(seen);
    // The slot has been read by this thread, the only one that uses it.
    fetch(row + kBackStages * step, stage);
    stage = stage + 1 == kBackStages ? 0 : stage + 1;
    parity ^= 1;
    rstd = next_rstd;
  }

  if (a.largest) largest.leave(a.largest);
  if (!partials) return;
  wait_copy_groups<0>();
  float* out = partials + static_cast<int64_t>(blockIdx.x) * a.width;
  float* all = reinterpret_cast<float*>(slots);  // [kRows][Lanes * V]
  __syncthreads();
#pragma unroll
  for (int j = 0; j < V; ++j) all[group * (Lanes * V) + column + j] = dgamma[j];
  __syncthreads();
  for (int c = threadIdx.x; c < a.width; c += kBackThreads) {
    float sum = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) sum += all[r * (Lanes * V) + c];
    out[c] = sum;
  }
}

// means[row] = mean(g xhat): what the gradient needs of the whole row.
template <class T, int V>
__global__ void __launch_bounds__(kLoopThreads) row_means(BackwardArgs<T> a, float* means) {
  __shared__ float shared[kLoopThreads / 32];
  const int64_t row = blockIdx.x, start = row * a.width;
  const float rstd = a.rstd[row];
  float product = 0;
  for (int64_t column = threadIdx.x * V; column < a.width; column += kLoopThreads * V) {
    float x[V], dy[V], gamma[V];
    load_floats<T, V>(a.sum + start + column, x);
    load_floats<T, V>(a.dy + start + column, dy);
    load_floats<T, V>(a.gamma + column, gamma);
#pragma unroll
    for (int j = 0; j < V; ++j) product = fmaf(dy[j] * gamma[j], x[j] * rstd, product);
  }
  product = row_reduce<Add, kLoopThreads>(product, shared);
  if (threadIdx.x == 0) means[row] = product / static_cast<float>(a.width);
}

// For tile_kernel.
template <class T, int V>
struct BackwardBody {
  BackwardArgs<T> a;
  const float* means;
  uint32_t* largest;
  using Written = T;
  using Columns = Held<T, V>;  // of gamma
  __device__ Columns columns(int64_t column) const { return load_held<T, V>(a.gamma + column); }
  static constexpr int kTensors = 3;
  __device__ const T* source(int tensor) const {
    return tensor == 0 ? a.sum : tensor == 1 ? a.dy : a.dsum;
  }
  __device__ void finish(int64_t row, int64_t column, const Columns& gamma,
                         const Held<T, V> (&packs)[kTensors], float (&sums)[1][V],
                         Largest<T>& seen) const {
    const float rstd = a.rstd[row], mean = means[row];
    float x[V], d[V], weight[V], total[V];
    to_floats<T>(packs[0], x);
    to_floats<T>(packs[1], d);
    to_floats<T>(packs[2], total);
    to_floats<T>(gamma, weight);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float xhat = x[j] * rstd;
      total[j] += rstd * fmaf(-xhat, mean, d[j] * weight[j]);
      sums[0][j] = fmaf(d[j], xhat, sums[0][j]);
    }
    write_gradients<T, V>(a, row * a.width + column, total, seen);
  }
};

template <class T, int Lanes>
int32_t launch_rows(DeviceState& device, const BackwardArgs<T>& args, const ColumnSums& to) {
  constexpr int kRows = kBackThreads / Lanes;
  const int64_t blocks =
      std::min(int64_t{kBackBlocks} * device.multiprocessors, (args.rows + kRows - 1) / kRows);
  float* partials = nullptr;
  if (to.out[0]) {
    partials = static_cast<float*>(
        device.scratch(static_cast<size_t>(blocks * args.width) * sizeof(float)));
    if (!partials) return kOutOfMemory;
  }
  const auto kernel = backward_rows<T, Lanes>;
  const int bytes = kBackStages * (args.dsum ? 3 : 2) * kBackThreads * 16;
  static_assert((kBackStages * 3 + 1) * kBackThreads * 16 <= kLeastSharedMemory);
  const cudaError_t error =
      raise_shared_memory(device, reinterpret_cast<const void*>(kernel), bytes);
  if (error != cudaSuccess) return report(device, error, kBackward);
  kernel<<<static_cast<unsigned>(blocks), kBackThreads, bytes, device.stream>>>(args, partials);
  const int32_t result = launched(device, kBackward);
  return result == kSuccess && partials ? sum_partials(device, partials, blocks, 1, args.width, to)
                                        : result;
}

template <class T, int V>
int32_t launch_by_tiles(DeviceState& device, const BackwardArgs<T>& args, const ColumnSums& to) {
  const TilePlan plan(device, args.rows, args.width / V, kTileBlocks<1>);
  // Scratch memory: the mean of every row, then the partial sums.
  const int64_t for_means = (args.rows + 3) / 4 * 4;
  const int64_t floats = for_means + (to.out[0] ? plan.chunks * args.width : 0);
  auto* scratch = static_cast<float*>(device.scratch(static_cast<size_t>(floats) * sizeof(float)));
  if (!scratch) return kOutOfMemory;
  row_means<T, V>
      <<<static_cast<unsigned>(args.rows), kLoopThreads, 0, device.stream>>>(args, scratch);
  const int32_t result = launched(device, kBackward);
  if (result != kSuccess) return result;
  return launch_tiles<T, V, 1>(device, args.rows, args.width, plan,
                               BackwardBody<T, V>{args, scratch, args.largest}, to,
                               to.out[0] ? scratch + for_means : nullptr, kBackward);
}

template <class T>
int32_t backward(DeviceState& device, const RmsNormBackwardParams& p) {
  constexpr int V = kPackWidth<T>;
  BackwardArgs<T> args{};
  args.sum = static_cast<const T*>(p.sum);
  args.gamma = static_cast<const T*>(p.gamma);
  args.rstd = static_cast<const float*>(p.rstd);
  args.dsum = static_cast<const T*>(p.dsum);
  args.dy = static_cast<const T*>(p.dy);
  args.dx = static_cast<T*>(p.dx);
  args.dresidual = static_cast<T*>(p.dresidual);
  args.rows = p.rows;
  args.width = p.width;
  args.accumulate_dx = p.accumulate_dx;
  args.accumulate_dresidual = p.accumulate_dresidual;
  args.dropping = p.dropout.active();
  args.dropout = DropoutArgs::of(device, p.dropout);
  args.largest = p.largest;
  ColumnSums to;
  to.out[0] = static_cast<float*>(p.dgamma);
  to.accumulate[0] = p.accumulate_dgamma;
  bool packed = p.width % V == 0;
  for (const void* buffer : {p.sum, p.gamma, p.dsum, p.dy, static_cast<const void*>(p.dx),
                             static_cast<const void*>(p.dresidual)})
    packed = packed && aligned16(buffer);
  const int64_t packs = p.width / V;
  if (!packed) return launch_by_tiles<T, 1>(device, args, to);
  if (packs <= 64) return launch_rows<T, 64>(device, args, to);
  if (packs <= 128) return launch_rows<T, 128>(device, args, to);
  if (packs <= 256) return launch_rows<T, 256>(device, args, to);
  if (packs <= 512) return launch_rows<T, 512>(device, args, to);
  return launch_by_tiles<T, V>(device, args, to);
}

constexpr const char* kNoType = "rms_norm: float32 and bfloat16 only";

}  // namespace
}  // namespace cuda

int32_t rms_norm_forward_cuda(cuda::DeviceState& device, const RmsNormForwardParams& p) {
  using namespace cuda;
  if (p.rows == 0) return kSuccess;
  int32_t result = kSuccess;
  const bool typed =
      with_device_type(p.dtype, [&](auto zero) { result = forward<decltype(zero)>(device, p); });
  return typed ? result : unsupported(device, kNoType);
}

int32_t rms_norm_backward_cuda(cuda::DeviceState& device, const RmsNormBackwardParams& p) {
  using namespace cuda;
  if (p.rows == 0) return clear_gradient(device, p.dgamma, p.accumulate_dgamma, p.width);
  int32_t result = kSuccess;
  const bool typed =
      with_device_type(p.dtype, [&](auto zero) { result = backward<decltype(zero)>(device, p); });
  return typed ? result : unsupported(device, kNoType);
}

}  // namespace trafo
