// Lion: the sign of a momentum (Chen et al., arXiv 2302.06675). lion_rule.h has the formula.
#include "engine/optim/optimizer.h"

namespace trafo {
namespace {

constexpr const char* kLionOrigin = "lion";

class Lion final : public Optimizer {
 public:
  Lion(Context& context, const UpdateTarget& target, const OptimizerOptions& options)
      : Optimizer(context, kLionOrigin, target, options.weight_decay),
        rule_{options.beta1, options.beta2} {
    check_below_one(options.beta1, kLionOrigin, "beta1");
    check_below_one(options.beta2, kLionOrigin, "beta2");
    add_state("lion_momentum");
  }

  OptimizerKind kind() const override { return OptimizerKind::lion; }

 private:
  void set_rule(UpdateRules& rules) const override { rules.lion = rule_; }

  LionRule rule_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(Context& context, const UpdateTarget& target,
                                     const OptimizerOptions& options, std::span<const MatrixPart>) {
  return std::make_unique<Lion>(context, target, options);
}

}  // namespace trafo
