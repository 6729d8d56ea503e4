#include "engine/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/core/argument_error.h"
#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"
#include "engine/quant/state_code.h"

namespace trafo {

Optimizer::Optimizer(Context& context, const char* origin, const UpdateTarget& target,
                     double weight_decay)
    : context_(context),
      origin_(origin),
      weight_decay_(weight_decay),
      ema_alpha_(target.ema_alpha) {
  const auto& [parameters, gradients, rounded, groups, shard, ema_alpha] = target;
  require_argument(weight_decay >= 0 && std::isfinite(weight_decay), origin, "weight_decay",
                   " must be at least 0, got ", weight_decay);
  require_argument(ema_alpha >= 0 && ema_alpha < 1, origin, "ema_alpha",
                   " must be at least 0 and below 1, got ", ema_alpha);
  check_compute_input(context, origin, "parameters", parameters);
  check_compute_input(context, origin, "gradients", gradients);
  check_same_dtype(origin, "parameters", parameters, "gradients", gradients);
  require(parameters.shape() == gradients.shape(), ErrorCode::shape_mismatch, origin,
          "the parameters are ", parameters.shape().str(), ", the gradients ",
          gradients.shape().str());
  require(parameters.is_contiguous() && gradients.is_contiguous(), ErrorCode::invalid_argument,
          origin, "parameters and gradients must be contiguous");
  require(parameters.dtype() != DType::bf16, ErrorCode::dtype_mismatch, origin,
          "the parameters are bfloat16, too coarse to add updates to: give their float32 masters");
  if (rounded.defined()) {
    check_input(context, origin, "rounded", rounded);
    require(rounded.dtype() == DType::bf16 && parameters.dtype() == DType::f32,
            ErrorCode::dtype_mismatch, origin,
            "rounded copies are bfloat16 and belong to float32 parameters, got ",
            dtype_name(rounded.dtype()), " and ", dtype_name(parameters.dtype()));
    require(rounded.shape() == parameters.shape() && rounded.is_contiguous(),
            ErrorCode::shape_mismatch, origin, "rounded must be contiguous, ",
            parameters.shape().str(), ", it is ", rounded.shape().str());
    rounded_ = rounded.detach();
  }
  parameters_ = parameters.detach();
  gradients_ = gradients.detach();
  shard_ = shard.value_or(ElementRange{0, parameters.numel()});
  require(shard_.begin >= 0 && shard_.begin <= shard_.end && shard_.end <= parameters.numel() &&
              (shard_.begin % kSquaresElements == 0 || shard_.count() == 0),
          ErrorCode::invalid_argument, origin, "elements ", shard_.begin, " to ", shard_.end,
          " are no shard of ", parameters.numel(), " parameters");
  set_groups(groups);
  if (ema_alpha > 0) ema_ = context.zeros(parameters.shape(), parameters.dtype());
}

void Optimizer::set_groups(const UpdateGroups& groups) {
  const auto is_one = [](const UpdateFactors& f) { return f == UpdateFactors{}; };
  if (std::all_of(groups.factors.begin(), groups.factors.end(), is_one)) return;
  const auto cells =
      static_cast<size_t>((parameters_.numel() + kGroupElements - 1) / kGroupElements);
  require(groups.factors.size() <= 256, ErrorCode::invalid_argument, origin_, "there are ",
          groups.factors.size(), " groups of parameters, at most 256 are possible");
  for (const UpdateFactors& f : groups.factors)
    require(f.learning_rate >= 0 && std::isfinite(f.learning_rate) && f.weight_decay >= 0 &&
                std::isfinite(f.weight_decay),
            ErrorCode::invalid_argument, origin_,
            "the factors of a group must be finite and not negative, got ", f.learning_rate,
            " for the learning rate and ", f.weight_decay, " for the weight decay");
  require(groups.group_of.size() == cells, ErrorCode::invalid_argument, origin_, "group_of has ",
          groups.group_of.size(), " entries, the parameters need ", cells);
  for (const uint8_t group : groups.group_of)
    require(group < groups.factors.size(), ErrorCode::invalid_argument, origin_,
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

void* Optimizer::at(const Tensor& tensor, size_t bytes) {
  return tensor.defined() ? static_cast<std::byte*>(tensor.raw()) + bytes : nullptr;
}

Tensor Optimizer::add_state(const std::string& name) {
  const Shape shape =
      shard_.count() == parameters_.numel() ? parameters_.shape() : Shape{shard_.count()};
  add_state({name, context_.zeros(shape, parameters_.dtype()), StateLayout::elements});
  return states_.back().tensor;
}

void Optimizer::add_state(const StateTensor& state) {
  require(states_.size() < kMaxStates, ErrorCode::internal, origin_, "there are more than ",
          kMaxStates, " states");
  states_.push_back(state);
}

namespace {

// Of a state, before an element of the shard.
size_t bytes_before(const StateTensor& state, size_t element) {
  switch (state.layout) {
    case StateLayout::codes:
      return element;
    case StateLayout::scales:
      return element / state_code::kBlock * sizeof(float);
    case StateLayout::parameters:
      return 0;
    case StateLayout::elements:
      break;
  }
  return element * dtype_size(state.tensor.dtype());
}

}  // namespace

UpdateState Optimizer::state(const ElementRange& range) const {
  const auto at_range = [&](const Tensor& whole) {
    return at(whole,
              whole.defined() ? static_cast<size_t>(range.begin) * dtype_size(whole.dtype()) : 0);
  };
  UpdateState s{};
  s.dtype = parameters_.dtype();
  s.count = range.count();
  s.first = range.begin;
  s.param = at_range(parameters_);
  s.grad = at_range(gradients_);
  s.weight_decay = weight_decay_;
  s.post = {at_range(rounded_), at_range(ema_), ema_alpha_};
  if (group_of_.defined())
    s.group_of = static_cast<const uint8_t*>(group_of_.raw()) + range.begin / kGroupElements;
  s.factors = static_cast<const UpdateFactors*>(raw_or_null(factors_));
  s.groups = groups_;
  const auto skipped = static_cast<size_t>(range.begin - shard_.begin);
  for (size_t i = 0; i < states_.size(); ++i)
    s.states[i] = at(states_[i].tensor, bytes_before(states_[i], skipped));
  s.kind = kind();
  set_rule(s.rules);
  return s;
}

void Optimizer::mark_written() const {
  parameters_.mark_written();
  if (rounded_.defined()) rounded_.mark_written();
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = buffer_bytes();
  for (const StateTensor& state : states_) bytes += static_cast<int64_t>(state.tensor.bytes());
  for (const Tensor& more : {ema_, group_of_, factors_})
    if (more.defined()) bytes += static_cast<int64_t>(more.bytes());
  return bytes;
}

void Optimizer::set_steps(int64_t steps) {
  require_argument(steps >= 0, origin_, "steps", " must not be negative, got ", steps);
  steps_ = steps;
}

void Optimizer::finish(const UpdateRecord* /*record*/, double /*learning_rate*/, int64_t /*step*/) {
}

void Optimizer::step(double learning_rate, double grad_scale) {
  require_argument(std::isfinite(learning_rate) && learning_rate >= 0, origin_, "learning_rate",
                   " must be finite and not negative, got ", learning_rate);
  require_argument(std::isfinite(grad_scale), origin_, "grad_scale", " must be finite, got ",
                   grad_scale);
  const UpdateRange range(context_, origin_);
  launch(context_, OpKernel::update, origin_,
         UpdateParams{state(), learning_rate, grad_scale, steps_ + 1});
  finish(nullptr, learning_rate, steps_ + 1);
  mark_written();
  ++steps_;
}

void check_below_one(double value, const char* origin, const char* option) {
  require_argument(value >= 0 && value < 1, origin, option, " must be at least 0 and below 1, got ",
                   value);
}

namespace {

constexpr const char* kOptimizerOrigin = "optimizer";

struct OptimizerRow {
  OptimizerKind kind;
  WholeTensors whole;
  std::unique_ptr<Optimizer> (*make)(Context& context, const UpdateTarget& target,
                                     const OptimizerOptions& options,
                                     std::span<const MatrixPart> matrices);
};

constexpr OptimizerRow kOptimizers[] = {
#define TRAFO_OPTIMIZER(name, Name, whole) {OptimizerKind::name, WholeTensors::whole, make_##name},
#include "engine/optim/generated/optimizers.def"
#undef TRAFO_OPTIMIZER
};

const OptimizerRow& row_of(OptimizerKind kind) {
  const auto* const row = std::ranges::find(kOptimizers, kind, &OptimizerRow::kind);
  require(row != std::end(kOptimizers), ErrorCode::invalid_argument, kOptimizerOrigin,
          "unknown optimizer ", static_cast<int32_t>(kind));
  return *row;
}

void check_taken(OptimizerKind kind, const char* option, bool is_default,
                 std::initializer_list<OptimizerKind> takers) {
  if (is_default || std::ranges::find(takers, kind) != takers.end()) return;
  std::string names;
  for (const OptimizerKind taker : takers)
    names += std::string(names.empty() ? "" : ", ") + enum_name(taker);
  require_argument(false, kOptimizerOrigin, option, " is for the optimizer ", names, ": ",
                   enum_name(kind), " does not have it");
}

}  // namespace

void validate(const OptimizerOptions& options) {
  using enum OptimizerKind;
  const OptimizerKind kind = row_of(options.optimizer).kind;
  const OptimizerOptions defaults;
#define TRAFO_OPTIMIZER_OPTION(option, ...) \
  check_taken(kind, #option, options.option == defaults.option, {__VA_ARGS__});
#include "engine/optim/generated/optimizer_options.def"
#undef TRAFO_OPTIMIZER_OPTION
}

WholeTensors whole_tensors(OptimizerKind kind) {
  return row_of(kind).whole;
}

std::unique_ptr<Optimizer> make_optimizer(Context& context, const UpdateTarget& target,
                                          const OptimizerOptions& options,
                                          std::span<const MatrixPart> matrices) {
  validate(options);
  return row_of(options.optimizer).make(context, target, options, matrices);
}

}  // namespace trafo
