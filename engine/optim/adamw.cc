#include "engine/optim/adamw.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/core/argument_error.h"
#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"
#include "engine/optim/state_code.h"

namespace trafo {
namespace {

constexpr const char* kAdamwOrigin = "adamw";

void check_options(const AdamWOptions& options) {
  const auto check = [](bool condition, const char* field, const char* range, double value) {
    require_argument(condition, kAdamwOrigin, field, " must be ", range, ", got ", value);
  };
  check(options.beta1 >= 0 && options.beta1 < 1, "beta1", "at least 0 and below 1", options.beta1);
  check(options.beta2 >= 0 && options.beta2 < 1, "beta2", "at least 0 and below 1", options.beta2);
  check(options.epsilon > 0 && std::isfinite(options.epsilon), "epsilon", "positive",
        options.epsilon);
  check(options.weight_decay >= 0 && std::isfinite(options.weight_decay), "weight_decay",
        "at least 0", options.weight_decay);
  check(options.ema_alpha >= 0 && options.ema_alpha < 1, "ema_alpha", "at least 0 and below 1",
        options.ema_alpha);
  require_argument(
      options.states == OptimizerStates::float32 || options.states == OptimizerStates::eight_bit,
      kAdamwOrigin, "optimizer_states", " are unknown: ", static_cast<int32_t>(options.states));
}

}  // namespace

AdamW::AdamW(Context& context, const Tensor& parameters, const Tensor& gradients,
             const AdamWOptions& options, const Tensor& rounded, const UpdateGroups& groups,
             const std::optional<ElementRange>& shard)
    : context_(context), options_(options) {
  check_options(options);
  check_compute_input(context, kAdamwOrigin, "parameters", parameters);
  check_compute_input(context, kAdamwOrigin, "gradients", gradients);
  check_same_dtype(kAdamwOrigin, "parameters", parameters, "gradients", gradients);
  require(parameters.shape() == gradients.shape(), ErrorCode::shape_mismatch, kAdamwOrigin,
          "the parameters are ", parameters.shape().str(), ", the gradients ",
          gradients.shape().str());
  require(parameters.is_contiguous() && gradients.is_contiguous(), ErrorCode::invalid_argument,
          kAdamwOrigin, "parameters and gradients must be contiguous");
  require(parameters.dtype() != DType::bf16, ErrorCode::dtype_mismatch, kAdamwOrigin,
          "the parameters are bfloat16, too coarse to add updates to: give their float32 masters");
  if (rounded.defined()) {
    check_input(context, kAdamwOrigin, "rounded", rounded);
    require(rounded.dtype() == DType::bf16 && parameters.dtype() == DType::f32,
            ErrorCode::dtype_mismatch, kAdamwOrigin,
            "rounded copies are bfloat16 and belong to float32 parameters, got ",
            dtype_name(rounded.dtype()), " and ", dtype_name(parameters.dtype()));
    require(rounded.shape() == parameters.shape() && rounded.is_contiguous(),
            ErrorCode::shape_mismatch, kAdamwOrigin, "rounded must be contiguous, ",
            parameters.shape().str(), ", it is ", rounded.shape().str());
    rounded_ = rounded.detach();
  }
  parameters_ = parameters.detach();
  gradients_ = gradients.detach();
  shard_ = shard.value_or(ElementRange{0, parameters.numel()});
  require(shard_.begin >= 0 && shard_.begin <= shard_.end && shard_.end <= parameters.numel() &&
              (shard_.begin % kSquaresElements == 0 || shard_.count() == 0),
          ErrorCode::invalid_argument, kAdamwOrigin, "elements ", shard_.begin, " to ", shard_.end,
          " are no shard of ", parameters.numel(), " parameters");
  set_groups(groups);
  if (options.ema_alpha > 0) ema_ = context.zeros(parameters.shape(), parameters.dtype());
  if (options.states == OptimizerStates::eight_bit) {
    require(parameters.dtype() == DType::f32, ErrorCode::unsupported, kAdamwOrigin,
            "8-bit states belong to float32 parameters or masters, these are ",
            dtype_name(parameters.dtype()));
    const int64_t blocks = state_code::blocks(shard_.count());
    constexpr int64_t kWords = state_code::kBlock / static_cast<int64_t>(sizeof(int32_t));
    m_ = context.zeros({blocks, kWords}, DType::i32);
    v_ = context.zeros({blocks, kWords}, DType::i32);
    m_scale_ = context.zeros({blocks}, DType::f32);
    v_scale_ = context.zeros({blocks}, DType::f32);
    return;
  }
  const Shape shape =
      shard_.count() == parameters.numel() ? parameters.shape() : Shape{shard_.count()};
  m_ = context.zeros(shape, parameters.dtype());
  v_ = context.zeros(shape, parameters.dtype());
}

void AdamW::set_groups(const UpdateGroups& groups) {
  const auto is_one = [](const UpdateFactors& f) { return f == UpdateFactors{}; };
  if (std::all_of(groups.factors.begin(), groups.factors.end(), is_one)) return;
  const auto cells =
      static_cast<size_t>((parameters_.numel() + kGroupElements - 1) / kGroupElements);
  require(groups.factors.size() <= 256, ErrorCode::invalid_argument, kAdamwOrigin, "there are ",
          groups.factors.size(), " groups of parameters, at most 256 are possible");
  for (const UpdateFactors& f : groups.factors)
    require(f.learning_rate >= 0 && std::isfinite(f.learning_rate) && f.weight_decay >= 0 &&
                std::isfinite(f.weight_decay),
            ErrorCode::invalid_argument, kAdamwOrigin,
            "the factors of a group must be finite and not negative, got ", f.learning_rate,
            " for the learning rate and ", f.weight_decay, " for the weight decay");
  require(groups.group_of.size() == cells, ErrorCode::invalid_argument, kAdamwOrigin,
          "group_of has ", groups.group_of.size(), " entries, the parameters need ", cells);
  for (const uint8_t group : groups.group_of)
    require(group < groups.factors.size(), ErrorCode::invalid_argument, kAdamwOrigin,
            "there is no group ", static_cast<int>(group));
  const auto words = [&](const void* from, size_t bytes) {
    std::vector<int32_t> padded((bytes + sizeof(int32_t) - 1) / sizeof(int32_t));
    if (bytes > 0) std::memcpy(padded.data(), from, bytes);
    return context_.from_values<int32_t>(padded, {static_cast<int64_t>(padded.size())});
  };
  group_of_ = words(groups.group_of.data(), cells);
  factors_ = words(groups.factors.data(), groups.factors.size() * sizeof(UpdateFactors));
  groups_ = static_cast<int32_t>(groups.factors.size());
}

AdamWState AdamW::state(const ElementRange& range) const {
  const auto at = [](const Tensor& tensor, size_t bytes) -> void* {
    return tensor.defined() ? static_cast<std::byte*>(tensor.raw()) + bytes : nullptr;
  };
  const auto at_range = [&](const Tensor& whole) {
    return at(whole,
              whole.defined() ? static_cast<size_t>(range.begin) * dtype_size(whole.dtype()) : 0);
  };
  // In the moments, which are of the shard alone. Codes are one byte each.
  const auto skipped = static_cast<size_t>(range.begin - shard_.begin);
  const bool coded = m_scale_.defined();
  const size_t moment_bytes = skipped * (coded ? 1 : dtype_size(m_.dtype()));
  const size_t scale_bytes = skipped / state_code::kBlock * sizeof(float);
  AdamWState s{};
  s.dtype = parameters_.dtype();
  s.count = range.count();
  s.first = range.begin;
  s.beta1 = options_.beta1;
  s.beta2 = options_.beta2;
  s.epsilon = options_.epsilon;
  s.weight_decay = options_.weight_decay;
  s.param = at_range(parameters_);
  s.grad = at_range(gradients_);
  s.m = at(m_, moment_bytes);
  s.v = at(v_, moment_bytes);
  s.param_bf16 = at_range(rounded_);
  s.m_scale = static_cast<float*>(at(m_scale_, scale_bytes));
  s.v_scale = static_cast<float*>(at(v_scale_, scale_bytes));
  s.ema = at_range(ema_);
  s.ema_alpha = options_.ema_alpha;
  if (group_of_.defined())
    s.group_of = static_cast<const uint8_t*>(group_of_.raw()) + range.begin / kGroupElements;
  s.factors = static_cast<const UpdateFactors*>(raw_or_null(factors_));
  s.groups = groups_;
  return s;
}

void AdamW::mark_written() const {
  parameters_.mark_written();
  if (rounded_.defined()) rounded_.mark_written();
}

int64_t AdamW::state_bytes() const {
  int64_t bytes = 0;
  for (const Tensor& state : {m_, v_, m_scale_, v_scale_, ema_, group_of_, factors_})
    if (state.defined()) bytes += static_cast<int64_t>(state.bytes());
  return bytes;
}

void AdamW::set_steps(int64_t steps) {
  require_argument(steps >= 0, kAdamwOrigin, "steps", " must not be negative, got ", steps);
  steps_ = steps;
}

void AdamW::step(double learning_rate, double grad_scale) {
  require_argument(std::isfinite(learning_rate) && learning_rate >= 0, kAdamwOrigin,
                   "learning_rate", " must be finite and not negative, got ", learning_rate);
  require_argument(std::isfinite(grad_scale), kAdamwOrigin, "grad_scale", " must be finite, got ",
                   grad_scale);
  const UpdateRange range(context_, kAdamwOrigin);
  launch(context_, OpKernel::adamw, kAdamwOrigin,
         AdamWParams{state(), learning_rate, grad_scale, steps_ + 1});
  mark_written();
  ++steps_;
}

}  // namespace trafo
