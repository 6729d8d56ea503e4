// CUDA kernels of cross-entropy: a block for each row, or a cluster of blocks that share a long
// one. Whole 16-byte packs of the row are copied ahead into the thread's own slots of shared
// memory, several in flight, without a barrier; the elements before and after them go one by one.
#include "engine/ops/cross_entropy/cross_entropy.h"

#include "engine/backend/cuda/device/cluster.cuh"
#include "engine/backend/cuda/device/fp8.cuh"
#include "engine/backend/cuda/device/rows.cuh"
#include "engine/backend/cuda/shared_memory.h"
#include "engine/ops/cross_entropy/row_parts.cuh"

namespace trafo {
namespace cuda {
namespace {

constexpr int kGroup = 2;  // packs of a thread that are copied and used together
constexpr int kAhead = 4;  // groups in flight
constexpr float kLog2E = 1.4426950408889634f;
// More must be asked for: 48 KB with what a kernel declares itself.
constexpr int64_t kPlainSharedMemory = 47 << 10;
// A row whose gradient is wanted stays in shared memory. A longer one than this is shared by the
// blocks of a cluster. A multiprocessor then has four blocks or more, of which some read while
// others compute and write.
constexpr int64_t kShareBytes = 52 << 10;
constexpr int kShareThreads = 256, kMostShares = 8;  // clusters of eight run on every card

// e^(x - shift - rest). In float32 within an ulp or two; `rest` is what the shift lacks. bfloat16
// takes powers of two from the special function unit, where the rest costs nothing. The difference
// comes first: one multiply-add with a scaled shift is off by what the shift loses, which for two
// equal values of 1e38 is anything but 0.
template <class T>
struct ShiftedExp;
template <>
struct ShiftedExp<float> {
  // For sums relative to a maximum: finite, so that exp(-infinity - maximum) is 0 and not NaN.
  static constexpr float kLowest = Max::kIdentity;
  float shift, rest;
  __device__ __forceinline__ explicit ShiftedExp(float by, float left = 0)
      : shift(by), rest(left) {}
  __device__ __forceinline__ float operator()(float x) const { return expf((x - shift) - rest); }
};
template <>
struct ShiftedExp<bf16> {
  static constexpr float kLowest = Max::kIdentity;
  float shift, rest;
  __device__ __forceinline__ explicit ShiftedExp(float by, float left = 0)
      : shift(by), rest(-left * kLog2E) {}
  __device__ __forceinline__ float operator()(float x) const {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fmaf(x - shift, kLog2E, rest)));
    return y;
  }
};

// The packs of this thread, copied ahead. kKeep: `slots` [packs] has the whole row afterwards, each
// thread's packs copied by itself; else slots [kGroup kAhead or what the row needs, Threads].
template <int Threads, bool kKeep>
struct PackStream {
  const uint4* from;
  int packs;
  uint4* slots;

  // Begins to copy.
  __device__ __forceinline__ PackStream(const void* body, int count, uint4* memory)
      : from(static_cast<const uint4*>(body)), packs(count), slots(memory) {
#pragma unroll
    for (int group = 0; group < kAhead; ++group) fetch(group);
  }
  __device__ __forceinline__ uint4* slot(int group, int u) const {
    return slots + ((kKeep ? group : group % kAhead) * kGroup + u) * Threads + threadIdx.x;
  }
  __device__ __forceinline__ void fetch(int group) const {
#pragma unroll
    for (int u = 0; u < kGroup; ++u) {
      const int i = (group * kGroup + u) * Threads + static_cast<int>(threadIdx.x);
      if (i < packs) copy_ahead(slot(group, u), from + i);
    }
    end_copy_group();
  }
  // use(pack index, pack) for each.
  template <class Use>
  __device__ __forceinline__ void for_each(const Use& use) const {
    for (int group = 0; group * (kGroup * Threads) < packs; ++group) {
      wait_copy_groups<kAhead - 1>();
      uint4 x[kGroup];
      const int first = group * kGroup * Threads + static_cast<int>(threadIdx.x);
#pragma unroll
      for (int u = 0; u < kGroup; ++u)
        if (first + u * Threads < packs) x[u] = *slot(group, u);
#pragma unroll
      for (int u = 0; u < kGroup; ++u)
        if (first + u * Threads < packs) use(first + u * Threads, x[u]);
      // The slots have been read by this thread, the only one that uses them.
      fetch(group + kAhead);
    }
  }
};

// Maximum, sum of exponentials relative to it, and sum of the logits.
template <class T>
struct RowSums {
  float maximum = ShiftedExp<T>::kLowest;
  float sum_exp = 0;
  float total = 0;

