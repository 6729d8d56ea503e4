#include "engine/train/step/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/backend/tf32.h"
#include "engine/core/argument_error.h"
#include "engine/core/numeric/portable_math.h"
#include "engine/models/upload.h"
#include "engine/train/step/device_step_memory.h"
#include "engine/train/step/host_step_memory.h"

namespace trafo {
namespace {

constexpr const char* kTrainerOrigin = "trainer";
// Linear layers with fewer weights were not faster in FP8 (docs/lab/performance-history.md): 1024 x
// 3072.
constexpr int64_t kFp8LinearElements = 3 << 20;

// Takes a batch into the totals of its update.
void add_batch(StepResult& totals, const Objective& objective, double labels, int64_t sentences) {
  totals.labels += labels;
  totals.units += objective.units(labels, sentences);
  totals.sentences += sentences;
}

void check_totals(const StepResult& totals, bool any_batch) {
  require(any_batch, ErrorCode::invalid_argument, kTrainerOrigin,
          "an update needs at least one batch");
  require(totals.labels > 0 && std::isfinite(totals.labels), ErrorCode::invalid_argument,
          kTrainerOrigin, "the batches of an update have the label count ", totals.labels,
          ", at least one label must count");
}

// The factors of the trainable parameters, from their groups and the options.
UpdateGroups update_groups(const ParameterStore& parameters, const TrainOptions& options) {
  UpdateGroups groups;
  groups.group_of.resize(static_cast<size_t>(parameters.flat().numel() / kGroupElements));
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const ParameterGroup& group = parameters.group(id);
    if (!group.trainable) continue;
    const bool decays = options.decay_norms_and_biases || group.name != kNormsAndBiases;
    UpdateFactors factors{
        group.lr_factor, decays ? group.weight_decay : 0,
        whole_tensors(options.optimizer) == WholeTensors::matrices && parameters.prunable(id)};
    if (options.weight_decay == 0) factors.weight_decay = 1;  // no factor matters: all are alike
    const auto known = std::find(groups.factors.begin(), groups.factors.end(), factors);
    const auto index = static_cast<size_t>(known - groups.factors.begin());
    if (known == groups.factors.end()) groups.factors.push_back(factors);
    require(index < 256, ErrorCode::unsupported, kTrainerOrigin,
            "the parameters have more than 256 different factors");
    const auto first = groups.group_of.begin() + parameters.offset(id) / kGroupElements;
    const int64_t cells = (parameters.value(id).numel() + kGroupElements - 1) / kGroupElements;
    std::fill(first, first + cells, static_cast<uint8_t>(index));
  }
  return groups;
}

// The tensors that an optimizer changes as a whole.
std::vector<MatrixPart> whole_parts(const ParameterStore& parameters, OptimizerKind optimizer) {
  const WholeTensors whole = whole_tensors(optimizer);
  std::vector<MatrixPart> matrices;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (whole == WholeTensors::none || !parameters.trainable(id)) continue;
    if (whole == WholeTensors::matrices && !parameters.prunable(id)) continue;
    const Shape& shape = parameters.shape(id);
    const int64_t columns = shape.back();
    matrices.push_back({parameters.offset(id), parameters.value(id).numel() / columns, columns});
  }
  return matrices;
}

// Refuses what cannot be trained, before anything is allocated, and rounds the parameters' values
// as the options say.
const TrainOptions& prepared(Context& context, ParameterStore& parameters,
                             const TrainOptions& options) {
  validate(options);
  if (options.tf32) {
    if (context.device().kind != DeviceKind::cuda)
      throw ArgumentError(ErrorCode::unsupported, kTrainerOrigin, "tf32",
                          " is for CUDA; this would compute on the CPU");
    require_argument(parameters.dtype() == DType::f32, kTrainerOrigin, "tf32",
                     " is for models in float32, this one computes in ",
                     dtype_name(parameters.dtype()));
  }
  if (options.fp8) {
    if (context.device().kind != DeviceKind::cuda)
      throw ArgumentError(ErrorCode::unsupported, kTrainerOrigin, "fp8",
                          " needs a CUDA device of compute capability 8.9 or newer; this would "
                          "compute on the CPU");
    require_argument(parameters.dtype() == DType::bf16, kTrainerOrigin, "fp8",
                     " is for models in bfloat16, this one computes in ",
                     dtype_name(parameters.dtype()));
    ops::require_fp8_device(context, kTrainerOrigin);
  }
  require(!parameters.has_int8(), ErrorCode::unsupported, kTrainerOrigin,
          "a model with int8 weights is not trained: train the float model and quantize it again");
  require(parameters.any_trainable(), ErrorCode::invalid_argument, kTrainerOrigin,
          "every parameter of the model is frozen: there is nothing to train");
  parameters.set_quantize_bits(context, options.quantize_bits);
  return options;
}

