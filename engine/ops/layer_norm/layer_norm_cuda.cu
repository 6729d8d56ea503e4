// CUDA launchers of layer norm.
#include "engine/ops/layer_norm/add_norm_backward_params.h"
#include "engine/ops/layer_norm/norm_forward.cuh"

namespace trafo {

int32_t bias_dropout_residual_backward_cuda(cuda::DeviceState& device,
                                            const BiasDropoutResidualBackwardParams& p);

int32_t layer_norm_forward_cuda(cuda::DeviceState& device, const LayerNormForwardParams& p) {
  using namespace cuda;
  if (p.rows == 0) return kSuccess;
  int32_t result = kSuccess;
  const bool typed = with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    NormForwardArgs<T> args{};
    args.x = static_cast<const T*>(p.x);
    args.gamma = static_cast<const T*>(p.gamma);
    args.beta = static_cast<const T*>(p.beta);
    args.y = static_cast<T*>(p.y);
    args.mean = static_cast<float*>(p.mean);
    args.rstd = static_cast<float*>(p.rstd);
    args.saved_mean = static_cast<float*>(p.saved_mean);
    args.rows = p.rows;
    args.width = p.width;
    args.epsilon = static_cast<float>(p.epsilon);
    args.largest = p.largest;
    args.streamed = p.rows * p.width * static_cast<int64_t>(sizeof(T)) >= kStreamedBytes;
    result = launch_norm_forward<false>(device, args, "layer_norm_forward");
  });
  return typed ? result : unsupported(device, "layer_norm: float32 and bfloat16 only");
}

int32_t layer_norm_backward_cuda(cuda::DeviceState& device, const LayerNormBackwardParams& p) {
  return bias_dropout_residual_backward_cuda(device, add_norm_backward_params(p));
}

}  // namespace trafo