  template <int N>
  __device__ __forceinline__ void add(const float (&x)[N]) {
    float high = x[0];
#pragma unroll
    for (int i = 1; i < N; ++i) high = fmaxf(high, x[i]);
    if (high > maximum) {
      sum_exp *= ShiftedExp<T>(high)(maximum);
      maximum = high;
    }
    const ShiftedExp<T> power(maximum);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      sum_exp += power(x[i]);
      total += x[i];
    }
  }

  // Of `Lanes` neighbouring threads, in all of them.
  template <int Lanes>
  __device__ __forceinline__ void combine() {
    const float top = warp_reduce<Max, Lanes>(maximum);
    sum_exp = warp_reduce<Add, Lanes>(sum_exp * ShiftedExp<T>(top)(maximum));
    total = warp_reduce<Add, Lanes>(total);
    maximum = top;
  }

  // Of the block; one barrier.
  template <int Threads>
  __device__ __forceinline__ void combine_block(float (&shared)[3][Threads / 32]) {
    constexpr int kWarps = Threads / 32;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    combine<32>();
    if (lane == 0) {
      shared[0][warp] = maximum;
      shared[1][warp] = sum_exp;
      shared[2][warp] = total;
    }
    __syncthreads();
    maximum = shared[0][lane % kWarps];
    sum_exp = shared[1][lane % kWarps];
    total = shared[2][lane % kWarps];
    combine<kWarps>();
  }

  // Statistics of the cluster, from the statistics of its blocks. All threads have arrived once
  // before: the shared memory of a block is there only once it runs. After this all blocks have
  // read their shares.
  __device__ __forceinline__ void combine_cluster(float (&shared)[3][kMostShares], int block,
                                                  int blocks) {
    wait_cluster();
    if (const int to = static_cast<int>(threadIdx.x); to < blocks) {
      put_in_block(static_cast<uint32_t>(to), &shared[0][block], maximum);
      put_in_block(static_cast<uint32_t>(to), &shared[1][block], sum_exp);
      put_in_block(static_cast<uint32_t>(to), &shared[2][block], total);
    }
    arrive_cluster();
    wait_cluster();
    const int from = static_cast<int>(threadIdx.x) % kMostShares;
    maximum = from < blocks ? shared[0][from] : ShiftedExp<T>::kLowest;
    sum_exp = from < blocks ? shared[1][from] : 0.0f;
    total = from < blocks ? shared[2][from] : 0.0f;
    combine<kMostShares>();
  }
};

struct LossArgs {
  double smoothing, smoothing_of_class;  // e, e / classes
  int32_t ignore_label;
  int64_t classes, stride;
};

// dx of one row: gradient e^(x - lse) - spread, and `hit` less at the label.
template <class T>
struct RowGradient {
  static constexpr int W = kPackWidth<T>;
  ShiftedExp<T> power;
  float gradient, spread, hit;
  __device__ __forceinline__ RowGradient(const LossArgs& a, float lse, float lse_rest, double g)
      : power(lse, lse_rest),
        gradient(static_cast<float>(g)),
        spread(static_cast<float>(g * a.smoothing_of_class)),
        hit(static_cast<float>(g * (1 - a.smoothing))) {}
  __device__ __forceinline__ float of(float x) const { return fmaf(gradient, power(x), -spread); }
  __device__ __forceinline__ void of_pack(const uint4& pack, float (&v)[W]) const {
    to_floats<T>(pack, v);
#pragma unroll
    for (int j = 0; j < W; ++j) v[j] = of(v[j]);
  }
};

