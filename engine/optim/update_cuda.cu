#include "engine/optim/update.h"

#include <cmath>
#include <cstddef>

#include "engine/optim/generated/rules_cuda.inc"
#include "engine/optim/update_kernel.cuh"

namespace trafo {
namespace cuda {
namespace {

// Elements of one partial sum: fixed, so that the sum is the same on every device.
constexpr int64_t kBlockElements = kSquaresElements;

// Widened before squaring: the square of a finite float is always a finite double.
template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    sum_of_squares_kernel(const T* __restrict__ x, int64_t count, double* __restrict__ partial) {
  constexpr int kUnroll = 4;
  const int64_t begin = blockIdx.x * kBlockElements;
  const int64_t end = min(begin + kBlockElements, count);
  double sum = 0;
  int64_t i = begin + threadIdx.x * W;
  constexpr int64_t kStep = int64_t{kThreads} * W;
  for (; i + (kUnroll - 1) * kStep + W <= end; i += kUnroll * kStep) {
    Pack<T, W> packs[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) packs[u] = load_pack<T, W>(x + i + u * kStep);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const double value = to_float(packs[u].v[j]);
        sum = fma(value, value, sum);
      }
  }
  for (; i < end; i += kStep)
    for (int64_t j = i; j < min(i + W, end); ++j) {
      const double value = to_float(x[j]);
      sum = fma(value, value, sum);
    }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    sum_partials_kernel(const double* __restrict__ partial, int64_t count,
                        double* __restrict__ out) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}

// One block; the learning rate comes from the host.
template <class Update>
__global__ void __launch_bounds__(kThreads)
    group_rates_kernel(UpdateConstants<Update> constants, double learning_rate, int64_t step,
                       const UpdateFactors* __restrict__ factors,
                       ElementRates* __restrict__ rates) {
  rates[threadIdx.x] = constants.rates(learning_rate, step, factors[threadIdx.x]);
}

// Decides about clipping and skipping, between the norm and the update of clipped_update. One
// block; with groups, one thread computes the rates of one group.
template <class Update>
__global__ void __launch_bounds__(kThreads)
    decide_update_kernel(UpdateConstants<Update> constants, double max_norm,
                         const double* __restrict__ partial, int64_t count,
                         const float* __restrict__ loss, const float* __restrict__ nll,
                         const LearningRates* __restrict__ rates, UpdateRecord* record,
                         UpdateArgs<typename Update::Args>* args,
                         const UpdateFactors* __restrict__ factors, int32_t groups,
                         ElementRates* __restrict__ rates_of_groups) {
  double squares = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) squares += partial[i];
  squares = block_sum(squares);
  UpdateRecord r = *record;
  const double learning_rate = rates->rates[r.updates + 1 - rates->first];
  if (threadIdx.x < groups)
    rates_of_groups[threadIdx.x] =
        constants.rates(learning_rate, r.updates + 1, factors[threadIdx.x]);
  __syncthreads();  // every thread has read the record
  if (threadIdx.x != 0) return;
  r.loss = *loss;
  r.nll = *nll;
  r.norm = sqrt(squares);
  r.learning_rate = learning_rate;
  const bool clipped = max_norm > 0 && r.norm > max_norm;
  // float32 second moments would keep an infinite square for ever.
  const bool squares_fit = (clipped ? max_norm : r.norm) < 1.8e19;
  r.applied = isfinite(r.loss) && isfinite(r.norm) && squares_fit;
  UpdateArgs<typename Update::Args> a{};
  if (r.applied) {
    ++r.updates;
    a = constants.args(r.learning_rate, clipped ? max_norm / r.norm : 1.0, r.updates);
  }
  *args = a;
  *record = r;
}

// apply_direction: the gradient is the direction. The factors of a group are in the arguments.
struct DirectionUpdate {
  struct Rule {};
  struct Args {};
  using Gradient = const float;
  static constexpr int kStates = 0;
  static __device__ void update(const Args& /*a*/, const ElementRates& rates, float direction,
                                float* /*states*/, float& value) {
    value = fmaf(-rates.rate, direction, value * rates.decay);
  }
  static __host__ __device__ Args args(const Rule& /*rule*/, int64_t /*step*/) { return {}; }
  static __host__ __device__ ElementRates rates(const Rule& /*rule*/, const GroupRates& rates,
                                                int64_t /*step*/) {
    return decoupled_rates(rates);
  }
};
using DirectionArgs = UpdateArgs<DirectionUpdate::Args>;

// One thread: the arguments of apply_direction, for elements of one group.
__global__ void direction_args_kernel(UpdateConstants<DirectionUpdate> constants, double scale,
                                      const UpdateRecord* record, double learning_rate,
                                      int64_t step, const uint8_t* __restrict__ group_of,
                                      const UpdateFactors* __restrict__ factors,
                                      DirectionArgs* args) {
  if (record) {
    learning_rate = record->learning_rate;
    step = record->updates;
  }
  DirectionArgs a{};
  if (!record || record->applied) {
    a = constants.args(learning_rate, 1, step);
    const UpdateFactors f = group_of ? factors[group_of[0]] : UpdateFactors{};
    a.rates = constants.rates(learning_rate, step, f);
    a.rates.rate = static_cast<float>(learning_rate * f.learning_rate * scale);
  }
  *args = a;
}

// A thread has W elements of one cell of the table.
template <class X, int W>
__global__ void __launch_bounds__(kThreads)
    zero_pruned_kernel(const float* __restrict__ param, const uint8_t* __restrict__ prunable,
                       int64_t count, X* __restrict__ x) {
  static_assert(kGroupElements % W == 0);
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * W;
  if (i >= count || !prunable[i / kGroupElements]) return;
  if (i + W <= count) {
    const Pack<float, W> weight = load_pack<float, W>(param + i);
    Pack<X, W> value = load_pack<X, W>(x + i);
#pragma unroll
    for (int j = 0; j < W; ++j) value.v[j] = weight.v[j] == 0.0f ? X{0} : value.v[j];
    store_pack(x + i, value);
  } else {
    for (int64_t j = i; j < count; ++j)
      if (param[j] == 0.0f) x[j] = X{0};
  }
}

template <class X>
void launch_zero_pruned(DeviceState& device, const ZeroPrunedParams& p) {
  const auto* param = static_cast<const float*>(p.param);
  X* x = static_cast<X*>(p.x);
  const bool vectors = aligned16(param) && reinterpret_cast<uintptr_t>(x) % (4 * sizeof(X)) == 0;
  const int64_t elements = int64_t{kThreads} * (vectors ? 4 : 1);
  const auto grid = static_cast<unsigned>((p.count + elements - 1) / elements);
  const auto kernel = vectors ? zero_pruned_kernel<X, 4> : zero_pruned_kernel<X, 1>;
  kernel<<<grid, kThreads, 0, device.stream>>>(param, p.prunable, p.count, x);
}

// One partial sum of squares a block of elements.
int64_t square_blocks(int64_t count) {
  return (count + kBlockElements - 1) / kBlockElements;
}

template <class T>
void launch_squares(DeviceState& device, const T* x, int64_t count, double* partial) {
  const auto grid = static_cast<unsigned>(square_blocks(count));
  if (grid == 0) return;
  if (aligned16(x))
    sum_of_squares_kernel<T, kPackWidth<T>>
        <<<grid, kThreads, 0, device.stream>>>(x, count, partial);
  else
    sum_of_squares_kernel<T, 1><<<grid, kThreads, 0, device.stream>>>(x, count, partial);
}

// Calls run(NAMEUpdate, rule) with the rule of `state`.
template <class Run>
int32_t with_rule(DeviceState& device, const UpdateState& state, const Run& run) {
  switch (state.kind) {
#define TRAFO_OPTIMIZER(name, Name, ...) \
  case OptimizerKind::name:              \
    return run(Name##Update{}, state.rules.name);
#include "engine/optim/generated/optimizers.def"
#undef TRAFO_OPTIMIZER
  }
  return unsupported(device, "update: the optimizer is unknown");
}

template <class Update>
int32_t launch_update(DeviceState& device, const UpdateState& s, const typename Update::Rule& rule,
                      const UpdateArgs<typename Update::Args>& given,
                      const UpdateArgs<typename Update::Args>* decided, const Groups& groups,
                      const char* name) {
  Update::run({device, s, given, decided, groups}, rule);
  return launched(device, name);
}

template <class Update>
int32_t update_by(DeviceState& device, const UpdateParams& p, const typename Update::Rule& rule) {
  const UpdateState& s = p.state;
  const UpdateConstants<Update> constants{rule, s.weight_decay, s.post.ema_alpha};
  Groups groups{s.group_of, nullptr, s.factors};
  if (s.group_of) {
    auto* rates = static_cast<ElementRates*>(
        device.scratch(static_cast<size_t>(s.groups) * sizeof(ElementRates)));
    if (!rates) return kOutOfMemory;
    group_rates_kernel<Update><<<1, static_cast<unsigned>(s.groups), 0, device.stream>>>(
        constants, p.learning_rate, p.step, s.factors, rates);
    groups.rates = rates;
  }
  return launch_update<Update>(device, s, rule,
                               constants.args(p.learning_rate, p.grad_scale, p.step), nullptr,
                               groups, "update");
}

template <class Update>
int32_t clipped_update_by(DeviceState& device, const ClippedUpdateParams& p,
                          const typename Update::Rule& rule) {
  using Args = UpdateArgs<typename Update::Args>;
  const UpdateState& s = p.state;
  // Of the scratch memory: partial sums, the rates of the groups, the arguments of the update. A
  // call that continues finds the last two where the one before has left them.
  const int64_t blocks = p.partials ? p.partial_count : square_blocks(s.count);
  const size_t partial_bytes = p.partials ? 0 : static_cast<size_t>(blocks) * sizeof(double);
  const size_t rates_bytes = static_cast<size_t>(s.groups) * sizeof(ElementRates);
  auto* scratch =
      static_cast<std::byte*>(device.scratch(partial_bytes + rates_bytes + sizeof(Args)));
  if (!scratch) return kOutOfMemory;
  auto* partial = reinterpret_cast<double*>(scratch);
  auto* rates = reinterpret_cast<ElementRates*>(scratch + partial_bytes);
  static_assert(sizeof(ElementRates) % alignof(Args) == 0);
  auto* args = reinterpret_cast<Args*>(scratch + partial_bytes + rates_bytes);
  if (!p.partials) launch_squares(device, static_cast<const float*>(s.grad), s.count, partial);
  if (!p.continues)
    decide_update_kernel<Update><<<1, kThreads, 0, device.stream>>>(
        {rule, s.weight_decay, s.post.ema_alpha}, p.max_norm, p.partials ? p.partials : partial,
        blocks, static_cast<const float*>(p.loss), static_cast<const float*>(p.nll), p.rates,
        p.record, args, s.factors, s.groups, rates);
  if (s.count == 0) return launched(device, "clipped_update");
  return launch_update<Update>(device, s, rule, {}, args, {s.group_of, rates, s.factors},
                               "clipped_update");
}

}  // namespace
}  // namespace cuda

