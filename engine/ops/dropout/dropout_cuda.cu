#include "engine/backend/cuda/device/elementwise.cuh"
#include "engine/backend/cuda/device/philox.cuh"
#include "engine/ops/dropout/dropout.h"

namespace trafo {
namespace {

using cuda::DeviceState;

// x factor, and exactly 0 where the factor is, whatever x is.
struct ApplyDropout {
  cuda::DropoutArgs dropout;

  template <int kWidth>
  __device__ void operator()(int64_t first, const float (&in)[1][kWidth],
                             float (&out)[kWidth]) const {
    static_assert(kWidth == 1 || kWidth == 8);  // one Philox block serves eight aligned elements
    const auto element = static_cast<uint64_t>(first);
    const uint4 block = cuda::philox_block(dropout, element / 8);
    const int half = kWidth == 8 ? 0 : static_cast<int>(element % 8);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float factor = cuda::dropout_factor(dropout, block, half + j);
      out[j] = factor != 0.0f ? in[0][j] * factor : 0.0f;
    }
  }
};

int32_t apply(DeviceState& device, const char* name, DType dtype, const Dropout& dropout,
              int64_t count, const void* x, void* y, bool accumulate) {
  int32_t result = cuda::kSuccess;
  const bool known = cuda::with_device_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    result = cuda::elementwise<8>(
        device, name, cuda::ElementwiseInputs<T, 1>{{static_cast<const T*>(x)}}, static_cast<T*>(y),
        count, accumulate, ApplyDropout{cuda::DropoutArgs::of(device, dropout)});
  });
  return known ? result : cuda::unsupported(device, "dropout on CUDA takes float32 or bfloat16");
}

}  // namespace

int32_t dropout_forward_cuda(DeviceState& device, const DropoutForwardParams& p) {
  return apply(device, "dropout_forward", p.dtype, p.dropout, p.count, p.x, p.y, false);
}

int32_t dropout_backward_cuda(DeviceState& device, const DropoutBackwardParams& p) {
  return apply(device, "dropout_backward", p.dtype, p.dropout, p.count, p.dy, p.dx, p.accumulate);
}

}  // namespace trafo
