#include <type_traits>

#include "engine/backend/cuda/device/elementwise.cuh"
#include "engine/ops/cast/cast.h"

namespace trafo {
namespace {

using cuda::DeviceState;

struct Same {
  template <int kWidth>
  __device__ void operator()(int64_t, const float (&in)[1][kWidth], float (&out)[kWidth]) const {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) out[j] = in[0][j];
  }
};

template <class From, class To>
int32_t run(DeviceState& device, int64_t count, const void* x, void* y) {
  return cuda::elementwise<8>(device, "cast",
                              cuda::ElementwiseInputs<From, 1>{{static_cast<const From*>(x)}},
                              static_cast<To*>(y), count, false, Same{});
}

// float64 and int32 are data here, not compute types: converted element by element. A conversion to
// int32 goes towards zero and stays in its range; NaN is 0.
template <class To, class From>
__device__ To convert(From value) {
  if constexpr (std::is_same_v<From, cuda::bf16>)
    return convert<To>(__bfloat162float(value));
  else if constexpr (std::is_same_v<To, int32_t> && std::is_same_v<From, double>)
    return __double2int_rz(isnan(value) ? 0.0 : value);
  else if constexpr (std::is_same_v<To, int32_t>)
    return __float2int_rz(value);
  else if constexpr (std::is_same_v<To, cuda::bf16>)
    return __double2bfloat16(static_cast<double>(value));  // one rounding
  else
    return static_cast<To>(value);
}

template <class From, class To>
__global__ void __launch_bounds__(256) convert_all(const From* x, To* y, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (i < count) y[i] = convert<To>(x[i]);
}

template <class From, class To>
int32_t run_scalar(DeviceState& device, int64_t count, const void* x, void* y) {
  if (count == 0) return cuda::kSuccess;
  convert_all<<<static_cast<unsigned>((count - 1) / 256 + 1), 256, 0, device.stream>>>(
      static_cast<const From*>(x), static_cast<To*>(y), count);
  return cuda::launched(device, "cast");
}

int32_t cast(DeviceState& device, DType from, DType to, int64_t count, const void* x, void* y) {
  using cuda::bf16;
  if (from == DType::f32 && to == DType::bf16) return run<float, bf16>(device, count, x, y);
  if (from == DType::bf16 && to == DType::f32) return run<bf16, float>(device, count, x, y);
  if (from == DType::f32 && to == DType::f64) return run_scalar<float, double>(device, count, x, y);
  if (from == DType::f64 && to == DType::f32) return run_scalar<double, float>(device, count, x, y);
  if (from == DType::f64 && to == DType::bf16) return run_scalar<double, bf16>(device, count, x, y);
  if (from == DType::bf16 && to == DType::f64) return run_scalar<bf16, double>(device, count, x, y);
  if (from == DType::i32 && to == DType::f32) return run_scalar<int, float>(device, count, x, y);
  if (from == DType::i32 && to == DType::f64) return run_scalar<int, double>(device, count, x, y);
  if (from == DType::i32 && to == DType::bf16) return run_scalar<int, bf16>(device, count, x, y);
  if (from == DType::f32 && to == DType::i32) return run_scalar<float, int>(device, count, x, y);
  if (from == DType::f64 && to == DType::i32) return run_scalar<double, int>(device, count, x, y);
  if (from == DType::bf16 && to == DType::i32) return run_scalar<bf16, int>(device, count, x, y);
  return cuda::unsupported(device, "cast has no such conversion");
}

}  // namespace

int32_t cast_forward_cuda(DeviceState& device, const CastForwardParams& p) {
  return cast(device, p.from, p.to, p.count, p.x, p.y);
}

int32_t cast_backward_cuda(DeviceState& device, const CastBackwardParams& p) {
  return cast(device, p.from, p.to, p.count, p.dy, p.dx);
}

}  // namespace trafo
