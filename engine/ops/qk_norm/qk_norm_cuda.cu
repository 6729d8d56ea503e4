// CUDA kernels of the RMS norm of queries and keys.
#include "engine/ops/qk_norm/qk_norm.h"

#include <algorithm>

#include "engine/ops/layer_norm/norm_forward.cuh"

namespace trafo {
namespace cuda {
namespace {

constexpr const char* kForward = "qk_norm_forward";
constexpr const char* kBackward = "qk_norm_backward";
constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kCopied = 1024;  // columns of the values that a warp passes on

// Groups of a row, numbered: queries, keys, then pieces of the values.
struct RowGroups {
  int queries, keys, pieces;
  int query_width, key_width;
  Divider per_row;  // queries + keys + pieces
  int64_t columns;

  __device__ int normed() const { return queries + keys; }
  __device__ int64_t first_column(int group) const {
    if (group < queries) return static_cast<int64_t>(group) * query_width;
    const int64_t keys_begin = static_cast<int64_t>(queries) * query_width;
    if (group < normed()) return keys_begin + static_cast<int64_t>(group - queries) * key_width;
    return keys_begin + static_cast<int64_t>(keys) * key_width +
           static_cast<int64_t>(group - normed()) * kCopied;
  }
  __device__ int width(int group) const {
    if (group < queries) return query_width;
    if (group < normed()) return key_width;
    return static_cast<int>(min(static_cast<int64_t>(kCopied), columns - first_column(group)));
  }
};

// The group of a warp. `item`: its number among the groups of all rows.
struct Group {
  int64_t row, at;  // at: the first element, in x
  int number, width;
};
__device__ __forceinline__ bool find_group(const RowGroups& groups, int64_t items, Group& found) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (item >= items) return false;
  found.row = item <= 0x7fffffff ? groups.per_row.quotient(static_cast<uint32_t>(item))
                                 : item / groups.per_row.divisor;
  found.number = static_cast<int>(item - found.row * groups.per_row.divisor);
  found.at = found.row * groups.columns + groups.first_column(found.number);
  found.width = groups.width(found.number);
  return true;
}

template <class T>
struct ForwardArgs {
  RowGroups groups;
  int64_t items;
  const T* x;
  const T* query_gamma;
  const T* key_gamma;
  T* y;
  float* rstd;  // or null
  float epsilon;
};

// A warp a group.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) forward_groups(ForwardArgs<T> a) {
  Group group;
  if (!find_group(a.groups, a.items, group)) return;
  const int lane = threadIdx.x % 32;
  const T* x = a.x + group.at;
  T* y = a.y + group.at;
  if (group.number >= a.groups.normed()) {
    for (int column = lane * V; column < group.width; column += 32 * V)
      store_held<T, V>(y + column, load_held<T, V>(x + column));
    return;
  }
  float squares = 0;
  for (int column = lane * V; column < group.width; column += 32 * V) {
    float v[V];
    load_floats<T, V>(x + column, v);
#pragma unroll
    for (int j = 0; j < V; ++j) squares = fmaf(v[j], v[j], squares);
  }
  squares = warp_reduce<Add>(squares);
  const float rstd = row_rstd<T>(squares / static_cast<float>(group.width) + a.epsilon);
  if (lane == 0 && a.rstd) a.rstd[group.row * a.groups.normed() + group.number] = rstd;
  const T* gamma = group.number < a.groups.queries ? a.query_gamma : a.key_gamma;
  for (int column = lane * V; column < group.width; column += 32 * V) {
    float v[V], weight[V];
    load_floats<T, V>(x + column, v);
    load_floats<T, V>(gamma + column, weight);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = v[j] * rstd * weight[j];
    store_floats<T, V>(y + column, v);
  }
}

template <class T>
struct BackwardArgs {
  RowGroups groups;
  int64_t items;
  const T* x;
  const T* query_gamma;
  const T* key_gamma;
  const float* rstd;
  const T* dy;
  T* dx;
  bool accumulate;
};

// dx, a warp a group.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) backward_groups(BackwardArgs<T> a) {
  Group group;
  if (!find_group(a.groups, a.items, group)) return;
  const int lane = threadIdx.x % 32;
  const T* x = a.x + group.at;
  const T* dy = a.dy + group.at;
  T* dx = a.dx + group.at;
  if (group.number >= a.groups.normed()) {
    for (int column = lane * V; column < group.width; column += 32 * V) {
      float v[V];
      load_floats<T, V>(dy + column, v);
      put_floats<T, V>(dx + column, v, a.accumulate);
    }
    return;
  }
  const float rstd = a.rstd[group.row * a.groups.normed() + group.number];
  const T* gamma = group.number < a.groups.queries ? a.query_gamma : a.key_gamma;
  float product = 0;
  for (int column = lane * V; column < group.width; column += 32 * V) {
    float v[V], g[V], weight[V];
    load_floats<T, V>(x + column, v);
    load_floats<T, V>(dy + column, g);
    load_floats<T, V>(gamma + column, weight);
#pragma unroll
    for (int j = 0; j < V; ++j) product = fmaf(g[j] * weight[j], v[j] * rstd, product);
  }
  const float mean = warp_reduce<Add>(product) / static_cast<float>(group.width);
  for (int column = lane * V; column < group.width; column += 32 * V) {
    float v[V], g[V], weight[V];
    load_floats<T, V>(x + column, v);
    load_floats<T, V>(dy + column, g);
    load_floats<T, V>(gamma + column, weight);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = rstd * fmaf(-v[j] * rstd, mean, g[j] * weight[j]);
    put_floats<T, V>(dx + column, v, a.accumulate);
  }
}

