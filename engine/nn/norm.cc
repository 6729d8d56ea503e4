#include "engine/nn/norm.h"

#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/rms_norm/rms_norm.h"

namespace trafo::nn {
namespace {

[[noreturn]] void unknown_norm(trafo::Norm kind) {
  fail(ErrorCode::internal, "norm", "the kind ", static_cast<int>(kind), " is unknown");
}

}  // namespace

Norm::Norm(ParameterStore& store, const std::string& prefix, const NormSpec& spec, int64_t width,
           const Place& place, Role role)
    : store_(&store), kind_(spec.kind), epsilon_(spec.epsilon) {
  gamma_ = store.declare(prefix + ".weight", {width}, Init::ones());
  store.set_parts(gamma_, Piece::weight, {{role, place, width}});
  if (!adds_bias(spec) || !spec.bias) return;
  beta_ = store.declare(prefix + ".bias", {width}, Init::zeros());
  store.set_parts(beta_, Piece::bias, {{role, place, width}});
}

bool Norm::adds_bias(const NormSpec& spec) {
  switch (spec.kind) {
    case trafo::Norm::layer:
      return true;
    case trafo::Norm::rms:
      return false;
  }
  unknown_norm(spec.kind);
}

Tensor Norm::bias(Context& context) const {
  if (beta_ != kNoParam) return store_->value(beta_);
  const Tensor& gamma = store_->value(gamma_);
  return context.zeros(gamma.shape(), gamma.dtype());
}

Tensor Norm::forward(Context& context, const Tensor& x) const {
  const Tensor& gamma = store_->value(gamma_);
  switch (kind_) {
    case trafo::Norm::layer:
      return ops::layer_norm(context, x, gamma, bias(context), epsilon_);
    case trafo::Norm::rms:
      return ops::rms_norm(context, x, gamma, epsilon_);
  }
  unknown_norm(kind_);
}

Norm::Sum Norm::fused_add(Context& context, const PendingBias& x, const Tensor& residual,
                          const Dropout& dropout) const {
  const Tensor& gamma = store_->value(gamma_);
  switch (kind_) {
    case trafo::Norm::layer: {
      ops::ResidualNorm result = ops::bias_dropout_residual_norm(
          context, x.matmul, x.bias, residual, gamma, bias(context), epsilon_, dropout);
      return {result.sum, result.normed, std::move(result.recompute)};
    }
    case trafo::Norm::rms: {
      require(!x.bias.defined(), ErrorCode::internal, "norm", "an RMS norm adds no bias");
      ops::ResidualRmsNorm result =
          ops::residual_rms_norm(context, x.matmul, residual, gamma, epsilon_, dropout);
      return {result.sum, result.normed, std::move(result.recompute)};
    }
  }
  unknown_norm(kind_);
}

}  // namespace trafo::nn