int32_t sum_of_squares_cuda(cuda::DeviceState& device, const SumOfSquaresParams& p) {
  using namespace cuda;
  const int64_t blocks = square_blocks(p.count);
  auto* partial =
      static_cast<double*>(device.scratch(static_cast<size_t>(blocks + 1) * sizeof(double)));
  if (!partial) return kOutOfMemory;
  const bool known = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_squares(device, static_cast<const T*>(p.x), p.count, partial);
  });
  if (!known) return unsupported(device, "sum_of_squares: CUDA has float32 and bfloat16");
  sum_partials_kernel<<<1, kThreads, 0, device.stream>>>(partial, blocks, p.out);
  return launched(device, "sum_of_squares");
}

int32_t square_partials_cuda(cuda::DeviceState& device, const SquarePartialsParams& p) {
  using namespace cuda;
  if (p.dtype != DType::f32)
    return unsupported(device, "square_partials: gradients are float32 on CUDA");
  launch_squares(device, static_cast<const float*>(p.x), p.count, p.out);
  return launched(device, "square_partials");
}

int32_t zero_pruned_cuda(cuda::DeviceState& device, const ZeroPrunedParams& p) {
  using namespace cuda;
  if (p.dtype != DType::f32)
    return unsupported(device, "zero_pruned: parameters are float32 on CUDA");
  if (p.count == 0) return kSuccess;
  if (p.codes)
    launch_zero_pruned<uint8_t>(device, p);
  else
    launch_zero_pruned<float>(device, p);
  return launched(device, "zero_pruned");
}

