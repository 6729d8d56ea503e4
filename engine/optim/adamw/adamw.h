// AdamW (Loshchilov & Hutter, arXiv 1711.05101).
#pragma once

#include "engine/optim/optimizer.h"

namespace trafo {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-9;
  // Decoupled: an update multiplies parameters with 1 - learning_rate * weight_decay.
  double weight_decay = 0;
  OptimizerStates states = OptimizerStates::float32;  // eight_bit: of float32 parameters only
};

AdamWOptions adamw_options(const OptimizerOptions& options);
AdamWRule adamw_rule(const AdamWOptions& options);

// INVALID_ARGUMENT, naming the option, if one is outside its range.
void check_adamw_options(const AdamWOptions& options, const char* origin);

class AdamW final : public Optimizer {
 public:
  AdamW(Context& context, const UpdateTarget& target, const AdamWOptions& options = {});

  OptimizerKind kind() const override { return OptimizerKind::adamw; }

  // The states. 8-bit moments have scales, others have none.
  const Tensor& first_moment() const { return m_; }
  const Tensor& second_moment() const { return v_; }
  const Tensor& first_scale() const { return m_scale_; }
  const Tensor& second_scale() const { return v_scale_; }

 private:
  void set_rule(UpdateRules& rules) const override;

  AdamWOptions options_;
  Tensor m_, v_, m_scale_, v_scale_;
};

}  // namespace trafo