// Null with one lane on one rank.
std::unique_ptr<LaneSums> make_lane_sums(Context& context, Model& model, const StepSums& sums,
                                         const TrainOptions& options, const TrainingGroup& group) {
  if (group.communicator != nullptr) group.communicator->attach(context.backend());
  if (options.lanes == 1 && !group.has_peers() &&
      options.communication_dtype == CommunicationDType::float32)
    return nullptr;
  return std::make_unique<LaneSums>(context, model.parameters(), sums, options, group);
}

std::unique_ptr<StepMemory> make_memory(Context& context, Model& model, const Objective& objective,
                                        const TrainOptions& options) {
  if (context.backend().stream_device() != nullptr)
    return std::make_unique<DeviceStepMemory>(context, model, objective, options);
  return std::make_unique<HostStepMemory>(context, model, objective, options);
}

std::unique_ptr<Fp8Weights> make_fp8_weights(Context& context, const Model& model,
                                             const TrainOptions& options) {
  if (!options.fp8) return nullptr;
  return std::make_unique<Fp8Weights>(
      context, model.parameters(), model.output_projection().weight.parameter, kFp8LinearElements);
}

}  // namespace

Trainer::Trainer(Context& context, Model& model, const TrainOptions& options,
                 const TrainingGroup& group, std::unique_ptr<Objective> objective)
    : context_(context),
      model_(model),
      options_(prepared(context, model.parameters(), options)),
      group_(group),
      objective_(objective ? std::move(objective) : make_objective(options, nullptr)),
      optimizer_(make_optimizer(
          context,
          {model.parameters().master(), model.parameters().flat_grad(),
           model.parameters().dtype() == DType::bf16 ? model.parameters().flat() : Tensor{},
           update_groups(model.parameters(), options),
           shard_of(group.rank, group.size, model.parameters().flat().numel()), options.ema_alpha},
          options, whole_parts(model.parameters(), options.optimizer))),
      schedule_(schedule_options(options, model.spec().width())),
      update_(context, *optimizer_, schedule_, options.clip_norm),
      sums_(context, model.parameters().dtype(), objective_->metrics().size()),
      pruning_(WeightPruning::make(context, model.parameters(), *optimizer_, options)),
      ema_swap_(context, model.parameters(), optimizer_->ema()),
      fp8_weights_(make_fp8_weights(context, model, options)),
      memory_(make_memory(context, model, *objective_, options_)),
      lanes_(make_lane_sums(context, model, sums_, options, group)),
      weights_(context, model.parameters(), *optimizer_, update_, group, pruning_ != nullptr),
      optimizer_file_(context, model.parameters(), *optimizer_, group),
      queue_(context, sums_.metric_bytes(), group.has_peers() ? lanes_->votes().bytes() : 0) {}

Trainer::~Trainer() = default;

StepResult Trainer::step(std::span<const Batch> micro_batches) {
  require_idle();
  StepResult totals;
  for (const Batch& batch : micro_batches) {
    add_batch(totals, *objective_, batch.label_count, batch.sentences);
    totals.target_tokens += batch.target_in.numel();
    if (batch.source_ids.defined()) totals.source_tokens += batch.source_ids.numel();
  }
  check_totals(totals, !micro_batches.empty());
  submit_batches(micro_batches, totals, Vote::none);
  return await();
}

StepResult Trainer::step(std::span<const PackedBatchHost> micro_batches) {
  require_idle();
  submit(micro_batches);
  return await();
}

void Trainer::submit(std::span<const PackedBatchHost> micro_batches, Vote vote) {
  StepResult totals;
  for (const PackedBatchHost& batch : micro_batches) {
    const BatchCounts counts = batch.counts();
    add_batch(totals, *objective_, label_count(batch), counts.sentences);
    totals.target_tokens += counts.target_tokens;
    totals.source_tokens += counts.source_tokens;
  }
  check_totals(totals, !micro_batches.empty());
  submit_batches(micro_batches, totals, vote);
}