// The gradient in E5M2 beside dlogits, of bfloat16 alone.
struct Fp8Gradient {
  uint8_t* values;  // bytes [rows, stride]; null: not wanted
  const float* scale;

  // Eight elements from `i` on, a multiple of eight.
  __device__ __forceinline__ void put(int64_t i, const float (&v)[8], float factor) const {
    *reinterpret_cast<uint2*>(values + i) = fp8_of_8<Fp8Format::e5m2>(v, factor);
  }
  __device__ __forceinline__ void put(int64_t i, float v, float factor) const {
    values[i] = fp8_of<Fp8Format::e5m2>(v * factor);
  }
  // The zeros after row `t` of both gradients, fewer than threads.
  template <class T>
  __device__ __forceinline__ void clear_behind(T* row, int64_t t, const LossArgs& args) const {
    const int64_t c = args.classes + threadIdx.x;
    if (c >= args.stride) return;
    row[c] = from_float<T>(0.0f);
    values[t * args.stride + c] = 0;
  }
};

template <class T>
struct ForwardArgs {
  LossArgs loss_args;
  const T* logits;
  const int32_t* labels;
  const float* weights;  // or null
  float* loss;
  float* nll;
  float* lse;
  float* lse_rest;  // or null
  double dloss;     // of kGradient, which writes dlogits; it may be logits
  T* dlogits;
  Fp8Gradient fp8;  // of kFp8
};

// The sum of base - x over a row of large logits, which would overflow in float32. In all threads.
template <class T, int Threads>
__device__ __noinline__ double sum_below(const T* row, int64_t classes, double base,
                                         double (&shared)[Threads / 32]) {
  double sum = 0;
  for (int64_t c = threadIdx.x; c < classes; c += Threads)
    sum += base - static_cast<double>(to_float(row[c]));
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int warp = 0; warp < Threads / 32; ++warp) sum += shared[warp];
  return sum;
}

