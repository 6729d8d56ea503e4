// CUDA kernels of bias + activation + dropout.
#include "engine/backend/cuda/device/dropout.cuh"
#include "engine/ops/activation/activation.cuh"
#include "engine/ops/bias_act_dropout/bias_act_dropout.h"

namespace trafo {
namespace cuda {
namespace {

template <class T, int V, Activation kind>
struct ForwardBody {
  const T* x;
  const T* bias;
  T* y;
  bool dropping;
  DropoutArgs dropout;
  uint32_t* largest;
  using Written = T;
  static constexpr int kPacks = 4;
  using Loaded = Held<T, V>;
  // The bias and the mask come at the end: four packs of them would cost too many registers.
  struct Columns {};
  __device__ __host__ bool uses_columns() const { return bias != nullptr; }
  __device__ Columns columns(int64_t) const { return {}; }
  static constexpr bool kWords = false;
  __device__ Loaded load(int64_t i) const { return load_once<T, V>(x + i); }
  __device__ void finish(int64_t i, uint32_t column, const Loaded& loaded, Columns, const uint4&,
                         Largest<T>& seen) const {
    float v[V];
    to_floats<T>(loaded, v);
    if (bias) {
      float b[V];
      load_floats<T, V>(bias + column, b);
#pragma unroll
      for (int j = 0; j < V; ++j) v[j] += b[j];
    }
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = activate<T, kind>(v[j]);
    if (dropping) {
      float factor[V];
      dropout_factors<V>(dropout, i, factor);
#pragma unroll
      for (int j = 0; j < V; ++j) v[j] *= factor[j];
    }
    const Held<T, V> written = from_floats<T, V>(v);
    store_held<T, V>(y + i, written);
    if (largest) seen.see(written);
  }
};

template <class T, int V, Activation kind>
struct BackwardBody {
  const T* x;
  const T* bias;
  const T* dy;
  T* dx;  // or null
  int64_t width;
  bool accumulate_dx, dropping;
  DropoutArgs dropout;
  uint32_t* largest;  // only without accumulate_dx
  using Written = T;
  using Columns = Held<T, V>;  // of the bias
  __device__ Columns columns(int64_t column) const {
    return bias ? load_held<T, V>(bias + column) : Columns{};
  }
  static constexpr int kTensors = 2;
  __device__ const T* source(int tensor) const { return tensor == 0 ? x : dy; }
  __device__ void finish(int64_t row, int64_t column, const Columns& columns,
                         const Held<T, V> (&packs)[kTensors], float (&sums)[1][V],
                         Largest<T>& seen) const {
    const int64_t i = row * width + column;
    float v[V], dv[V], bias_of[V];
    to_floats<T>(packs[0], v);
    to_floats<T>(packs[1], dv);
    to_floats<T>(columns, bias_of);
    if (dropping) {
      float factor[V];
      dropout_factors<V>(dropout, i, factor);
#pragma unroll
      for (int j = 0; j < V; ++j) dv[j] *= factor[j];
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
      v[j] = activation_gradient<T, kind>(v[j] + bias_of[j], dv[j]);
      sums[0][j] += v[j];
    }
    if (!dx) return;
    put_floats<T, V>(dx + i, v, accumulate_dx);
    if (largest) seen.see(from_floats<T, V>(v));
  }
};

template <class Run>
int32_t with_kernel(DeviceState& device, DType dtype, Activation activation, bool packed_if,
                    int64_t width, const Run& run) {
  int32_t result = kSuccess;
  const bool typed = with_device_type(dtype, [&](auto zero) {
    constexpr int V = kPackWidth<decltype(zero)>;
    const bool known = with_activation(activation, [&](auto kind) {
      if (packed_if && width % V == 0)
        result = run(zero, kind, std::integral_constant<int, V>{});
      else
        result = run(zero, kind, std::integral_constant<int, 1>{});
    });
    if (!known) result = unsupported(device, "bias_act_dropout: unknown activation");
  });
  return typed ? result : unsupported(device, "bias_act_dropout: float32 and bfloat16 only");
}

}  // namespace
}  // namespace cuda

int32_t bias_act_dropout_forward_cuda(cuda::DeviceState& device,
                                      const BiasActDropoutForwardParams& p) {
  using namespace cuda;
  const bool aligned = aligned16(p.x) && aligned16(p.bias) && aligned16(p.y);
  return with_kernel(
      device, p.dtype, p.activation, aligned, p.width, [&](auto zero, auto kind, auto pack) {
        using T = decltype(zero);
        constexpr int V = pack();
        const ForwardBody<T, V, kind()> body{
            static_cast<const T*>(p.x), static_cast<const T*>(p.bias),      static_cast<T*>(p.y),
            p.dropout.active(),         DropoutArgs::of(device, p.dropout), p.largest};
        return launch_flat<V>(device, p.rows * p.width, p.width, body, "bias_act_dropout_forward");
      });
}

int32_t bias_act_dropout_backward_cuda(cuda::DeviceState& device,
                                       const BiasActDropoutBackwardParams& p) {
  using namespace cuda;
  if (p.rows == 0) return clear_gradient(device, p.dbias, p.accumulate_dbias, p.width);
  const bool aligned = aligned16(p.x) && aligned16(p.bias) && aligned16(p.dy) && aligned16(p.dx);
  return with_kernel(
      device, p.dtype, p.activation, aligned, p.width, [&](auto zero, auto kind, auto pack) {
        using T = decltype(zero);
        constexpr int V = pack();
        const BackwardBody<T, V, kind()> body{static_cast<const T*>(p.x),
                                              static_cast<const T*>(p.bias),
                                              static_cast<const T*>(p.dy),
                                              static_cast<T*>(p.dx),
                                              p.width,
                                              p.accumulate_dx,
                                              p.dropout.active(),
                                              DropoutArgs::of(device, p.dropout),
                                              p.largest};
        ColumnSums sums;
        sums.out[0] = static_cast<float*>(p.dbias);
        sums.accumulate[0] = p.accumulate_dbias;
        const TilePlan plan(device, p.rows, p.width / V, kTileBlocks<1>);
        float* partials = nullptr;
        if (p.dbias) {
          partials = static_cast<float*>(
              device.scratch(static_cast<size_t>(plan.chunks * p.width) * sizeof(float)));
          if (!partials) return kOutOfMemory;
        }
        return launch_tiles<T, V, 1>(device, p.rows, p.width, plan, body, sums, partials,
                                     "bias_act_dropout_backward");
      });
}

}  // namespace trafo
