// Adafactor's update of a parameter, in seven or eight launches. Sums are in double, in a fixed
// order.
#include "engine/optim/generated/rules_cuda.inc"
#include "engine/optim/update_kernel.cuh"

namespace trafo {

int32_t square_partials_cuda(cuda::DeviceState& device, const SquarePartialsParams& p);

namespace cuda {
namespace {

// The numbers of an update that all elements share.
struct FactoredScalars {
  double fresh;          // weight of the newest mean squares
  double learning_rate;  // of the group
  double row_mean;       // of the row moments
  float rate, keep;      // p = keep p - rate U
  int64_t step;
  bool applied;
};
static_assert(sizeof(FactoredScalars) <= 8 * sizeof(double));

// A parameter and its moments on the device.
struct Factored {
  AdafactorRule rule;
  FactoredBlocks blocks;
  int64_t rows, columns;
  const float* gradient;  // [rows, columns]
  float* row_moments;
  float* column_moments;
  double* column_sums;      // [blocks, columns]
  double* square_partials;  // of the parameter
  double* row_squares;      // [rows], of U
  FactoredScalars* scalars;

  __device__ float moment(float old, double mean) const {
    const double fresh = scalars->fresh;
    return static_cast<float>((1 - fresh) * old + fresh * (mean + rule.square_epsilon));
  }
};

__global__ void factored_begin_kernel(Factored f, const UpdateRecord* record, double learning_rate,
                                      int64_t step, const uint8_t* __restrict__ group_of,
                                      const UpdateFactors* __restrict__ factors,
                                      double weight_decay) {
  FactoredScalars s{};
  s.step = record ? record->updates : step;
  s.applied = !record || record->applied;
  s.fresh = pow(static_cast<double>(s.step), f.rule.decay_rate);
  const GroupRates rates = group_rates(record ? record->learning_rate : learning_rate, weight_decay,
                                       group_of ? factors[group_of[0]] : UpdateFactors{});
  s.learning_rate = rates.learning_rate;
  s.keep = static_cast<float>(rates.weight_decay);  // until factored_decide_kernel
  *f.scalars = s;
}

// A block sums a row.
__global__ void __launch_bounds__(kThreads) row_moments_kernel(Factored f) {
  if (!f.scalars->applied) return;
  const float* row = f.gradient + blockIdx.x * f.columns;
  double sum = 0;
  for (int64_t j = threadIdx.x; j < f.columns; j += kThreads) {
    const double value = row[j];
    sum = fma(value, value, sum);
  }
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  float& moment = f.row_moments[blockIdx.x];
  moment = f.moment(moment, sum / static_cast<double>(f.columns));
}

// A thread sums a column of a block of rows.
__global__ void __launch_bounds__(kThreads) column_sums_kernel(Factored f) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= f.columns || !f.scalars->applied) return;
  const int64_t begin = blockIdx.y * f.blocks.rows;
  const int64_t end = min(f.rows, begin + f.blocks.rows);
  double sum = 0;
  for (int64_t row = begin; row < end; ++row) {
    const double value = f.gradient[row * f.columns + column];
    sum = fma(value, value, sum);
  }
  f.column_sums[blockIdx.y * f.columns + column] = sum;
}

__global__ void __launch_bounds__(kThreads) column_moments_kernel(Factored f) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= f.columns || !f.scalars->applied) return;
  double sum = 0;
  for (int64_t block = 0; block < f.blocks.count; ++block)
    sum += f.column_sums[block * f.columns + column];
  float& moment = f.column_moments[column];
  moment = f.moment(moment, sum / static_cast<double>(f.rows));
}

__global__ void __launch_bounds__(kThreads) row_mean_kernel(Factored f) {
  if (!f.scalars->applied) return;
  double sum = 0;
  for (int64_t row = threadIdx.x; row < f.rows; row += kThreads) sum += f.row_moments[row];
  sum = block_sum(sum);
  if (threadIdx.x == 0) f.scalars->row_mean = sum / static_cast<double>(f.rows);
}

// A block sums the squares of U in a row.
__global__ void __launch_bounds__(kThreads) row_squares_kernel(Factored f) {
  if (!f.scalars->applied) return;
  const float* row = f.gradient + blockIdx.x * f.columns;
  double sum = 0;
  for (int64_t j = threadIdx.x; j < f.columns; j += kThreads) {
    const double value = row[j] * rsqrtf(f.column_moments[j]);
    sum = fma(value, value, sum);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0)
    f.row_squares[blockIdx.x] = sum * f.scalars->row_mean / f.row_moments[blockIdx.x];
}