// The row is read once. kGradient: it stays in shared memory, and its gradient is written at once;
// logits and dlogits then have the same alignment. kShared: by a cluster.
template <class T, int Threads, bool kGradient, bool kFp8, bool kShared>
__device__ __forceinline__ void forward_row(const ForwardArgs<T>& a) {
  constexpr int W = kPackWidth<T>;
  extern __shared__ uint4 slots[];
  __shared__ float shared[3][Threads / 32];
  __shared__ double wide[Threads / 32];
  const LossArgs& args = a.loss_args;
  const int64_t number = kShared ? blockIdx.x / blocks_in_cluster() : blockIdx.x;
  const int64_t rows = kShared ? gridDim.x / blocks_in_cluster() : gridDim.x;
  // Gradients from the last row on: the last results of the previous GEMM may still be in the
  // cache, and the next GEMM reads the first rows first.
  const int64_t t = kGradient ? rows - 1 - number : number;
  const int32_t label = a.labels[t];
  const T* row = a.logits + t * args.stride;
  const RowParts<T> parts(row, args.classes);
  const RowShare<T, kShared> share(parts);
  const bool first_block = share.block == 0;
  if (label == args.ignore_label) {
    if (first_block && threadIdx.x == 0) {
      a.loss[t] = a.nll[t] = a.lse[t] = 0;
      if (a.lse_rest) a.lse_rest[t] = 0;
    }
    if constexpr (kGradient)
      if (first_block)
        clear_row<T, Threads>(a.dlogits + t * args.stride, kFp8 ? args.stride : args.classes);
    if constexpr (kFp8)
      if (first_block) clear_bytes<Threads>(a.fp8.values + t * args.stride, args.stride);
    return;
  }
  const int64_t body = parts.head + int64_t{share.first} * W;
  const PackStream<Threads, kGradient> stream(row + body, share.packs, slots);
  // Before any thread can write a gradient over it: the barrier of the sums comes later.
  const float at_label = to_float(row[label]);
  const float weight_of_row = a.weights ? a.weights[t] : 1.0f;
  // Fewer edges than threads.
  const bool has_edge = threadIdx.x < share.edges;
  float edge[1] = {0};
  if (has_edge) edge[0] = to_float(row[parts.edge(threadIdx.x)]);
  if constexpr (kShared) arrive_cluster_unordered();

  RowSums<T> sums;
  stream.for_each([&](int, const uint4& pack) {
    float x[W];
    to_floats<T>(pack, x);
    sums.add(x);
  });
  if (has_edge) sums.add(edge);
  sums.template combine_block<Threads>(shared);
  if constexpr (kShared) {
    __shared__ float of_blocks[3][kMostShares];
    sums.combine_cluster(of_blocks, share.block, share.blocks);
  }

  const float log_exp = logf(sums.sum_exp);
  auto base = static_cast<double>(sums.maximum);  // base + rest: the log-sum
  auto rest = static_cast<double>(log_exp);
  const bool large = !(fabsf(sums.maximum) < kLargeLogit);
  double spread = 0;  // base less the mean of the logits, times the number of classes
  if (large) {
    if (args.smoothing > 0) {
      if (first_block) spread = sum_below<T, Threads>(row, args.classes, base, wide);
      // No block writes to the row before it was read.
      if constexpr (kShared) {
        arrive_cluster();
        wait_cluster();
      }
    }
  } else {
    base += rest;
    // The log is rounded at its own size, about 10: log s = y + log(s e^-y), of something near 1.
    if constexpr (sizeof(T) == 4) base += fmaf(sums.sum_exp, expf(-log_exp), -1.0f);
    rest = 0;
  }
  const auto lse = static_cast<float>(base);
  // bfloat16 has no use for what rounding takes.
  const auto lse_rest =
      sizeof(T) == 4 || large ? static_cast<float>((base - static_cast<double>(lse)) + rest) : 0.0f;
  const auto weight = static_cast<double>(weight_of_row);
  if (first_block && threadIdx.x == 0) {
    const double hit = (base - static_cast<double>(at_label)) + rest;
    const double kept = (1 - args.smoothing) * hit;
    const double loss = args.smoothing == 0 ? hit
                        : large ? kept + (args.smoothing * rest + args.smoothing_of_class * spread)
                                : kept + args.smoothing * base -
                                      args.smoothing_of_class * static_cast<double>(sums.total);
    a.nll[t] = static_cast<float>(weight * hit);
    a.loss[t] = static_cast<float>(weight * loss);
    a.lse[t] = lse;
    if (a.lse_rest) a.lse_rest[t] = lse_rest;
  }
  if constexpr (kGradient) {
    const RowGradient<T> gradient(args, lse, lse_rest, a.dloss * weight);
    T* out = a.dlogits + t * args.stride;
    float factor = 0;
    if constexpr (kFp8) factor = a.fp8.scale[1];
#pragma unroll 2
    for (int i = threadIdx.x; i < share.packs; i += Threads) {
      float v[W];
      gradient.of_pack(slots[i], v);
      store_floats<T, W>(out + body + int64_t{i} * W, v);
      if constexpr (kFp8) a.fp8.put(t * args.stride + body + int64_t{i} * W, v, factor);
    }
    if (has_edge) {
      const float d = gradient.of(edge[0]);
      out[parts.edge(threadIdx.x)] = from_float<T>(d);
      if constexpr (kFp8) a.fp8.put(t * args.stride + parts.edge(threadIdx.x), d, factor);
    }
    if constexpr (kFp8)
      if (first_block) a.fp8.clear_behind(out, t, args);
    // By the thread that has written it without the label, so in this order.
    if (share.owns(parts, label, Threads)) {
      const float d = gradient.of(at_label) - gradient.hit;
      out[label] = from_float<T>(d);
      if constexpr (kFp8) a.fp8.put(t * args.stride + label, d, factor);
    }
  }
}