int32_t update_cuda(cuda::DeviceState& device, const UpdateParams& p) {
  using namespace cuda;
  if (p.state.dtype != DType::f32)
    return unsupported(device, "update: parameters and states are float32 on CUDA");
  if (p.state.count == 0) return kSuccess;
  return with_rule(device, p.state, [&]<class Update>(Update, const auto& rule) {
    return update_by<Update>(device, p, rule);
  });
}

int32_t clipped_update_cuda(cuda::DeviceState& device, const ClippedUpdateParams& p) {
  using namespace cuda;
  if (p.state.dtype != DType::f32)
    return unsupported(device, "clipped_update: parameters and states are float32 on CUDA");
  return with_rule(device, p.state, [&]<class Update>(Update, const auto& rule) {
    return clipped_update_by<Update>(device, p, rule);
  });
}

int32_t apply_direction_cuda(cuda::DeviceState& device, const ApplyDirectionParams& p) {
  using namespace cuda;
  UpdateState s = p.state;
  if (s.dtype != DType::f32)
    return unsupported(device, "apply_direction: parameters are float32 on CUDA");
  if (s.count == 0) return kSuccess;
  auto* args = static_cast<DirectionArgs*>(device.scratch(sizeof(DirectionArgs)));
  if (!args) return kOutOfMemory;
  direction_args_kernel<<<1, 1, 0, device.stream>>>({{}, s.weight_decay, s.post.ema_alpha}, p.scale,
                                                    p.record, p.learning_rate, p.step, s.group_of,
                                                    s.factors, args);
  s.grad = const_cast<void*>(p.direction);  // read only
  const DirectionArgs given{};
  Launch<DirectionUpdate::Args>{device, s, given, args, {}}.run<DirectionUpdate>();
  return launched(device, "apply_direction");
}

}  // namespace trafo
