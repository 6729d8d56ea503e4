#include "engine/train/trainer.h"

#include <cmath>
#include <numeric>

#include "engine/train/model_io.h"
#include "engine/train/upload.h"

namespace trafo {
namespace {

constexpr const char* kOrigin = "trainer";
const std::string kMoments[] = {"exp_avg.", "exp_avg_sq."};

double label_count(const PackedBatchHost& batch) {
  if (batch.target_weights.empty()) return static_cast<double>(batch.target_out.size());
  return std::accumulate(batch.target_weights.begin(), batch.target_weights.end(), 0.0);
}

// The labels of an update: what its loss is divided by.
template <class Batches, class Count>
double total_labels(const Batches& batches, Count count) {
  require(!batches.empty(), ErrorCode::invalid_argument, kOrigin,
          "an update needs at least one batch");
  double labels = 0;
  for (const auto& batch : batches) labels += count(batch);
  require(labels > 0 && std::isfinite(labels), ErrorCode::invalid_argument, kOrigin,
          "the batches of an update have the label count ", labels,
          ", at least one label must count");
  return labels;
}

}  // namespace

Trainer::Trainer(Context& context, Model& model, const TrainOptions& options)
    : context_(context),
      model_(model),
      options_((validate(options), options)),
      schedule_(schedule_options(options, model.config().width)),
      optimizer_(context, model.parameters().master(), model.parameters().flat_grad(),
                 {options.beta1, options.beta2, options.epsilon, options.weight_decay},
                 model.parameters().has_master() ? model.parameters().flat() : Tensor{}) {}

StepResult Trainer::step(std::span<const Batch> micro_batches) {
  const double labels =
      total_labels(micro_batches, [](const Batch& batch) { return batch.label_count; });
  return step(micro_batches.size(), labels, [&](size_t i) { return micro_batches[i]; });
}

StepResult Trainer::step(std::span<const PackedBatchHost> micro_batches) {
  const double labels = total_labels(micro_batches, label_count);
  return step(micro_batches.size(), labels, [&](size_t i) {
    return upload(context_, micro_batches[i], model_.config(), model_.parameters().dtype());
  });
}

StepResult Trainer::step(size_t count, double labels, const BatchAt& batch_at) {
  const TrainerState before = state_;
  StepResult result;
  result.labels = labels;
  result.learning_rate = learning_rate(state_.update + 1);
  model_.parameters().zero_grad();
  try {
    std::vector<ops::CrossEntropyOutput> losses;
    for (size_t i = 0; i < count; ++i) losses.push_back(accumulate(batch_at(i), labels, result));
    model_.parameters().complete_grads(context_);
    // The only place of a step where the host waits for an accelerator.
    const GradientNorm norm =
        clip_global_norm(context_, model_.parameters().flat_grad(), options_.clip_norm);
    const double divisor = mean_on_device() ? 1 : labels;
    for (const ops::CrossEntropyOutput& output : losses) {
      result.loss += context_.item(output.loss) / divisor;
      result.nll += context_.item(output.nll) / divisor;
    }
    result.grad_norm = norm.norm;
    update(norm, result);
  } catch (...) {
    state_ = before;
    model_.parameters().zero_grad();
    throw;
  }
  model_.parameters().zero_grad();
  require(state_.skipped_in_a_row < options_.max_bad_steps_in_a_row, ErrorCode::non_finite, kOrigin,
          "training has diverged: after update ", state_.update,
          " the loss or the gradient was not finite ", state_.skipped_in_a_row,
          " times in a row (loss ", result.loss, ", gradient norm ", result.grad_norm, ")");
  return result;
}

ops::CrossEntropyOutput Trainer::accumulate(const Batch& batch, double labels, StepResult& result) {
  // A tape of its own: what the caller has recorded on the context stays as it is, and what a
  // failed step has recorded goes away.
  const TapeScope tape(context_);
  const DropoutPass pass{options_.seed, static_cast<uint32_t>(state_.forward_passes), true};
  ++state_.forward_passes;
  const ops::CrossEntropyOutput output = model_.loss(context_, batch, options_.label_smoothing,
                                                     pass, mean_on_device() ? 1 / labels : 1);
  if (mean_on_device())
    context_.backward(output.loss);
  else
    context_.backward(output.loss,
                      context_.scalar(1 / labels, output.loss.shape(), output.loss.dtype()));
  result.sentences += batch.sentences;
  result.target_tokens += batch.target_in.numel();
  if (batch.source_ids.defined()) result.source_tokens += batch.source_ids.numel();
  return output;
}

void Trainer::update(const GradientNorm& norm, StepResult& result) {
  result.skipped = !std::isfinite(result.loss) || !norm.finite;
  if (result.skipped) {
    ++state_.skipped;
    ++state_.skipped_in_a_row;
  } else {
    optimizer_.step(result.learning_rate, norm.scale);
    ++state_.update;
    state_.skipped_in_a_row = 0;
  }
  result.update = state_.update;
}

void Trainer::write_optimizer(ByteSink& sink) const {
  const Tensor moments[] = {optimizer_.first_moment(), optimizer_.second_moment()};
  std::vector<std::byte> storage[2];
  std::vector<TensorEntry> entries;
  for (size_t i = 0; i < 2; ++i)
    for (TensorEntry& entry :
         workspace_entries(context_, model_.parameters(), moments[i], kMoments[i], storage[i]))
      entries.push_back(std::move(entry));
  write_safetensors(sink, entries);
}

void Trainer::restore(const SafetensorsReader& optimizer, const TrainerState& state) {
  const Tensor moments[] = {optimizer_.first_moment(), optimizer_.second_moment()};
  read_workspaces(context_, model_.parameters(), optimizer, moments, kMoments);
  optimizer_.set_steps(state.update);
  state_ = state;
}

}  // namespace trafo
