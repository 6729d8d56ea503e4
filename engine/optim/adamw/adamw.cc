#include "engine/optim/adamw/adamw.h"

#include <cmath>
#include <tuple>

#include "engine/core/argument_error.h"
#include "engine/ops/checks.h"
#include "engine/quant/state_code.h"

namespace trafo {
namespace {

constexpr const char* kAdamwOrigin = "adamw";
constexpr const char* kFirstMoment = "exp_avg";
constexpr const char* kSecondMoment = "exp_avg_sq";

}  // namespace

void check_adamw_options(const AdamWOptions& options, const char* origin) {
  check_below_one(options.beta1, origin, "beta1");
  check_below_one(options.beta2, origin, "beta2");
  require_argument(options.epsilon > 0 && std::isfinite(options.epsilon), origin, "epsilon",
                   " must be positive, got ", options.epsilon);
  require_argument(
      options.states == OptimizerStates::float32 || options.states == OptimizerStates::eight_bit,
      origin, "optimizer_states", " are unknown: ", static_cast<int32_t>(options.states));
}

AdamW::AdamW(Context& context, const UpdateTarget& target, const AdamWOptions& options)
    : Optimizer(context, kAdamwOrigin, target, options.weight_decay), options_(options) {
  check_adamw_options(options, kAdamwOrigin);
  if (options.states == OptimizerStates::float32) {
    m_ = add_state(kFirstMoment);
    v_ = add_state(kSecondMoment);
    return;
  }
  require(dtype() == DType::f32, ErrorCode::unsupported, kAdamwOrigin,
          "8-bit states belong to float32 parameters or masters, these are ", dtype_name(dtype()));
  const int64_t blocks = state_code::blocks(shard().count());
  constexpr int64_t kWords = state_code::kBlock / static_cast<int64_t>(sizeof(int32_t));
  m_ = context.zeros({blocks, kWords}, DType::i32);
  v_ = context.zeros({blocks, kWords}, DType::i32);
  m_scale_ = context.zeros({blocks}, DType::f32);
  v_scale_ = context.zeros({blocks}, DType::f32);
  for (const auto& [name, codes, scale] :
       {std::tuple{kFirstMoment, m_, m_scale_}, std::tuple{kSecondMoment, v_, v_scale_}}) {
    add_state(StateTensor{name, codes, StateLayout::codes});
    add_state(StateTensor{std::string(name) + "_scale", scale, StateLayout::scales});
  }
}

void AdamW::set_rule(UpdateRules& rules) const {
  rules.adamw = adamw_rule(options_);
}

AdamWRule adamw_rule(const AdamWOptions& o) {
  return {o.beta1, o.beta2, o.epsilon, o.states == OptimizerStates::eight_bit};
}

AdamWOptions adamw_options(const OptimizerOptions& o) {
  return {o.beta1, o.beta2, o.epsilon, o.weight_decay, o.optimizer_states};
}

std::unique_ptr<Optimizer> make_adamw(Context& context, const UpdateTarget& target,
                                      const OptimizerOptions& options,
                                      std::span<const MatrixPart>) {
  return std::make_unique<AdamW>(context, target, adamw_options(options));
}

}  // namespace trafo
