#include "engine/backend/cuda/device/elementwise.cuh"
#include "engine/ops/unary/unary.h"

namespace trafo {
namespace {

using cuda::DeviceState;

// The kind is the same for a whole launch, so the switch does not diverge.
struct UnaryForward {
  UnaryKind kind;
  float factor;

  template <int kWidth>
  __device__ void operator()(int64_t, const float (&in)[1][kWidth], float (&out)[kWidth]) const {
    const auto apply = [&](auto f) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) out[j] = f(in[0][j]);
    };
    switch (kind) {
      case UnaryKind::scale:
        return apply([this](float v) { return v * factor; });
      case UnaryKind::shift:
        return apply([this](float v) { return v + factor; });
      case UnaryKind::exp:
        return apply([](float v) { return expf(v); });
      case UnaryKind::log:
        return apply([](float v) { return logf(v); });
      case UnaryKind::sqrt:
        return apply([](float v) { return sqrtf(v); });
      case UnaryKind::tanh:
        return apply([](float v) { return tanhf(v); });
      case UnaryKind::sigmoid:
        return apply([](float v) { return 1.0f / (1.0f + expf(-v)); });
      case UnaryKind::soft_cap:
        return apply([this](float v) { return factor * tanhf(v / factor); });
    }
  }
};

// in[0]: upstream gradient, in[1]: what forward saved (input of log, output of the others).
struct UnaryBackward {
  UnaryKind kind;
  float factor;

  template <int kWidth>
  __device__ void operator()(int64_t, const float (&in)[2][kWidth], float (&out)[kWidth]) const {
    const auto apply = [&](auto f) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) out[j] = f(in[0][j], in[1][j]);
    };
    switch (kind) {
      case UnaryKind::log:
        return apply([](float g, float v) { return g / v; });
      case UnaryKind::sqrt:
        return apply([](float g, float v) { return g * 0.5f / v; });
      case UnaryKind::tanh:
        return apply([](float g, float v) { return g * (1.0f - v * v); });
      case UnaryKind::sigmoid:
        return apply([](float g, float v) { return g * (v * (1.0f - v)); });
      case UnaryKind::soft_cap:
        return apply([this](float g, float v) { return g * (1.0f - v / factor * (v / factor)); });
      default:
        return apply([](float g, float v) { return g * v; });  // exp
    }
  }
};

}  // namespace

int32_t unary_forward_cuda(DeviceState& device, const UnaryForwardParams& p) {
  int32_t result = cuda::kSuccess;
  const bool known = cuda::with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    result = cuda::elementwise<cuda::kPackWidth<T>>(
        device, "unary_forward", cuda::ElementwiseInputs<T, 1>{{static_cast<const T*>(p.x)}},
        static_cast<T*>(p.y), p.count, false, UnaryForward{p.kind, static_cast<float>(p.factor)});
  });
  return known
             ? result
             : cuda::unsupported(device, "elementwise functions on CUDA take float32 or bfloat16");
}

int32_t unary_backward_cuda(DeviceState& device, const UnaryBackwardParams& p) {
  int32_t result = cuda::kSuccess;
  const bool known = cuda::with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* dy = static_cast<const T*>(p.dy);
    T* dx = static_cast<T*>(p.dx);
    if (p.kind == UnaryKind::scale || p.kind == UnaryKind::shift) {  // nothing was saved
      const double factor = p.kind == UnaryKind::scale ? p.factor : 1.0;
      result = cuda::elementwise<cuda::kPackWidth<T>>(
          device, "unary_backward", cuda::ElementwiseInputs<T, 1>{{dy}}, dx, p.count, p.accumulate,
          UnaryForward{UnaryKind::scale, static_cast<float>(factor)});
      return;
    }
    const T* saved = static_cast<const T*>(p.kind == UnaryKind::log ? p.x : p.y);
    result = cuda::elementwise<cuda::kPackWidth<T>>(
        device, "unary_backward", cuda::ElementwiseInputs<T, 2>{{dy, saved}}, dx, p.count,
        p.accumulate, UnaryBackward{p.kind, static_cast<float>(p.factor)});
  });
  return known
             ? result
             : cuda::unsupported(device, "elementwise functions on CUDA take float32 or bfloat16");
}

}  // namespace trafo
