#include <vector>

#include "capi/src/handles.h"
#include "engine/ops/op_kernel.h"
#include "engine/optim/adamw.h"
#include "engine/optim/clip.h"
#include "engine/optim/optimizer.h"

using namespace trafo;

// The parameters stay in the caller's memory. Their gradients are bound to one flat workspace, so
// that their norm is one reduction.
struct trafo::capi::AdamwObject {
  std::shared_ptr<Context> context;
  std::vector<Tensor> parameters;  // views that share the variables of the caller's tensors
  std::vector<AdamW> optimizers;   // one for each parameter and its part of the gradients
  Tensor gradients;
  double clip_norm = 0;
};

using namespace trafo::capi;

static trafo_adamw_options adamw_defaults() {
  trafo_adamw_options options{};
  options.struct_size = sizeof options;
  options.beta1 = 0.9;
  options.beta2 = 0.98;
  options.epsilon = 1e-9;
  return options;
}

trafo_error* trafo_adamw_options_init(trafo_adamw_options* options, size_t struct_size) {
  return api(__func__,
             [&](const Call& call) { init_options(call, options, struct_size, adamw_defaults()); });
}

trafo_error* trafo_adamw_new(trafo_context* context, trafo_tensor* const* parameters, size_t count,
                             const trafo_adamw_options* options, trafo_adamw** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    const trafo_adamw_options o = read_options(call, options, adamw_defaults());
    if (!(o.clip_norm >= 0)) call.refuse("clip_norm must be at least 0, got ", o.clip_norm);
    call.array(parameters, count, "parameters");
    if (count == 0) call.refuse("there are no parameters");

    AdamwObject result{call.owner(), {}, {}, {}, o.clip_norm};
    int64_t total = 0;
    for (size_t i = 0; i < count; ++i) {
      const Tensor& p = call.tensor(parameters[i], "parameters");
      if (!requires_grad(p) || !p.variable()->leaf)
        call.refuse("parameter ", i, " is not a leaf that wants a gradient");
      if (!p.is_contiguous()) call.refuse("parameter ", i, " is a strided view");
      if (p.dtype() != call.tensor(parameters[0], "parameters").dtype())
        call.refuse("parameter ", i, " has another dtype than parameter 0");
      for (const Tensor& earlier : result.parameters)
        if (earlier.variable() == p.variable()) call.refuse("parameter ", i, " is listed twice");
      total = checked_add(total, p.numel(), call.function());
      // Keeps its gradient if the caller turns that of his handle off.
      result.parameters.push_back(p.detach());
      result.parameters.back().set_variable(p.variable());
    }
    result.gradients = c.zeros({total}, result.parameters[0].dtype());
    const AdamWOptions settings{o.beta1, o.beta2, o.epsilon, o.weight_decay};
    int64_t offset = 0;
    for (const Tensor& p : result.parameters) {
      const Tensor grad =
          result.gradients.as_strided(p.shape(), contiguous_strides(p.shape()), offset);
      result.optimizers.emplace_back(c, p.detach(), grad, settings);
      offset += p.numel();
    }
    // No check can fail after this point: gradients are bound to the workspace from here on.
    offset = 0;
    for (const Tensor& p : result.parameters) {
      bind_grad(p, result.gradients.as_strided(p.shape(), contiguous_strides(p.shape()), offset));
      offset += p.numel();
    }
    *out = new_handle<trafo_adamw>(std::move(result));
  });
}

trafo_error* trafo_adamw_step(trafo_adamw* optimizer, double learning_rate, double* out_grad_norm) {
  return api(__func__, [&](const Call& call) {
    if (out_grad_norm) *out_grad_norm = 0;
    AdamwObject& o = call.handle(optimizer, "optimizer");
    if (!(learning_rate >= 0)) call.refuse("learning_rate must be at least 0, got ", learning_rate);
    call.use(o.context);
    Context& c = *o.context;
    for (size_t i = 0; i < o.parameters.size(); ++i)
      if (o.parameters[i].variable()->grad.storage() != o.gradients.storage())
        call.refuse("parameter ", i, " has been given to another optimizer since");
    // A parameter that no backward has reached adds nothing to the norm and is not updated.
    std::vector<bool> reached;
    for (size_t i = 0; i < o.parameters.size(); ++i) {
      const Tensor& p = o.parameters[i];
      reached.push_back(grad_of(p).defined());
      const Tensor& buffer = p.variable()->grad;
      if (!reached.back()) c.backend().fill_zero(buffer.raw(), buffer.bytes());
    }
    const GradientNorm norm = clip_global_norm(c, o.gradients, o.clip_norm);
    require(norm.finite, ErrorCode::non_finite, call.function(),
            "the gradient norm is not finite; nothing was updated");
    for (size_t i = 0; i < o.parameters.size(); ++i) {
      if (reached[i]) o.optimizers[i].step(learning_rate, norm.scale);
      zero_grad(o.parameters[i]);
    }
    if (out_grad_norm) *out_grad_norm = norm.norm;
  });
}

void trafo_adamw_free(trafo_adamw* optimizer) {
  free_handle(optimizer);
}
