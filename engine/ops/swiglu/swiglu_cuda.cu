// CUDA kernels of the gates of SwiGLU and GEGLU.
#include "engine/ops/swiglu/swiglu.h"

#include "engine/ops/activation/activation.cuh"

namespace trafo {
namespace cuda {
namespace {

// The row of an element of [rows, width], which is as many rows further on in [rows, 2 width].
template <int V>
struct RowOf {
  Divider row_packs;
  bool few;  // packs: their numbers fit the divider
  static RowOf by(int64_t rows, int64_t width) {
    return {Divider::by(static_cast<uint32_t>(width / V)), rows * (width / V) < (int64_t{1} << 31)};
  }
  __device__ int64_t operator()(int64_t element) const {
    const int64_t pack = element / V;
    return few ? row_packs.quotient(static_cast<uint32_t>(pack)) : pack / row_packs.divisor;
  }
};

template <class T, int V, Activation kind>
struct ForwardBody {
  const T* x;
  T* y;
  int64_t width;
  RowOf<V> row_of;
  uint32_t* largest;
  using Written = T;
  static constexpr int kPacks = 2;
  struct Loaded {
    Held<T, V> gate, up;
  };
  struct Columns {};
  __device__ __host__ static constexpr bool uses_columns() { return false; }
  __device__ static Columns columns(int64_t) { return {}; }
  static constexpr bool kWords = false;
  __device__ Loaded load(int64_t i) const {
    const T* gate = x + i + row_of(i) * width;
    return {load_once<T, V>(gate), load_once<T, V>(gate + width)};
  }
  __device__ void finish(int64_t i, uint32_t, const Loaded& loaded, Columns, const uint4&,
                         Largest<T>& seen) const {
    float a[V], b[V];
    to_floats<T>(loaded.gate, a);
    to_floats<T>(loaded.up, b);
#pragma unroll
    for (int j = 0; j < V; ++j) a[j] = activate<T, kind>(a[j]) * b[j];
    const Held<T, V> written = from_floats<T, V>(a);
    store_held<T, V>(y + i, written);
    if (largest) seen.see(written);
  }
};

template <class T, int V, Activation kind>
struct BackwardBody {
  const T* x;
  const T* dy;
  T* dx;
  int64_t width;
  bool accumulate;
  RowOf<V> row_of;
  uint32_t* largest;  // only without `accumulate`
  using Written = T;
  static constexpr int kPacks = 2;
  struct Loaded {
    Held<T, V> gate, up, dy;
  };
  struct Columns {};
  __device__ __host__ static constexpr bool uses_columns() { return false; }
  __device__ static Columns columns(int64_t) { return {}; }
  static constexpr bool kWords = false;
  __device__ Loaded load(int64_t i) const {
    const T* gate = x + i + row_of(i) * width;
    return {load_once<T, V>(gate), load_once<T, V>(gate + width), load_once<T, V>(dy + i)};
  }
  __device__ void finish(int64_t i, uint32_t, const Loaded& loaded, Columns, const uint4&,
                         Largest<T>& seen) const {
    float a[V], b[V], g[V];
    to_floats<T>(loaded.gate, a);
    to_floats<T>(loaded.up, b);
    to_floats<T>(loaded.dy, g);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      if constexpr (kind == Activation::silu) {
        const SigmoidPair s = sigmoid_pair<T>(a[j]);
        const float slope = fmaf(a[j] * s.complement, s.value, s.value);
        b[j] *= g[j] * slope;
        g[j] *= a[j] * s.value;
      } else {
        b[j] *= activation_gradient<T, kind>(a[j], g[j]);
        g[j] *= activate<T, kind>(a[j]);
      }
    }
    T* to = dx + i + row_of(i) * width;
    put_floats<T, V>(to, b, accumulate);
    put_floats<T, V>(to + width, g, accumulate);
    if (largest) {
      seen.see(from_floats<T, V>(b));
      seen.see(from_floats<T, V>(g));
    }
  }
};

template <class Run>
int32_t with_kernel(DeviceState& device, DType dtype, Activation activation, bool aligned,
                    int64_t width, const Run& run_kind) {
  int32_t result = kSuccess;
  const auto run = [&](auto zero, auto pack) {
    using std::integral_constant;
    if (activation == Activation::silu)
      return run_kind(zero, pack, integral_constant<Activation, Activation::silu>{});
    if (activation == Activation::gelu)
      return run_kind(zero, pack, integral_constant<Activation, Activation::gelu>{});
    return run_kind(zero, pack, integral_constant<Activation, Activation::gelu_erf>{});
  };
  const bool typed = with_device_type(dtype, [&](auto zero) {
    constexpr int V = kPackWidth<decltype(zero)>;
    const bool packed = aligned && width % V == 0;
    if (width / (packed ? V : 1) >= (int64_t{1} << 30))
      result = unsupported(device, "swiglu: rows of 2^30 elements or more");
    else if (packed)
      result = run(zero, std::integral_constant<int, V>{});
    else
      result = run(zero, std::integral_constant<int, 1>{});
  });
  return typed ? result : unsupported(device, "swiglu: float32 and bfloat16 only");
}

}  // namespace
}  // namespace cuda

int32_t swiglu_forward_cuda(cuda::DeviceState& device, const SwigluForwardParams& p) {
  using namespace cuda;
  if (p.rows == 0) return kSuccess;
  return with_kernel(
      device, p.dtype, p.activation, aligned16(p.x) && aligned16(p.y), p.width,
      [&](auto zero, auto pack, auto kind) {
        using T = decltype(zero);
        constexpr int V = pack();
        const ForwardBody<T, V, kind()> body{static_cast<const T*>(p.x), static_cast<T*>(p.y),
                                             p.width, RowOf<V>::by(p.rows, p.width), p.largest};
        return launch_flat<V>(device, p.rows * p.width, p.width, body, "swiglu_forward");
      });
}

int32_t swiglu_backward_cuda(cuda::DeviceState& device, const SwigluBackwardParams& p) {
  using namespace cuda;
  if (p.rows == 0) return kSuccess;
  return with_kernel(
      device, p.dtype, p.activation, aligned16(p.x) && aligned16(p.dy) && aligned16(p.dx), p.width,
      [&](auto zero, auto pack, auto kind) {
        using T = decltype(zero);
        constexpr int V = pack();
        const BackwardBody<T, V, kind()> body{static_cast<const T*>(p.x),
                                              static_cast<const T*>(p.dy),
                                              static_cast<T*>(p.dx),
                                              p.width,
                                              p.accumulate,
                                              RowOf<V>::by(p.rows, p.width),
                                              p.largest};
        return launch_flat<V>(device, p.rows * p.width, p.width, body, "swiglu_backward");
      });
}

}  // namespace trafo