// The groups of one gamma, in all rows.
template <class T>
struct GammaArgs {
  const T* x;   // the first group of row 0
  const T* dy;  // the same
  const float* rstd;
  int64_t groups, columns, chunk;  // chunk: groups of a block
  int width, rstd_stride;
  Divider per_row;
};

// partials[chunk][column] = the sum of dy x rstd over a chunk of the groups. A block has 32 columns
// and goes down its chunk with 8 warps; the order of the sum depends on nothing but the shape.
template <class T>
__global__ void __launch_bounds__(kThreads) gamma_partials(GammaArgs<T> a, float* partials) {
  __shared__ float sums[kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int column = static_cast<int>(blockIdx.y) * 32 + lane;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * a.chunk;
  const int64_t end = min(a.groups, begin + a.chunk);
  float sum = 0;
  if (column < a.width)
    for (int64_t i = begin + warp; i < end; i += kWarps) {
      const int64_t row =
          i <= 0x7fffffff ? a.per_row.quotient(static_cast<uint32_t>(i)) : i / a.per_row.divisor;
      const int64_t in_row = i - row * a.per_row.divisor;
      const int64_t at = row * a.columns + in_row * a.width + column;
      sum = fmaf(to_float(a.dy[at]), to_float(a.x[at]) * a.rstd[row * a.rstd_stride + in_row], sum);
    }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= a.width) return;
#pragma unroll
  for (int k = 1; k < kWarps; ++k) sum += sums[k][lane];
  partials[static_cast<int64_t>(blockIdx.x) * a.width + column] = sum;
}

template <class T>
int32_t gamma_gradient(DeviceState& device, const QkNormBackwardParams& p, int which) {
  const NormedGroups& groups = p.groups[which];
  const int64_t first_column = which == 0 ? 0 : p.groups[0].count * p.groups[0].width;
  constexpr int64_t kLeast = 64;         // groups of a block
  constexpr int64_t kMostChunks = 1024;  // independent of the device, as the order of the sum is
  GammaArgs<T> args{};
  args.x = static_cast<const T*>(p.x) + first_column;
  args.dy = static_cast<const T*>(p.dy) + first_column;
  args.rstd = static_cast<const float*>(p.rstd) + (which == 0 ? 0 : p.groups[0].count);
  args.groups = p.rows * groups.count;
  args.columns = p.columns;
  args.chunk = std::max(kLeast, (args.groups + kMostChunks - 1) / kMostChunks);
  args.width = static_cast<int>(groups.width);
  args.rstd_stride = static_cast<int>(p.groups[0].count + p.groups[1].count);
  args.per_row = Divider::by(static_cast<uint32_t>(groups.count));
  const int64_t chunks = (args.groups + args.chunk - 1) / args.chunk;
  auto* partials = static_cast<float*>(
      device.scratch(static_cast<size_t>(chunks * groups.width) * sizeof(float)));
  if (!partials) return kOutOfMemory;
  const dim3 grid(static_cast<unsigned>(chunks), static_cast<unsigned>((groups.width + 31) / 32));
  gamma_partials<T><<<grid, kThreads, 0, device.stream>>>(args, partials);
  const int32_t result = launched(device, kBackward);
  if (result != kSuccess) return result;
  ColumnSums to;
  to.out[0] = static_cast<float*>(p.dgamma[which]);
  to.accumulate[0] = p.accumulate_dgamma[which];
  return sum_partials(device, partials, chunks, 1, groups.width, to);
}

