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

int32_t cast(DeviceState& device, DType from, DType to, int64_t count, const void* x, void* y) {
  if (from == DType::f32 && to == DType::bf16) return run<float, cuda::bf16>(device, count, x, y);
  if (from == DType::bf16 && to == DType::f32) return run<cuda::bf16, float>(device, count, x, y);
  return cuda::unsupported(device, "cast on CUDA converts between float32 and bfloat16");
}

}  // namespace

int32_t cast_forward_cuda(DeviceState& device, const CastForwardParams& p) {
  return cast(device, p.from, p.to, p.count, p.x, p.y);
}

int32_t cast_backward_cuda(DeviceState& device, const CastBackwardParams& p) {
  return cast(device, p.from, p.to, p.count, p.dy, p.dx);
}

}  // namespace trafo
