#include "engine/optim/update.h"

#include <cmath>
#include <cstddef>
#include <type_traits>

#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device_state.h"
#include "engine/optim/update_rules.cuh"
#include "engine/quant/state_code.h"

namespace trafo {
namespace cuda {
namespace {

constexpr int kThreads = 256;

// Elements of one partial sum: fixed, so that the sum is the same on every device.
constexpr int64_t kBlockElements = kSquaresElements;

// The sum over the block, in thread 0; always in the same order.
__device__ double block_sum(double x) {
  __shared__ double warp_sums[kThreads / 32];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = x;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0)
    for (int w = 0; w < kThreads / 32; ++w) total += warp_sums[w];
  return total;
}

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

// The groups of an update: a table of indices, and the rates that the kernel before computed.
struct Groups {
  const uint8_t* group_of;  // one for every kGroupElements elements
  const GroupRate* rates;
  const UpdateFactors* factors;

  __device__ GroupRate at(int64_t element) const {
    return rates[group_of[element / kGroupElements]];
  }
  __device__ bool in_whole_matrix(int64_t element) const {
    return factors[group_of[element / kGroupElements]].whole_matrix != 0;
  }
};

// One block; the learning rate comes from the host.
__global__ void __launch_bounds__(kThreads)
    group_rates_kernel(UpdateConstants constants, double learning_rate, int64_t step,
                       const UpdateFactors* __restrict__ factors, GroupRate* __restrict__ rates) {
  rates[threadIdx.x] = constants.rate(learning_rate, step, factors[threadIdx.x]);
}

// Decides about clipping and skipping, between the norm and the update of clipped_update. One
// block; with groups, one thread computes the rates of one group.
__global__ void __launch_bounds__(kThreads)
    decide_update_kernel(UpdateConstants constants, double max_norm,
                         const double* __restrict__ partial, int64_t count,
                         const float* __restrict__ loss, const float* __restrict__ nll,
                         const LearningRates* __restrict__ rates, UpdateRecord* record,
                         UpdateArgs* args, const UpdateFactors* __restrict__ factors,
                         int32_t groups, GroupRate* __restrict__ group_rates) {
  double squares = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) squares += partial[i];
  squares = block_sum(squares);
  UpdateRecord r = *record;
  const double learning_rate = rates->rates[r.updates + 1 - rates->first];
  if (threadIdx.x < groups)
    group_rates[threadIdx.x] = constants.rate(learning_rate, r.updates + 1, factors[threadIdx.x]);
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
  UpdateArgs a{};
  if (r.applied) {
    ++r.updates;
    a = constants.args(r.learning_rate, clipped ? max_norm / r.norm : 1.0, r.updates);
  }
  *args = a;
  *record = r;
}

// One thread: the arguments of apply_direction, for elements of one group.
__global__ void direction_args_kernel(UpdateConstants constants, double scale,
                                      const UpdateRecord* record, double learning_rate,
                                      int64_t step, const uint8_t* __restrict__ group_of,
                                      const UpdateFactors* __restrict__ factors, UpdateArgs* args) {
  if (record) {
    learning_rate = record->learning_rate;
    step = record->updates;
  }
  UpdateArgs a{};
  if (!record || record->applied) {
    a = constants.args(learning_rate, 1, step);
    const UpdateFactors f = group_of ? factors[group_of[0]] : UpdateFactors{};
    learning_rate *= f.learning_rate;
    a.group = {static_cast<float>(learning_rate * scale),
               static_cast<float>(1 - learning_rate * (constants.weight_decay * f.weight_decay))};
  }
  *args = a;
}

// The arrays of a rule that has fewer states are null.
struct StatePointers {
  float* of[2];
};

// The steps after a rule: EMA and bfloat16 copy of W new parameters.
template <int W>
__device__ void post_update(const UpdateArgs& a, const Pack<float, W>& value,
                            bf16* __restrict__ rounded, float* __restrict__ ema, int64_t i) {
  if (ema) {
    Pack<float, W> average = load_pack<float, W>(ema + i);
#pragma unroll
    for (int j = 0; j < W; ++j) average.v[j] = a.new_ema(average.v[j], value.v[j]);
    store_pack(ema + i, average);
  }
  if (rounded) {
    Pack<bf16, W> narrow;
#pragma unroll
    for (int j = 0; j < W; ++j) narrow.v[j] = from_float<bf16>(value.v[j]);
    store_pack(rounded + i, narrow);
  }
}

// `decided`: arguments that a kernel left in device memory, instead of `given`. kGrouped: elements
// have the rates of their group.
template <class Rule, int W, bool kGrouped>
__global__ void __launch_bounds__(kThreads)
    update_kernel(UpdateArgs given, const UpdateArgs* __restrict__ decided, Groups groups,
                  int64_t count, float* __restrict__ param,
                  typename Rule::Gradient* __restrict__ grad, StatePointers states,
                  bf16* __restrict__ rounded, float* __restrict__ ema) {
  static_assert(kGroupElements % W == 0);
  constexpr int kStates = Rule::kStates;
  // Muon's elements of matrices.
  constexpr bool kDirections = kGrouped && !std::is_const_v<typename Rule::Gradient>;
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * W;
  if (i >= count) return;
  const UpdateArgs a = decided ? *decided : given;
  if (!a.applied) return;
  GroupRate rates = a.group;
  if constexpr (kGrouped) rates = groups.at(i);
  bool direction = false;
  if constexpr (kDirections) direction = groups.in_whole_matrix(i);
  if (i + W <= count) {
    Pack<float, W> g = load_pack<float, W>(grad + i);
    Pack<float, W> loaded[kStates > 0 ? kStates : 1];
#pragma unroll
    for (int k = 0; k < kStates; ++k) loaded[k] = load_pack<float, W>(states.of[k] + i);
    Pack<float, W> value = load_pack<float, W>(param + i);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      float state[kStates > 0 ? kStates : 1];
#pragma unroll
      for (int k = 0; k < kStates; ++k) state[k] = loaded[k].v[j];
      if constexpr (kDirections)
        if (direction) Rule::direction(a, g.v[j], state);
      if (!direction) Rule::update(a, rates, g.v[j], state, value.v[j]);
#pragma unroll
      for (int k = 0; k < kStates; ++k) loaded[k].v[j] = state[k];
    }
#pragma unroll
    for (int k = 0; k < kStates; ++k) store_pack(states.of[k] + i, loaded[k]);
    if constexpr (kDirections)
      if (direction) {
        store_pack(grad + i, g);
        return;
      }
    store_pack(param + i, value);
    post_update<W>(a, value, rounded, ema, i);
  } else {
    for (int64_t j = i; j < count; ++j) {
      float state[kStates > 0 ? kStates : 1];
      for (int k = 0; k < kStates; ++k) state[k] = states.of[k][j];
      if constexpr (kDirections)
        if (direction) Rule::direction(a, grad[j], state);
      if (!direction) Rule::update(a, rates, grad[j], state, param[j]);
      for (int k = 0; k < kStates; ++k) states.of[k][j] = state[k];
      if (direction) continue;
      if (ema) ema[j] = a.new_ema(ema[j], param[j]);
      if (rounded) rounded[j] = from_float<bf16>(param[j]);
    }
  }
}

