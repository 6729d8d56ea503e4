// The norm of rows whose statistics are known: what forward wrote, bit for bit, as it takes the
// same steps from the same numbers.
#include "engine/backend/cuda/device/rows.cuh"
#include "engine/ops/layer_norm/layer_norm.h"

namespace trafo {
namespace cuda {
namespace {

template <class T, int V>
struct ApplyBody {
  const T* x;
  const T* gamma;
  const T* beta;
  const float2* saved_mean;
  const float* rstd;
  T* y;
  Divider row_packs;
  bool few;  // packs: their numbers fit the divider
  uint32_t* largest;
  using Written = T;
  static constexpr int kPacks = 2;
  static constexpr bool kWords = false;
  struct Loaded {
    Held<T, V> x;
    float2 saved_mean;
    float rstd;
  };
  struct Columns {
    Held<T, V> gamma, beta;
  };
  __device__ __host__ bool uses_columns() const { return true; }
  __device__ Columns columns(int64_t column) const {
    return {load_held<T, V>(gamma + column), load_held<T, V>(beta + column)};
  }
  __device__ Loaded load(int64_t i) const {
    const int64_t pack = i / V;
    const int64_t row =
        few ? row_packs.quotient(static_cast<uint32_t>(pack)) : pack / row_packs.divisor;
    return {load_once<T, V>(x + i), saved_mean[row], rstd[row]};
  }
  __device__ void finish(int64_t i, uint32_t, const Loaded& loaded, const Columns& of_columns,
                         const uint4&, Largest<T>& seen) const {
    float v[V], g[V], b[V];
    to_floats<T>(loaded.x, v);
    to_floats<T>(of_columns.gamma, g);
    to_floats<T>(of_columns.beta, b);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float centred = (v[j] - loaded.saved_mean.x) - loaded.saved_mean.y;
      v[j] = fmaf(centred * loaded.rstd, g[j], b[j]);
    }
    const Held<T, V> written = from_floats<T, V>(v);
    store_held<T, V>(y + i, written);
    if (largest) seen.see(written);
  }
};

template <class T, int V>
int32_t apply(DeviceState& device, const NormApplyParams& p) {
  ApplyBody<T, V> body{};
  body.x = static_cast<const T*>(p.x);
  body.gamma = static_cast<const T*>(p.gamma);
  body.beta = static_cast<const T*>(p.beta);
  body.saved_mean = static_cast<const float2*>(p.saved_mean);
  body.rstd = static_cast<const float*>(p.rstd);
  body.y = static_cast<T*>(p.y);
  if (p.width / V >= (int64_t{1} << 30))
    return unsupported(device, "norm_apply: rows of 2^30 elements or more");
  body.row_packs = Divider::by(static_cast<uint32_t>(p.width / V));
  body.few = p.rows * (p.width / V) < (int64_t{1} << 31);
  body.largest = p.largest;
  return launch_flat<V>(device, p.rows * p.width, p.width, body, "norm_apply");
}

}  // namespace
}  // namespace cuda

int32_t norm_apply_cuda(cuda::DeviceState& device, const NormApplyParams& p) {
  using namespace cuda;
  if (p.rows == 0) return kSuccess;
  int32_t result = kSuccess;
  const bool typed = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int V = kPackWidth<T>;
    const bool packed = p.width % V == 0 && aligned16(p.x) && aligned16(p.gamma) &&
                        aligned16(p.beta) && aligned16(p.y);
    result = packed ? apply<T, V>(device, p) : apply<T, 1>(device, p);
  });
  return typed ? result : unsupported(device, "norm_apply: float32 and bfloat16 only");
}

}  // namespace trafo
