// CUDA kernels of bias_dropout_residual.
#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"

#include <algorithm>
#include <iterator>

#include "engine/backend/cuda/shared_memory.h"
#include "engine/ops/bias_dropout_residual/add_norm_backward.cuh"
#include "engine/ops/layer_norm/norm_forward.cuh"

namespace trafo {
namespace cuda {
namespace {

constexpr const char* kForward = "bias_dropout_residual_forward";
constexpr const char* kBackward = "bias_dropout_residual_backward";
constexpr const char* kNoType = "bias_dropout_residual: float32 and bfloat16 only";

// The sum without a norm, for flat_kernel.
template <class T, int V>
struct SumBody {
  NormForwardArgs<T> a;
  static constexpr int kPacks = 2;
  struct Loaded {
    Held<T, V> x, residual;
  };
  using Columns = Held<T, V>;  // of the bias
  __device__ __host__ bool uses_columns() const { return a.bias != nullptr; }
  __device__ Columns columns(int64_t column) const { return load_held<T, V>(a.bias + column); }
  static constexpr bool kWords = true;
  __device__ bool dropping() const { return a.dropping; }
  __device__ uint4 words(int64_t i) const {
    return philox_block(a.dropout, static_cast<uint64_t>(i) / 8);
  }
  __device__ Loaded load(int64_t i) const {
    return {load_once<T, V>(a.x + i), load_once<T, V>(a.residual + i)};
  }
  __device__ void finish(int64_t i, uint32_t, const Loaded& loaded, const Columns& bias,
                         const uint4& words) const {
    store_held<T, V>(a.sum + i, residual_sum<T, V>(loaded.x, bias, loaded.residual, a.dropping,
                                                   a.dropout, words, i));
  }
};

template <class T>
int32_t forward(DeviceState& device, const BiasDropoutResidualForwardParams& p) {
  constexpr int V = kPackWidth<T>;
  NormForwardArgs<T> args{};
  args.x = static_cast<const T*>(p.x);
  args.bias = static_cast<const T*>(p.bias);
  args.residual = static_cast<const T*>(p.residual);
  args.gamma = static_cast<const T*>(p.gamma);
  args.beta = static_cast<const T*>(p.beta);
  args.sum = static_cast<T*>(p.sum);
  args.y = static_cast<T*>(p.normed);
  args.mean = static_cast<float*>(p.mean);
  args.rstd = static_cast<float*>(p.rstd);
  args.saved_mean = static_cast<float*>(p.saved_mean);
  args.rows = p.rows;
  args.width = p.width;
  args.epsilon = static_cast<float>(p.epsilon);
  args.dropping = p.dropout.active();
  args.dropout = DropoutArgs::of(device, p.dropout);
  args.largest = p.largest;
  if (p.gamma) return launch_norm_forward<true>(device, args, kForward);
  const bool packed = p.width % V == 0 && aligned16(p.x) && aligned16(p.bias) &&
                      aligned16(p.residual) && aligned16(p.sum);
  return packed ? launch_flat<V>(device, p.rows * p.width, p.width, SumBody<T, V>{args}, kForward)
                : launch_flat<1>(device, p.rows * p.width, p.width, SumBody<T, 1>{args}, kForward);
}

template <class T, int Lanes, bool kBranch>
int32_t launch_rows(DeviceState& device, const AddNormBackwardArgs<T>& args, const ColumnSums& to) {
  constexpr int kRows = kAddNormThreads<Lanes> / Lanes, kSums = kBranch ? 3 : 2;
  const int threads = add_norm_threads<Lanes>(args.width / kPackWidth<T>);
  const int bytes = add_norm_slot_bytes(threads, args.dsum);
  // Resident on a multiprocessor: by registers, and by shared memory, of which a block may have
  // all.
  constexpr int kRegisters = 65536, kForSums = 1024;
  const int64_t by_registers = kRegisters / (kAddNormRegisters<T, Lanes, kBranch> * threads),
                by_memory = device.shared_memory_per_block / (bytes + kForSums);
  const int64_t resident = std::max<int64_t>(1, std::min(by_registers, by_memory));
  const int64_t blocks =
      std::min(resident * device.multiprocessors, (args.rows + kRows - 1) / kRows);
  float* partials = nullptr;
  if (to.out[0] || to.out[1] || to.out[2]) {
    partials = static_cast<float*>(
        device.scratch(static_cast<size_t>(blocks * kSums * args.width) * sizeof(float)));
    if (!partials) return kOutOfMemory;
  }
  const auto kernel = add_norm_rows_kernel<T, Lanes, kBranch>;
  const cudaError_t error =
      raise_shared_memory(device, reinterpret_cast<const void*>(kernel), bytes);
  if (error != cudaSuccess) return report(device, error, kBackward);
  kernel<<<static_cast<unsigned>(blocks), threads, bytes, device.stream>>>(args, partials);
  const int32_t result = launched(device, kBackward);
  return result == kSuccess && partials
             ? sum_partials(device, partials, blocks, kSums, args.width, to)
             : result;
}

template <class T, int V, bool kNorm>
int32_t launch_by_tiles(DeviceState& device, const AddNormBackwardArgs<T>& args,
                        const ColumnSums& all) {
  constexpr int kSums = kNorm ? 3 : 1;
  ColumnSums to = all;
  if (!kNorm) to = ColumnSums{{all.out[2]}, {all.accumulate[2]}};
  const TilePlan plan(device, args.rows, args.width / V, kTileBlocks<kSums>);
  const bool summing = to.out[0] || to.out[1] || to.out[2];
  // Scratch memory: both means of every row, then the partial sums.
  const int64_t for_means = kNorm ? (2 * args.rows + 3) / 4 * 4 : 0;
  const int64_t floats = for_means + (summing ? plan.chunks * kSums * args.width : 0);
  auto* scratch = static_cast<float*>(device.scratch(static_cast<size_t>(floats) * sizeof(float)));
  if (floats > 0 && !scratch) return kOutOfMemory;
  auto* means = reinterpret_cast<float2*>(scratch);
  if constexpr (kNorm) {
    row_means_kernel<T, V>
        <<<static_cast<unsigned>(args.rows), kMeansThreads, 0, device.stream>>>(args, means);
    const int32_t result = launched(device, kBackward);
    if (result != kSuccess) return result;
  }
  return launch_tiles<T, V, kSums>(device, args.rows, args.width, plan,
                                   AddNormBody<T, V, kNorm>{args, means, args.largest}, to,
                                   summing ? scratch + for_means : nullptr, kBackward);
}

template <class T, bool kBranch>
int32_t backward_norm(DeviceState& device, const AddNormBackwardArgs<T>& args, const ColumnSums& to,
                      bool packed) {
  const int64_t packs = args.width / kPackWidth<T>;
  if (!packed) return launch_by_tiles<T, 1, true>(device, args, to);
  if (packs <= 32) return launch_rows<T, 32, kBranch>(device, args, to);
  if (packs <= 64) return launch_rows<T, 64, kBranch>(device, args, to);
  if (packs <= 128) return launch_rows<T, 128, kBranch>(device, args, to);
  if (packs <= 256) return launch_rows<T, 256, kBranch>(device, args, to);
  if (packs <= 512) return launch_rows<T, 512, kBranch>(device, args, to);
  // Three tensors in 1024 slots are more than every card has room for.
  constexpr int kForSums = 1024;
  static_assert(add_norm_slot_bytes(512, true) + kForSums <= kLeastSharedMemory &&
                add_norm_slot_bytes(1024, false) + kForSums <= kLeastSharedMemory);
  const auto needed =
      static_cast<size_t>(add_norm_slot_bytes(add_norm_threads<1024>(packs), args.dsum) + kForSums);
  if (packs <= 1024 && needed <= device.shared_memory_per_block)
    return launch_rows<T, 1024, kBranch>(device, args, to);
  return launch_by_tiles<T, kPackWidth<T>, true>(device, args, to);
}

template <class T>
int32_t backward(DeviceState& device, const BiasDropoutResidualBackwardParams& p) {
  constexpr int V = kPackWidth<T>;
  AddNormBackwardArgs<T> args{};
  args.sum = static_cast<const T*>(p.sum);
  args.gamma = static_cast<const T*>(p.gamma);
  args.mean = static_cast<const float*>(p.mean);
  args.rstd = static_cast<const float*>(p.rstd);
  args.dsum = static_cast<const T*>(p.dsum);
  args.dnormed = static_cast<const T*>(p.dnormed);
  args.dx = static_cast<T*>(p.dx);
  args.dresidual = static_cast<T*>(p.dresidual);
  args.rows = p.rows;
  args.width = p.width;
  args.accumulate_dx = p.accumulate_dx;
  args.accumulate_dresidual = p.accumulate_dresidual;
  args.dropping = p.dropout.active();
  args.dropout = DropoutArgs::of(device, p.dropout);
  args.largest = p.largest;
  const ColumnSums to{
      {static_cast<float*>(p.dgamma), static_cast<float*>(p.dbeta), static_cast<float*>(p.dbias)},
      {p.accumulate_dgamma, p.accumulate_dbeta, p.accumulate_dbias}};
  bool packed = p.width % V == 0;
  for (const void* buffer : {p.sum, p.gamma, p.dsum, p.dnormed, static_cast<const void*>(p.dx),
                             static_cast<const void*>(p.dresidual)})
    packed = packed && aligned16(buffer);
  if (!p.dnormed)
    return packed ? launch_by_tiles<T, V, false>(device, args, to)
                  : launch_by_tiles<T, 1, false>(device, args, to);
  if (p.dx || p.dbias) return backward_norm<T, true>(device, args, to, packed);
  return backward_norm<T, false>(device, args, to, packed);
}

}  // namespace
}  // namespace cuda

int32_t bias_dropout_residual_forward_cuda(cuda::DeviceState& device,
                                           const BiasDropoutResidualForwardParams& p) {
  using namespace cuda;
  if (p.rows == 0) return kSuccess;
  int32_t result = kSuccess;
  const bool typed =
      with_device_type(p.dtype, [&](auto zero) { result = forward<decltype(zero)>(device, p); });
  return typed ? result : unsupported(device, kNoType);
}

int32_t bias_dropout_residual_backward_cuda(cuda::DeviceState& device,
                                            const BiasDropoutResidualBackwardParams& p) {
  using namespace cuda;
  if (p.rows == 0) {
    const int32_t results[] = {clear_gradient(device, p.dbias, p.accumulate_dbias, p.width),
                               clear_gradient(device, p.dgamma, p.accumulate_dgamma, p.width),
                               clear_gradient(device, p.dbeta, p.accumulate_dbeta, p.width)};
    return *std::max_element(std::begin(results), std::end(results));
  }
  int32_t result = kSuccess;
  const bool typed =
      with_device_type(p.dtype, [&](auto zero) { result = backward<decltype(zero)>(device, p); });
  return typed ? result : unsupported(device, kNoType);
}

}  // namespace trafo