// The same with moments in 8 bits (state_code.h): a warp holds a block of them in registers, from
// decoding to coding. Lane l has elements 4 l .. 4 l + 3 of either half, so that every access of a
// warp is one range. kAligned: parameters and gradients can be moved by fours.
constexpr int kHalf = static_cast<int>(state_code::kBlock) / 2;
static_assert(kHalf == 4 * 32);

__device__ __forceinline__ uint8_t byte_of(uint32_t codes, int j) {
  return static_cast<uint8_t>(codes >> (8 * j));
}

// The low bytes of four words.
__device__ __forceinline__ uint32_t four_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// The largest of numbers that are not negative: their bits are in the same order.
__device__ __forceinline__ float warp_largest(float x) {
  return __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(x)));
}

template <bool kAligned, bool kGrouped>
__global__ void __launch_bounds__(kThreads)
    adamw_8bit_kernel(UpdateArgs given, const UpdateArgs* __restrict__ decided, Groups groups,
                      int64_t count, float* __restrict__ param, const float* __restrict__ grad,
                      uint32_t* __restrict__ m, uint32_t* __restrict__ v,
                      float* __restrict__ m_scale, float* __restrict__ v_scale, int64_t first,
                      bf16* __restrict__ rounded, float* __restrict__ ema) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  const int64_t begin = block * state_code::kBlock;
  if (begin >= count) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const bool whole = kAligned && begin + state_code::kBlock <= count;

  Pack<float, 4> g[2], value[2], momentum[2], variance[2];
  uint32_t m_codes[2], v_codes[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t i = begin + h * kHalf + lane * 4;
    m_codes[h] = m[i / 4];
    v_codes[h] = v[i / 4];
    if (whole) {
      g[h] = load_pack<float, 4>(grad + i);
      value[h] = load_pack<float, 4>(param + i);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const bool inside = i + j < count;
        g[h].v[j] = inside ? grad[i + j] : 0.0f;
        value[h].v[j] = inside ? param[i + j] : 0.0f;
      }
    }
  }
  const float old_m_scale = m_scale[block], old_v_scale = v_scale[block];
  const UpdateArgs a = decided ? *decided : given;
  if (!a.applied) return;

  float largest_m = 0, largest_v = 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    GroupRate rates = a.group;
    if constexpr (kGrouped) {
      const int64_t i = begin + h * kHalf + lane * 4;
      if (i < count) rates = groups.at(i);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float& mj = momentum[h].v[j];
      float& vj = variance[h].v[j];
      mj = state_code::decode_first(byte_of(m_codes[h], j), old_m_scale);
      vj = state_code::decode_second(byte_of(v_codes[h], j), old_v_scale);
      float moments[2] = {mj, vj};
      AdamWElement::update(a, rates, g[h].v[j], moments, value[h].v[j]);
      mj = moments[0];
      vj = moments[1];
      largest_m = fmaxf(largest_m, fabsf(mj));
      largest_v = fmaxf(largest_v, vj);
    }
  }
  const float new_m_scale =
      state_code::scale_of(warp_largest(largest_m), state_code::kFirstLargest);
  const float new_v_scale =
      state_code::scale_of(warp_largest(largest_v), state_code::kSecondLargest);
  const float m_inverse = state_code::inverse_of(new_m_scale);
  const float v_inverse = state_code::inverse_of(new_v_scale);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t i = begin + h * kHalf + lane * 4;
    uint32_t m_place[4], v_place[4];
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      const uint32_t random =
          state_code::random_bits(static_cast<uint32_t>((first + i + j) / 2), a.step);