template <class Params>
RowGroups row_groups(const Params& p) {
  RowGroups groups{};
  groups.queries = static_cast<int>(p.groups[0].count);
  groups.keys = static_cast<int>(p.groups[1].count);
  groups.query_width = static_cast<int>(p.groups[0].width);
  groups.key_width = static_cast<int>(p.groups[1].width);
  groups.columns = p.columns;
  const int64_t values =
      p.columns - p.groups[0].count * p.groups[0].width - p.groups[1].count * p.groups[1].width;
  groups.pieces = static_cast<int>((values + kCopied - 1) / kCopied);
  groups.per_row = Divider::by(static_cast<uint32_t>(groups.queries + groups.keys + groups.pieces));
  return groups;
}

// Whether every group and piece begins at a whole pack and ends with one.
template <class T, class Params>
bool packed(const Params& p, std::initializer_list<const void*> buffers) {
  constexpr int V = kPackWidth<T>;
  bool all = p.columns % V == 0;
  for (const NormedGroups& groups : p.groups)
    all = all && groups.width % V == 0 && aligned16(groups.gamma);
  for (const void* buffer : buffers) all = all && aligned16(buffer);
  return all;
}

template <class Args, class Kernel>
int32_t launch_groups(DeviceState& device, const Args& args, Kernel kernel, const char* name) {
  const int64_t blocks = (args.items + kWarps - 1) / kWarps;
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, device.stream>>>(args);
  return launched(device, name);
}

template <class T>
int32_t forward(DeviceState& device, const QkNormForwardParams& p) {
  ForwardArgs<T> args{};
  args.groups = row_groups(p);
  args.items = p.rows * args.groups.per_row.divisor;
  args.x = static_cast<const T*>(p.x);
  args.query_gamma = static_cast<const T*>(p.groups[0].gamma);
  args.key_gamma = static_cast<const T*>(p.groups[1].gamma);
  args.y = static_cast<T*>(p.y);
  args.rstd = static_cast<float*>(p.rstd);
  args.epsilon = static_cast<float>(p.epsilon);
  return packed<T>(p, {p.x, p.y})
             ? launch_groups(device, args, forward_groups<T, kPackWidth<T>>, kForward)
             : launch_groups(device, args, forward_groups<T, 1>, kForward);
}

template <class T>
int32_t backward(DeviceState& device, const QkNormBackwardParams& p) {
  if (p.dx) {
    BackwardArgs<T> args{};
    args.groups = row_groups(p);
    args.items = p.rows * args.groups.per_row.divisor;
    args.x = static_cast<const T*>(p.x);
    args.query_gamma = static_cast<const T*>(p.groups[0].gamma);
    args.key_gamma = static_cast<const T*>(p.groups[1].gamma);
    args.rstd = static_cast<const float*>(p.rstd);
    args.dy = static_cast<const T*>(p.dy);
    args.dx = static_cast<T*>(p.dx);
    args.accumulate = p.accumulate_dx;
    const int32_t result =
        packed<T>(p, {p.x, p.dy, p.dx})
            ? launch_groups(device, args, backward_groups<T, kPackWidth<T>>, kBackward)
            : launch_groups(device, args, backward_groups<T, 1>, kBackward);
    if (result != kSuccess) return result;
  }
  for (int which = 0; which < 2; ++which) {
    if (!p.dgamma[which]) continue;
    const int32_t result = gamma_gradient<T>(device, p, which);
    if (result != kSuccess) return result;
  }
  return kSuccess;
}

// Numbers of columns and groups are kept in 32 bits.
constexpr int64_t kMostColumns = int64_t{1} << 30;
constexpr const char* kNoType = "qk_norm: float32 and bfloat16 only";
constexpr const char* kTooWide = "qk_norm: rows of 2^30 elements or more";

}  // namespace
}  // namespace cuda

int32_t qk_norm_forward_cuda(cuda::DeviceState& device, const QkNormForwardParams& p) {
  using namespace cuda;
  if (p.rows == 0) return kSuccess;
  if (p.columns >= kMostColumns) return unsupported(device, kTooWide);
  int32_t result = kSuccess;
  const bool typed =
      with_device_type(p.dtype, [&](auto zero) { result = forward<decltype(zero)>(device, p); });
  return typed ? result : unsupported(device, kNoType);
}

int32_t qk_norm_backward_cuda(cuda::DeviceState& device, const QkNormBackwardParams& p) {
  using namespace cuda;
  if (p.rows == 0) {
    for (int i = 0; i < 2; ++i) {
      const int32_t result =
          clear_gradient(device, p.dgamma[i], p.accumulate_dgamma[i], p.groups[i].width);
      if (result != kSuccess) return result;
    }
    return kSuccess;
  }
  if (p.columns >= kMostColumns) return unsupported(device, kTooWide);
  int32_t result = kSuccess;
  const bool typed =
      with_device_type(p.dtype, [&](auto zero) { result = backward<decltype(zero)>(device, p); });
  return typed ? result : unsupported(device, kNoType);
}

}  // namespace trafo