StepResult Trainer::await() {
  require(!queue_.empty(), ErrorCode::invalid_argument, kTrainerOrigin, "no update is in flight");
  const PhaseRange phase(context_, "wait", false);
  const StepQueue::Done done = queue_.pop();
  StepResult result = done.totals;
  if (group_.has_peers()) {
    group_.communicator->check();
    const Vote vote = lanes_->highest_vote(done.votes);
    if (vote == Vote::failed) fail_together(done.passes_before);
    result.stop_wanted = vote == Vote::stop;
  }
  result.loss = done.record.loss;
  result.nll = done.record.nll * (result.units / result.labels);
  result.metrics = sums_.read_metrics(done.metrics);
  result.grad_norm = done.record.norm;
  result.learning_rate = done.record.learning_rate;
  result.skipped = done.record.applied == 0;
  if (result.skipped) {
    ++state_.skipped;
    ++state_.skipped_in_a_row;
  } else {
    ++state_.update;
    state_.skipped_in_a_row = 0;
    state_.far_off_in_a_row = result.nll > far_off_loss() ? state_.far_off_in_a_row + 1 : 0;
  }
  result.update = state_.update;
  optimizer_->set_steps(state_.update);
  require(state_.skipped_in_a_row < options_.max_non_finite_steps, ErrorCode::non_finite,
          kTrainerOrigin, "training has diverged: after update ", state_.update,
          " the loss or the gradient was not finite ", state_.skipped_in_a_row,
          " times in a row (loss ", result.loss, ", gradient norm ", result.grad_norm, ")");
  check_loss(options_.max_non_finite_steps);
  return result;
}

// No update from the failed one on was applied, because the rank that failed has contributed a loss
// that is not a number to each of them.
void Trainer::fail_together(uint64_t passes_before) {
  if (context_.backend().stream_device()) context_.backend().synchronize();
  queue_.clear();
  state_.forward_passes = passes_before;
  optimizer_->set_steps(state_.update);
  const std::optional<Error> mine = std::exchange(failure_, std::nullopt);
  agree(*group_.communicator, mine);
  fail(ErrorCode::internal, kTrainerOrigin, "a rank has failed and does not say why");
}

void Trainer::check_loss(int64_t in_a_row) const {
  require(state_.far_off_in_a_row < in_a_row, ErrorCode::non_finite, kTrainerOrigin,
          "training has diverged: after update ", state_.update, " the loss was above ",
          far_off_loss(), " ", state_.far_off_in_a_row,
          " times in a row; guessing among all tokens gives ",
          portable_log(static_cast<double>(model_.spec().vocabulary)));
}

double Trainer::far_off_loss() const {
  return 2 * portable_log(static_cast<double>(model_.spec().vocabulary)) + 20;
}

void Trainer::reserve(std::span<const BatchBucket> buckets) {
  require_idle();
  const StepScope fp8(context_, &StepContext::fp8_weights, fp8_weights_.get());
  if (context_.fused_kernels()) memory_->reserve(buckets);  // reference ops use no arena
  if (lanes_) lanes_->reserve();
}

int64_t Trainer::fp8_bytes() const {
  return fp8_weights_ ? fp8_weights_->bytes() : 0;
}

void Trainer::require_idle() const {
  require(queue_.empty(), ErrorCode::invalid_argument, kTrainerOrigin, queue_.size(),
          " updates are in flight, await them first");
}

const Tensor& Trainer::ema_weights() const {
  return ema().defined() && state_.update > 0 ? ema() : model_.parameters().master();
}

EmaSwap* Trainer::ema_swap() {
  require_idle();
  return ema().defined() && state_.update > 0 ? &ema_swap_ : nullptr;
}

OptimizerFile& Trainer::optimizer_file() {
  require_idle();
  return optimizer_file_;
}

const OptimizerFile& Trainer::optimizer_file() const {
  require_idle();
  return optimizer_file_;
}

void Trainer::restore(const SafetensorsReader& optimizer, const TrainerState& state) {
  StagedTensors staged;
  optimizer_file().stage(optimizer, staged);
  staged.commit(context_);
  resume_from(state);
}

void Trainer::resume_from(const TrainerState& state) {
  optimizer_->set_steps(state.update);
  update_.set_updates(state.update);
  state_ = state;
}

}  // namespace trafo