template <class T, int Threads, bool kGradient, bool kFp8 = false>
__global__ void __launch_bounds__(Threads) forward_kernel(ForwardArgs<T> a) {
  forward_row<T, Threads, kGradient, kFp8, false>(a);
}
// Of clusters, with gradient.
template <class T, bool kFp8>
__global__ void __launch_bounds__(kShareThreads) shared_forward_kernel(ForwardArgs<T> a) {
  if constexpr (kHasClusters) forward_row<T, kShareThreads, true, kFp8, true>(a);
}

template <class T>
struct BackwardArgs {
  LossArgs loss_args;
  double scale;
  bool per_row, accumulate;
  const T* logits;
  const int32_t* labels;
  const float* weights;
  const float* lse;
  const float* lse_rest;  // or null
  const float* dloss;     // null: 1
  T* dlogits;             // may be logits
  Fp8Gradient fp8;        // of kFp8, without `accumulate`
};

template <class T, int Threads, bool kFp8 = false>
__global__ void __launch_bounds__(Threads) backward_kernel(BackwardArgs<T> a) {
  constexpr int W = kPackWidth<T>;
  extern __shared__ uint4 slots[];
  const LossArgs& args = a.loss_args;
  // From the last row on: what forward has read last may still be in the cache.
  const int64_t t = static_cast<int64_t>(gridDim.x) - 1 - blockIdx.x;
  const int32_t label = a.labels[t];
  const T* row = a.logits + t * args.stride;
  T* out = a.dlogits + t * args.stride;
  if (label == args.ignore_label) {
    if (!a.accumulate) clear_row<T, Threads>(out, kFp8 ? args.stride : args.classes);
    if constexpr (kFp8) clear_bytes<Threads>(a.fp8.values + t * args.stride, args.stride);
    return;
  }
  RowParts<T> parts(row, args.classes);
  // Rows that never meet a 16-byte boundary together have no packs.
  if ((reinterpret_cast<uintptr_t>(row) - reinterpret_cast<uintptr_t>(out)) % 16 != 0)
    parts.take_apart(args.classes);
  const PackStream<Threads, false> stream(row + parts.head, parts.packs, slots);
  const double weight = a.weights ? static_cast<double>(a.weights[t]) : 1.0;
  const RowGradient<T> gradient(
      args, a.lse[t], a.lse_rest ? a.lse_rest[t] : 0.0f,
      a.scale * weight * (a.dloss ? static_cast<double>(a.dloss[a.per_row ? t : 0]) : 1.0));
  // The thread that owns the label reads what is at its place before it writes there.
  const bool has_label = static_cast<int>(threadIdx.x) == parts.owner(label, Threads);
  float at_label = 0;
  if (has_label) {
    at_label = gradient.of(to_float(row[label])) - gradient.hit;
    if (a.accumulate) at_label += to_float(out[label]);
  }
  float factor = 0;
  if constexpr (kFp8) factor = a.fp8.scale[1];
  for (int64_t e = threadIdx.x; e < parts.edges; e += Threads) {
    const int64_t c = parts.edge(e);
    const float d = gradient.of(to_float(row[c]));
    out[c] = from_float<T>(a.accumulate ? to_float(out[c]) + d : d);
    if constexpr (kFp8) a.fp8.put(t * args.stride + c, d, factor);
  }
  if constexpr (kFp8) a.fp8.clear_behind(out, t, args);
  T* body = out + parts.head;
  stream.for_each([&](int i, const uint4& pack) {
    float v[W];
    gradient.of_pack(pack, v);
    put_floats<T, W>(body + int64_t{i} * W, v, a.accumulate);
    if constexpr (kFp8) a.fp8.put(t * args.stride + parts.head + int64_t{i} * W, v, factor);
  });
  if (!has_label) return;
  out[label] = from_float<T>(at_label);
  if constexpr (kFp8) a.fp8.put(t * args.stride + label, at_label, factor);
}