#pragma unroll
      for (int k = j; k < j + 2; ++k) {
        const uint32_t offset = state_code::rounding_offset(random, static_cast<uint32_t>(k));
        m_place[k] =
            state_code::first_place(__float_as_uint(fabsf(momentum[h].v[k]) * m_inverse), offset);
        v_place[k] = state_code::encode_second(variance[h].v[k], v_inverse, offset);
      }
    }
    // The signs are set in all four at once.
    const uint32_t signs = four_bytes(
        __float_as_uint(momentum[h].v[0]) >> 24, __float_as_uint(momentum[h].v[1]) >> 24,
        __float_as_uint(momentum[h].v[2]) >> 24, __float_as_uint(momentum[h].v[3]) >> 24);
    const uint32_t m_out =
        four_bytes(m_place[0], m_place[1], m_place[2], m_place[3]) | (signs & 0x80808080u);
    const uint32_t v_out = four_bytes(v_place[0], v_place[1], v_place[2], v_place[3]);
    m[i / 4] = m_out;
    v[i / 4] = v_out;
    if (whole) {
      store_pack(param + i, value[h]);
      post_update<4>(a, value[h], rounded, ema, i);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i + j >= count) continue;
        param[i + j] = value[h].v[j];
        if (ema) ema[i + j] = a.new_ema(ema[i + j], value[h].v[j]);
        if (rounded) rounded[i + j] = from_float<bf16>(value[h].v[j]);
      }
    }
  }
  if (lane == 0) {
    m_scale[block] = new_m_scale;
    v_scale[block] = new_v_scale;
  }
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

struct Launch {
  DeviceState& device;
  const UpdateState& s;
  const UpdateArgs& given;
  const UpdateArgs* decided;
  Groups groups;

  float* param() const { return static_cast<float*>(s.param); }
  float* grad() const { return static_cast<float*>(s.grad); }
  bf16* rounded() const { return static_cast<bf16*>(s.post.param_bf16); }
  float* ema() const { return static_cast<float*>(s.post.ema); }
  bool aligned() const {
    return reinterpret_cast<uintptr_t>(rounded()) % 8 == 0 && aligned16(param()) &&
           aligned16(grad()) && aligned16(ema());
  }
  unsigned grid(int64_t elements) const {  // of a block of threads
    return static_cast<unsigned>((s.count + elements - 1) / elements);
  }

  template <class Rule, bool kGrouped>
  void run(const StatePointers& states) const {
    const bool vectors = aligned() && aligned16(states.of[0]) && aligned16(states.of[1]);
    const auto kernel =
        vectors ? update_kernel<Rule, 4, kGrouped> : update_kernel<Rule, 1, kGrouped>;
    kernel<<<grid(int64_t{kThreads} * (vectors ? 4 : 1)), kThreads, 0, device.stream>>>(
        given, decided, groups, s.count, param(), grad(), states, rounded(), ema());
  }
  // With groups if there is a table.
  template <class Rule>
  void run(void* first, void* second) const {
    const StatePointers states{{static_cast<float*>(first), static_cast<float*>(second)}};
    if (groups.group_of)
      run<Rule, true>(states);
    else
      run<Rule, false>(states);
  }

