// Stochastic gradient descent with momentum, as torch.optim.SGD with dampening 0.
#pragma once

#include "engine/optim/optimizer.h"

namespace trafo {

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;    // without momentum it changes nothing
  double weight_decay = 0;  // added to the gradient, times the parameter
};

class Sgd final : public Optimizer {
 public:
  Sgd(Context& context, const UpdateTarget& target, const SgdOptions& options = {});

  OptimizerKind kind() const override { return OptimizerKind::sgd; }
  const Tensor& velocity() const { return velocity_; }  // undefined without momentum

 private:
  void set_rule(UpdateRules& rules) const override;

  SgdOptions options_;
  Tensor velocity_;
};

// One update of a parameter whose state the caller keeps. All are contiguous and of one shape and
// dtype; `velocity` is undefined without momentum. Marks parameter and velocity as written.
void sgd_step(Context& context, const Tensor& parameter, const Tensor& gradient,
              const Tensor& velocity, const SgdOptions& options, double learning_rate);

}  // namespace trafo
