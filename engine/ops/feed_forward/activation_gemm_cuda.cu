// Which kernels a GEMM with an activation runs.
#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "engine/ops/feed_forward/activation_gemm.h"

namespace trafo {

int32_t bias_act_dropout_forward_cuda(cuda::DeviceState&, const BiasActDropoutForwardParams&);
int32_t bias_act_dropout_backward_cuda(cuda::DeviceState&, const BiasActDropoutBackwardParams&);

namespace cuda {

int32_t activation_gemm(DeviceState& device, const GemmParams& p, bool& taken) {
  taken = false;
  return device.compute_major == 9 ? activation_gemm_wgmma(device, p, taken) : kSuccess;
}

int32_t activation_alone(DeviceState& device, const GemmParams& p, const void* product) {
  const auto params = [&]<class Params>(Params q) {
    q.dtype = p.dtype;
    q.activation = p.epilogue == Epilogue::relu || p.epilogue == Epilogue::drelu ? Activation::relu
                                                                                 : Activation::gelu;
    q.dropout = p.dropout;
    q.rows = p.m;
    q.width = p.n;
    q.bias = p.bias;
    return q;
  };
  if (p.epilogue == Epilogue::drelu || p.epilogue == Epilogue::dgelu) {
    auto q = params(BiasActDropoutBackwardParams{});
    q.accumulate_dbias = p.accumulate_column_sums;
    q.x = p.aux;
    q.dy = product;
    q.dx = p.c;
    q.dbias = p.column_sums;
    return bias_act_dropout_backward_cuda(device, q);
  }
  auto q = params(BiasActDropoutForwardParams{});
  q.x = product;
  q.y = p.c;
  return bias_act_dropout_forward_cuda(device, q);
}

}  // namespace cuda
}  // namespace trafo