// run(threads of a block, shared memory of a ring) for rows of `packs`.
template <class Run>
int32_t with_threads(int64_t packs, const Run& run) {
  static_assert((kAhead * kGroup + 1) * 512 * 16 <= kLeastSharedMemory);
  const auto with = [&](auto threads) {
    const int64_t of_thread = (packs + threads() - 1) / threads();
    const int64_t groups = std::min<int64_t>(kAhead, (of_thread + kGroup - 1) / kGroup);
    return run(threads, groups * kGroup * threads() * 16);
  };
  if (packs <= 512) return with(std::integral_constant<int, 128>{});
  if (packs <= 2048) return with(std::integral_constant<int, 256>{});
  return with(std::integral_constant<int, 512>{});
}

// `blocks`: of a row, a cluster if there are more than one.
template <class Args>
int32_t launch_rows(DeviceState& device, void (*kernel)(Args), int64_t rows, int threads,
                    int64_t bytes, const Args& args, const char* name, int blocks = 1) {
  if (bytes > kPlainSharedMemory) {
    const cudaError_t error =
        raise_shared_memory(device, reinterpret_cast<const void*>(kernel), bytes);
    if (error != cudaSuccess) return report(device, error, name);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(rows * blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = device.stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(blocks);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = blocks > 1 ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, args);
  return launched(device, name);
}

// How many blocks share a row of `packs`.
int blocks_of_row(const DeviceState& device, int64_t packs) {
  int blocks = 1;
  while (device.compute_major >= 9 && blocks < kMostShares &&
         share_of_packs(packs, blocks) * 16 > kShareBytes)
    blocks *= 2;
  return blocks;
}

LossArgs loss_args(double smoothing, int32_t ignore_label, int64_t classes, int64_t stride) {
  return {smoothing, smoothing / static_cast<double>(classes), ignore_label, classes, stride};
}

template <class T>
int32_t backward(DeviceState& device, const BackwardArgs<T>& args, int64_t rows) {
  const int64_t packs = args.loss_args.classes / kPackWidth<T>;
  return with_threads(packs, [&](auto threads, int64_t ring) {
    // FP8 comes here only with rows that are too large for a block.
    if constexpr (sizeof(T) == 2 && threads() == 512)
      if (args.fp8.values)
        return launch_rows(device, backward_kernel<T, threads(), true>, rows, threads(), ring, args,
                           "cross_entropy_backward");
    return launch_rows(device, backward_kernel<T, threads()>, rows, threads(), ring, args,
                       "cross_entropy_backward");
  });
}

template <class T>
int32_t forward(DeviceState& device, const CrossEntropyForwardParams& p) {
  ForwardArgs<T> args{};
  args.loss_args = loss_args(p.label_smoothing, p.ignore_label, p.classes, p.stride);
  args.logits = static_cast<const T*>(p.logits);
  args.labels = p.labels;
  args.weights = static_cast<const float*>(p.weights);
  args.loss = static_cast<float*>(p.loss);
  args.nll = static_cast<float*>(p.nll);
  args.lse = static_cast<float*>(p.lse);
  args.lse_rest = static_cast<float*>(p.lse_rest);
  args.dloss = p.dloss;
  args.dlogits = static_cast<T*>(p.dlogits);
  args.fp8 = {static_cast<uint8_t*>(p.dlogits_fp8), p.dlogits_scale};
  if (args.fp8.values &&
      (sizeof(T) != 2 || p.stride % 16 != 0 || p.stride - p.classes >= 16 || !aligned16(p.logits) ||
       !aligned16(p.dlogits) || !aligned16(p.dlogits_fp8)))
    return unsupported(device,
                       "cross_entropy: FP8 gradients are of aligned bfloat16 rows, whose distance "
                       "is the next multiple of 16 classes");
  const int64_t packs = p.classes / kPackWidth<T>;
  const int blocks = blocks_of_row(device, packs);
  const int64_t kept = share_of_packs(packs, blocks) * 16;
  // Some is the sums'.
  const bool fits = kept + 2048 <= static_cast<int64_t>(device.shared_memory_per_block);
  const bool aligned_alike =
      (reinterpret_cast<uintptr_t>(p.logits) - reinterpret_cast<uintptr_t>(p.dlogits)) % 16 == 0;
  constexpr const char* kName = "cross_entropy_forward";
  if (p.dlogits && fits && aligned_alike && blocks > 1) {
    auto* kernel = shared_forward_kernel<T, false>;
    if constexpr (sizeof(T) == 2)
      if (args.fp8.values) kernel = shared_forward_kernel<T, true>;
    return launch_rows(device, kernel, p.rows, kShareThreads, kept, args, kName, blocks);
  }
  return with_threads(packs, [&](auto threads, int64_t ring) {
    if constexpr (sizeof(T) == 2)
      if (args.fp8.values && fits)
        return launch_rows(device, forward_kernel<T, threads(), true, true>, p.rows, threads(),
                           kept, args, kName);
    if (p.dlogits && fits && aligned_alike)
      return launch_rows(device, forward_kernel<T, threads(), true>, p.rows, threads(), kept, args,
                         kName);
    if (p.dlogits && !args.lse_rest) {
      args.lse_rest =
          static_cast<float*>(device.scratch(static_cast<size_t>(p.rows) * sizeof(float)));
      if (!args.lse_rest) return int32_t{kOutOfMemory};
    }
    const int32_t result = launch_rows(device, forward_kernel<T, threads(), false>, p.rows,
                                       threads(), ring, args, kName);
    if (result != kSuccess || !p.dlogits) return result;
    BackwardArgs<T> g{};
    g.loss_args = args.loss_args;
    g.scale = p.dloss;
    g.logits = args.logits;
    g.labels = args.labels;
    g.weights = args.weights;
    g.lse = args.lse;
    g.lse_rest = args.lse_rest;
    g.dlogits = args.dlogits;
    g.fp8 = args.fp8;
    return backward(device, g, p.rows);
  });
}

}  // namespace
}  // namespace cuda