// One block: the rate of the update, with clipping and the scale of the parameter.
__global__ void __launch_bounds__(kThreads) factored_decide_kernel(Factored f, int64_t partials) {
  if (!f.scalars->applied) return;
  const auto root_mean = [&](const double* x, int64_t count) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += x[i];
    sum = block_sum(sum);
    __syncthreads();  // the shared memory of the sum is free again
    return sqrt(sum / static_cast<double>(f.rows * f.columns));
  };
  const double size = root_mean(f.row_squares, f.rows);
  const double scale = root_mean(f.square_partials, partials);
  if (threadIdx.x != 0) return;
  FactoredScalars& s = *f.scalars;
  const double rate =
      s.learning_rate * (f.rule.scale_parameter ? max(f.rule.scale_epsilon, scale) : 1);
  s.keep = static_cast<float>(1 - rate * s.keep);
  s.rate = static_cast<float>(rate / max(1.0, size / f.rule.clip_threshold));
}

constexpr int kPerThread = 4;

// `first`: elements of the parameter before the arrays' first.
__global__ void __launch_bounds__(kThreads)
    factored_apply_kernel(Factored f, int64_t first, int64_t count, const float* __restrict__ grad,
                          float* __restrict__ param, bf16* __restrict__ rounded,
                          float* __restrict__ ema, double ema_alpha) {
  const FactoredScalars& s = *f.scalars;
  if (!s.applied) return;
  const float root = sqrtf(static_cast<float>(s.row_mean));
  const float weight = static_cast<float>(ema_weight(ema_alpha, s.step));
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kThreads * kPerThread;
  const int64_t row = (first + begin) / f.columns;
  const int64_t column = (first + begin) % f.columns;
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int64_t offset = k * kThreads + threadIdx.x;
    const int64_t i = begin + offset;
    if (i >= count) return;
    const int64_t r = row + (column + offset) / f.columns;
    const int64_t c = (column + offset) % f.columns;
    const float u = grad[i] * rsqrtf(f.column_moments[c]) * (root * rsqrtf(f.row_moments[r]));
    const float value = fmaf(-s.rate, u, param[i] * s.keep);
    param[i] = value;
    if (ema) ema[i] = fmaf(weight, value - ema[i], ema[i]);
    if (rounded) rounded[i] = from_float<bf16>(value);
  }
}

Factored factored_of(const FactoredUpdateParams& p) {
  Factored f{};
  f.rule = p.state.rules.adafactor;
  f.blocks = factored_blocks(p.rows, p.columns);
  f.rows = p.rows;
  f.columns = p.columns;
  f.gradient = static_cast<const float*>(p.gradient);
  f.row_moments = static_cast<float*>(p.row_moments);
  f.column_moments = static_cast<float*>(p.column_moments);
  f.column_sums = p.buffer;
  f.square_partials = f.column_sums + f.blocks.count * p.columns;
  f.row_squares =
      f.square_partials + (p.rows * p.columns + kSquaresElements - 1) / kSquaresElements;
  f.scalars = reinterpret_cast<FactoredScalars*>(f.row_squares + p.rows + p.columns);
  return f;
}

}  // namespace
}  // namespace cuda

int32_t factored_update_cuda(cuda::DeviceState& device, const FactoredUpdateParams& p) {
  using namespace cuda;
  const UpdateState& s = p.state;
  if (s.dtype != DType::f32)
    return unsupported(device, "factored_update: parameters are float32 on CUDA");
  if (s.count == 0) return kSuccess;
  const Factored f = factored_of(p);
  const int64_t elements = p.rows * p.columns;
  int64_t partials = 0;
  if (f.rule.scale_parameter) {
    partials = (elements + kSquaresElements - 1) / kSquaresElements;
    const int32_t result =
        square_partials_cuda(device, {s.dtype, elements, p.parameter, f.square_partials});
    if (result != kSuccess) return result;
  }
  const cudaStream_t stream = device.stream;
  const auto rows = static_cast<unsigned>(p.rows);
  const auto columns = static_cast<unsigned>((p.columns + kThreads - 1) / kThreads);
  factored_begin_kernel<<<1, 1, 0, stream>>>(f, p.record, p.learning_rate, p.step, s.group_of,
                                             s.factors, s.weight_decay);
  row_moments_kernel<<<rows, kThreads, 0, stream>>>(f);
  column_sums_kernel<<<dim3(columns, static_cast<unsigned>(f.blocks.count)), kThreads, 0, stream>>>(
      f);
  column_moments_kernel<<<columns, kThreads, 0, stream>>>(f);
  row_mean_kernel<<<1, kThreads, 0, stream>>>(f);
  row_squares_kernel<<<rows, kThreads, 0, stream>>>(f);
  factored_decide_kernel<<<1, kThreads, 0, stream>>>(f, partials);
  constexpr int64_t kOfBlock = int64_t{kThreads} * kPerThread;
  factored_apply_kernel<<<static_cast<unsigned>((s.count + kOfBlock - 1) / kOfBlock), kThreads, 0,
                          stream>>>(
      f, p.first, s.count, static_cast<const float*>(s.grad), static_cast<float*>(s.param),
      static_cast<bf16*>(s.post.param_bf16), static_cast<float*>(s.post.ema), s.post.ema_alpha);
  return launched(device, "factored_update");
}

}  // namespace trafo
