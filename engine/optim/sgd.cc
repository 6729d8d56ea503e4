#include "engine/optim/sgd.h"

#include "engine/core/argument_error.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"

namespace trafo {
namespace {

constexpr const char* kSgdOrigin = "sgd";

}  // namespace

void check_momentum(double momentum, const char* origin) {
  require_argument(momentum >= 0 && momentum < 1, origin, "momentum",
                   " must be at least 0 and below 1, got ", momentum);
}

Sgd::Sgd(Context& context, const UpdateTarget& target, const SgdOptions& options)
    : Optimizer(context, kSgdOrigin, target, options.weight_decay), options_(options) {
  check_momentum(options.momentum, kSgdOrigin);
  if (options.momentum > 0) velocity_ = add_state("momentum_buffer");
}

void Sgd::set_rule(UpdateState& state, size_t skipped) const {
  state.rule = UpdateRule::sgd;
  state.sgd = {options_.momentum, options_.nesterov, at(velocity_, skipped * dtype_size(dtype()))};
}

void sgd_step(Context& context, const Tensor& parameter, const Tensor& gradient,
              const Tensor& velocity, const SgdOptions& options, double learning_rate) {
  UpdateState state{};
  state.dtype = parameter.dtype();
  state.count = parameter.numel();
  state.param = parameter.raw();
  state.grad = gradient.raw();
  state.weight_decay = options.weight_decay;
  state.rule = UpdateRule::sgd;
  state.sgd = {options.momentum, options.nesterov, raw_or_null(velocity)};
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
