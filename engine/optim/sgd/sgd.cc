#include "engine/optim/sgd/sgd.h"

#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"

namespace trafo {
namespace {

constexpr const char* kSgdOrigin = "sgd";

}  // namespace

Sgd::Sgd(Context& context, const UpdateTarget& target, const SgdOptions& options)
    : Optimizer(context, kSgdOrigin, target, options.weight_decay), options_(options) {
  check_below_one(options.momentum, kSgdOrigin, "momentum");
  if (options.momentum > 0) velocity_ = add_state("momentum_buffer");
}

void Sgd::set_rule(UpdateRules& rules) const {
  rules.sgd = {options_.momentum, options_.nesterov};
}

void sgd_step(Context& context, const Tensor& parameter, const Tensor& gradient,
              const Tensor& velocity, const SgdOptions& options, double learning_rate) {
  UpdateState state{};
  state.dtype = parameter.dtype();
  state.count = parameter.numel();
  state.param = parameter.raw();
  state.grad = gradient.raw();
  state.weight_decay = options.weight_decay;
  state.states[0] = raw_or_null(velocity);
  state.kind = OptimizerKind::sgd;
  state.rules.sgd = {options.momentum, options.nesterov};
  launch(context, OpKernel::update, kSgdOrigin, UpdateParams{state, learning_rate, 1, 1});
  parameter.mark_written();
  if (velocity.defined()) velocity.mark_written();
}

std::unique_ptr<Optimizer> make_sgd(Context& context, const UpdateTarget& target,
                                    const OptimizerOptions& options, std::span<const MatrixPart>) {
  return std::make_unique<Sgd>(
      context, target, SgdOptions{options.momentum, options.nesterov, options.weight_decay});
}

}  // namespace trafo
