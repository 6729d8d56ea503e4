#include <cmath>
#include <vector>

#include "capi/src/handles.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/unary/unary.h"
#include "engine/optim/clip.h"
#include "engine/optim/sgd/sgd.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

std::vector<Tensor> leaves(const Call& call, trafo_tensor* const* parameters, size_t count) {
  call.array(parameters, count, "parameters");
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < count; ++i) {
    const Tensor& p = call.tensor(parameters[i], "parameters");
    if (!requires_grad(p) || !p.variable()->leaf)
      call.refuse("parameter ", i, " is not a leaf that wants a gradient");
    for (const Tensor& earlier : tensors)
      if (earlier.variable() == p.variable()) call.refuse("parameter ", i, " is listed twice");
    tensors.push_back(p);
  }
  return tensors;
}

// to = factor * from, of one dtype, both contiguous; they may be one tensor.
void scale_into(Context& context, const char* op, const Tensor& from, double factor,
                const Tensor& to) {
  launch(context, OpKernel::unary_forward, op,
         UnaryForwardParams{from.dtype(), UnaryKind::scale, factor, from.numel(), from.raw(),
                            to.raw()});
}

}  // namespace

trafo_error* trafo_clip_grad_norm(trafo_context* context, trafo_tensor* const* parameters,
                                  size_t count, double max_norm, double* out_norm) {
  return api(__func__, [&](const Call& call) {
    if (out_norm) *out_norm = 0;
    Context& c = call.context(context);
    if (!(max_norm >= 0)) call.refuse_argument("max_norm", " must be at least 0, got ", max_norm);
    std::vector<Tensor> gradients;
    double squares = 0;
    for (const Tensor& p : leaves(call, parameters, count)) {
      const Tensor gradient = grad_of(p);
      if (!gradient.defined()) continue;
      const double norm = clip_global_norm(c, gradient, 0).norm;
      squares += norm * norm;
      gradients.push_back(gradient);
    }
    const double norm = std::sqrt(squares);
    require(std::isfinite(norm), ErrorCode::non_finite, call.function(),
            "the gradient norm is not finite; nothing was changed");
    if (max_norm > 0 && norm > max_norm)
      for (const Tensor& gradient : gradients) {
        scale_into(c, call.function(), gradient, max_norm / norm, gradient);
        gradient.mark_written();
      }
    if (out_norm) *out_norm = norm;
  });
}

trafo_error* trafo_sgd_step(trafo_context* context, trafo_tensor* const* parameters,
                            trafo_tensor* const* velocities, size_t count, double learning_rate,
                            double momentum, double weight_decay) {
  return api(__func__, [&](const Call& call) {
    Context& c = call.context(context);
    if (!(learning_rate >= 0))
      call.refuse_argument("learning_rate", " must be at least 0, got ", learning_rate);
    if (!(momentum >= 0 && momentum < 1))
      call.refuse_argument("momentum", " must be at least 0 and below 1, got ", momentum);
    if (!(weight_decay >= 0))
      call.refuse_argument("weight_decay", " must be at least 0, got ", weight_decay);
    if (momentum > 0 && !velocities) call.refuse_argument("momentum", " needs velocities");
    const std::vector<Tensor> tensors = leaves(call, parameters, count);
    std::vector<Tensor> speeds;
    for (size_t i = 0; i < count; ++i) {  // everything is checked before anything changes
      const Tensor& p = tensors[i];
      if (!p.is_contiguous()) call.refuse("parameter ", i, " is a strided view");
      require(p.dtype() != DType::bf16, ErrorCode::dtype_mismatch, call.function(), "parameter ", i,
              " is bfloat16, which loses small updates: keep parameters in float32");
      if (!velocities) continue;
      const Tensor& v = call.tensor(velocities[i], "velocities");
      require(v.shape() == p.shape() && v.dtype() == p.dtype(), ErrorCode::shape_mismatch,
              call.function(), "velocity ", i, " is ", v.shape().str(), " ", dtype_name(v.dtype()),
              ", its parameter ", p.shape().str(), " ", dtype_name(p.dtype()));
      if (!v.is_contiguous()) call.refuse("velocity ", i, " is a strided view");
      if (requires_grad(v)) call.refuse("velocity ", i, " wants a gradient; it is no parameter");
      speeds.push_back(v);
    }
    for (size_t i = 0; i < count; ++i) {
      const Tensor& p = tensors[i];
      const Tensor gradient = grad_of(p);
      if (!gradient.defined()) continue;
      sgd_step(c, p, gradient, velocities ? speeds[i] : Tensor{},
               {.momentum = momentum, .weight_decay = weight_decay}, learning_rate);
      zero_grad(p);
    }
  });
}