  template <bool kGrouped>
  void run_8bit() const {
    const AdamWRule& rule = s.adamw;
    const auto kernel =
        aligned() ? adamw_8bit_kernel<true, kGrouped> : adamw_8bit_kernel<false, kGrouped>;
    kernel<<<grid(kThreads / 32 * state_code::kBlock), kThreads, 0, device.stream>>>(
        given, decided, groups, s.count, param(), grad(), static_cast<uint32_t*>(rule.m),
        static_cast<uint32_t*>(rule.v), rule.m_scale, rule.v_scale, s.first, rounded(), ema());
  }
};

int32_t launch_update(DeviceState& device, const UpdateState& s, const UpdateArgs& given,
                      const UpdateArgs* decided, const Groups& groups, const char* name) {
  const Launch launch{device, s, given, decided, groups};
  if (s.rule == UpdateRule::sgd) {
    if (s.sgd.velocity)
      launch.run<SgdElement<1>>(s.sgd.velocity, nullptr);
    else
      launch.run<SgdElement<0>>(nullptr, nullptr);
  } else if (s.rule == UpdateRule::muon) {
    launch.run<MuonElement>(s.adamw.m, s.adamw.v);
  } else if (!s.adamw.m_scale) {
    launch.run<AdamWElement>(s.adamw.m, s.adamw.v);
  } else if (groups.group_of) {
    launch.run_8bit<true>();
  } else {
    launch.run_8bit<false>();
  }
  return launched(device, name);
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
  const UpdateState& s = p.state;
  if (s.dtype != DType::f32)
    return unsupported(device, "update: parameters and states are float32 on CUDA");
  if (s.count == 0) return kSuccess;
  const UpdateConstants constants = constants_of(s);
  Groups groups{s.group_of, nullptr, s.factors};
  if (s.group_of) {
    auto* rates =
        static_cast<GroupRate*>(device.scratch(static_cast<size_t>(s.groups) * sizeof(GroupRate)));
    if (!rates) return kOutOfMemory;
    group_rates_kernel<<<1, static_cast<unsigned>(s.groups), 0, device.stream>>>(
        constants, p.learning_rate, p.step, s.factors, rates);
    groups.rates = rates;
  }
  return launch_update(device, s, constants.args(p.learning_rate, p.grad_scale, p.step), nullptr,
                       groups, "update");
}

int32_t clipped_update_cuda(cuda::DeviceState& device, const ClippedUpdateParams& p) {
  using namespace cuda;
  const UpdateState& s = p.state;
  if (s.dtype != DType::f32)
    return unsupported(device, "clipped_update: parameters and states are float32 on CUDA");
  // Of the scratch memory: partial sums, the rates of the groups, the arguments of the update. A
  // call that continues finds the last two where the one before has left them.
  const int64_t blocks = p.partials ? p.partial_count : square_blocks(s.count);
  const size_t partial_bytes = p.partials ? 0 : static_cast<size_t>(blocks) * sizeof(double);
  const size_t rates_bytes = static_cast<size_t>(s.groups) * sizeof(GroupRate);
  auto* scratch =
      static_cast<std::byte*>(device.scratch(partial_bytes + rates_bytes + sizeof(UpdateArgs)));
  if (!scratch) return kOutOfMemory;
  auto* partial = reinterpret_cast<double*>(scratch);
  auto* rates = reinterpret_cast<GroupRate*>(scratch + partial_bytes);
  auto* args = reinterpret_cast<UpdateArgs*>(scratch + partial_bytes + rates_bytes);
  if (!p.partials) launch_squares(device, static_cast<const float*>(s.grad), s.count, partial);
  if (!p.continues)
    decide_update_kernel<<<1, kThreads, 0, device.stream>>>(
        constants_of(s), p.max_norm, p.partials ? p.partials : partial, blocks,
        static_cast<const float*>(p.loss), static_cast<const float*>(p.nll), p.rates, p.record,
        args, s.factors, s.groups, rates);
  if (s.count == 0) return launched(device, "clipped_update");
  return launch_update(device, s, {}, args, {s.group_of, rates, s.factors}, "clipped_update");
}

int32_t apply_direction_cuda(cuda::DeviceState& device, const ApplyDirectionParams& p) {
  using namespace cuda;
  UpdateState s = p.state;
  if (s.dtype != DType::f32)
    return unsupported(device, "apply_direction: parameters are float32 on CUDA");
  if (s.count == 0) return kSuccess;
  auto* args = static_cast<UpdateArgs*>(device.scratch(sizeof(UpdateArgs)));
  if (!args) return kOutOfMemory;
  direction_args_kernel<<<1, 1, 0, device.stream>>>(
      constants_of(s), p.scale, p.record, p.learning_rate, p.step, s.group_of, s.factors, args);
  s.grad = const_cast<void*>(p.direction);  // read only
  const Launch launch{device, s, {}, args, {}};
  launch.run<DirectionElement>(nullptr, nullptr);
  return launched(device, "apply_direction");
}

}  // namespace trafo
