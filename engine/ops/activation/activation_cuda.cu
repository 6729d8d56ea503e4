// CUDA kernels of the activations.
#include "engine/ops/activation/activation.cuh"

namespace trafo {
namespace cuda {
namespace {

template <class T, int V, Activation kind>
struct ForwardBody {
  const T* x;
  T* y;
  static constexpr int kPacks = 4;
  using Loaded = Held<T, V>;
  struct Columns {};
  __device__ __host__ static constexpr bool uses_columns() { return false; }
  __device__ static Columns columns(int64_t) { return {}; }
  static constexpr bool kWords = false;
  __device__ Loaded load(int64_t i) const { return load_once<T, V>(x + i); }
  __device__ void finish(int64_t i, uint32_t, const Loaded& loaded, Columns, const uint4&) const {
    float v[V];
    to_floats<T>(loaded, v);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = activate<T, kind>(v[j]);
    store_floats<T, V>(y + i, v);
  }
};

template <class T, int V, Activation kind>
struct BackwardBody {
  const T* x;
  const T* dy;
  T* dx;
  bool accumulate;
  static constexpr int kPacks = 2;
  struct Loaded {
    Held<T, V> x, dy;
  };
  struct Columns {};
  __device__ __host__ static constexpr bool uses_columns() { return false; }
  __device__ static Columns columns(int64_t) { return {}; }
  static constexpr bool kWords = false;
  __device__ Loaded load(int64_t i) const {
    return {load_once<T, V>(x + i), load_once<T, V>(dy + i)};
  }
  __device__ void finish(int64_t i, uint32_t, const Loaded& loaded, Columns, const uint4&) const {
    float v[V], d[V];
    to_floats<T>(loaded.x, v);
    to_floats<T>(loaded.dy, d);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = activation_gradient<T, kind>(v[j], d[j]);
    put_floats<T, V>(dx + i, v, accumulate);
  }
};

// Whole packs, then the remaining elements; `at` makes a body from an index and a width.
template <int V, class At>
int32_t launch_all(DeviceState& device, int64_t count, bool packed, const At& at,
                   const char* name) {
  const int64_t head = packed ? count / V * V : 0;
  const int32_t result =
      launch_flat<V>(device, head, V, at(std::integral_constant<int, V>{}, 0), name);
  if (result != kSuccess) return result;
  return launch_flat<1>(device, count - head, 1, at(std::integral_constant<int, 1>{}, head), name);
}

template <class Run>
int32_t with_kernel(DeviceState& device, DType dtype, Activation activation, const Run& run) {
  int32_t result = kSuccess;
  const bool typed = with_device_type(dtype, [&](auto zero) {
    const bool known = with_activation(activation, [&](auto kind) { result = run(zero, kind); });
    if (!known) result = unsupported(device, "activation: unknown kind");
  });
  return typed ? result : unsupported(device, "activation: float32 and bfloat16 only");
}

}  // namespace
}  // namespace cuda

int32_t activation_forward_cuda(cuda::DeviceState& device, const ActivationForwardParams& p) {
  using namespace cuda;
  return with_kernel(device, p.dtype, p.activation, [&](auto zero, auto kind) {
    using T = decltype(zero);
    return launch_all<kPackWidth<T>>(
        device, p.count, aligned16(p.x) && aligned16(p.y),
        [&](auto width, int64_t first) {
          return ForwardBody<T, width(), kind()>{static_cast<const T*>(p.x) + first,
                                                 static_cast<T*>(p.y) + first};
        },
        "activation_forward");
  });
}

int32_t activation_backward_cuda(cuda::DeviceState& device, const ActivationBackwardParams& p) {
  using namespace cuda;
  return with_kernel(device, p.dtype, p.activation, [&](auto zero, auto kind) {
    using T = decltype(zero);
    return launch_all<kPackWidth<T>>(
        device, p.count, aligned16(p.x) && aligned16(p.dy) && aligned16(p.dx),
        [&](auto width, int64_t first) {
          return BackwardBody<T, width(), kind()>{static_cast<const T*>(p.x) + first,
                                                  static_cast<const T*>(p.dy) + first,
                                                  static_cast<T*>(p.dx) + first, p.accumulate};
        },
        "activation_backward");
  });
}

}  // namespace trafo