int32_t cross_entropy_forward_cuda(cuda::DeviceState& device, const CrossEntropyForwardParams& p) {
  using namespace cuda;
  if (p.rows == 0) return kSuccess;
  int32_t result = kSuccess;
  const bool known =
      with_device_type(p.dtype, [&](auto zero) { result = forward<decltype(zero)>(device, p); });
  return known ? result : unsupported(device, "cross_entropy: CUDA has float32 and bfloat16");
}

int32_t cross_entropy_backward_cuda(cuda::DeviceState& device,
                                    const CrossEntropyBackwardParams& p) {
  using namespace cuda;
  if (p.rows == 0 || p.classes == 0) return kSuccess;
  int32_t result = kSuccess;
  const bool known = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const BackwardArgs<T> args{loss_args(p.label_smoothing, p.ignore_label, p.classes, p.classes),
                               p.scale,
                               p.per_row,
                               p.accumulate,
                               static_cast<const T*>(p.logits),
                               p.labels,
                               static_cast<const float*>(p.weights),
                               static_cast<const float*>(p.lse),
                               static_cast<const float*>(p.lse_rest),
                               static_cast<const float*>(p.dloss),
                               static_cast<T*>(p.dlogits),
                               {}};
    result = backward(device, args, p.rows);
  });
  return known ? result : unsupported(device, "cross_entropy: CUDA has float32 and bfloat16");
}

}  // namespace trafo
