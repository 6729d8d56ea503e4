#include "engine/train/step/trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/backend/tf32.h"
#include "engine/core/argument_error.h"
#include "engine/models/upload.h"
#include "engine/nn/fp8_weights.h"
#include "engine/train/checkpoint/optimizer_io.h"
#include "engine/train/step/device_step.h"
#include "engine/train/step/host_step.h"

namespace trafo {
namespace {

constexpr const char* kTrainerOrigin = "trainer";
constexpr int64_t kSwapElements = 1 << 20;  // swapped at a time
// Linear layers with fewer weights were not faster in FP8 (docs/lab/performance-history.md): 1024 x
// 3072.
constexpr int64_t kFp8LinearElements = 3 << 20;

// The labels of an update: what its loss is divided by.
template <class Batches, class Count>
double total_labels(const Batches& batches, Count count) {
  require(!batches.empty(), ErrorCode::invalid_argument, kTrainerOrigin,
          "an update needs at least one batch");
  double labels = 0;
  for (const auto& batch : batches) labels += count(batch);
  require(labels > 0 && std::isfinite(labels), ErrorCode::invalid_argument, kTrainerOrigin,
          "the batches of an update have the label count ", labels,
          ", at least one label must count");
  return labels;
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
    UpdateFactors factors{group.lr_factor, decays ? group.weight_decay : 0,
                          options.optimizer == OptimizerKind::muon && parameters.prunable(id)};
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

// The matrices that Muon orthogonalizes.
std::vector<MatrixPart> whole_matrices(const ParameterStore& parameters) {
  std::vector<MatrixPart> matrices;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!parameters.prunable(id) || !parameters.trainable(id)) continue;
    const Shape& shape = parameters.shape(id);
    matrices.push_back({parameters.offset(id), shape[0], shape[1]});
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

}  // namespace

// Events of the device: the first half belongs to DeviceStep.
int Trainer::record_event(size_t record) {
  return StreamDevice::kEvents / 2 + static_cast<int>(record);
}

Trainer::Trainer(Context& context, Model& model, const TrainOptions& options,
                 const TrainingGroup& group)
    : context_(context),
      model_(model),
      options_(prepared(context, model.parameters(), options)),
      group_(group),
      objective_(options.label_smoothing, {options.teacher_weight, options.teacher_temperature}),
      optimizer_(make_optimizer(
          context,
          {model.parameters().master(), model.parameters().flat_grad(),
           model.parameters().dtype() == DType::bf16 ? model.parameters().flat() : Tensor{},
           update_groups(model.parameters(), options),
           shard_of(group.rank, group.size, model.parameters().flat().numel()), options.ema_alpha},
          optimizer_options(options), whole_matrices(model.parameters()))),
      schedule_(schedule_options(options, model.spec().width())),
      update_(context, *optimizer_, schedule_, options.clip_norm),
      sums_(context, model.parameters().dtype()),
      stream_(context.backend().stream_device()) {
  if (group.communicator != nullptr) group.communicator->attach(context.backend());
  prepare_pruning();
  const ParameterStore& parameters = model.parameters();
  if (has_ema() && !parameters.has_master())
    swap_buffer_ =
        context.empty({std::min(kSwapElements, parameters.flat().numel())}, parameters.dtype());
  if (options.fp8)
    fp8_weights_ = std::make_unique<Fp8Weights>(
        context, parameters, model.output_projection().weight.parameter, kFp8LinearElements);
  if (stream_) {
    gradients_ = std::make_unique<DeviceStep>(context, model, objective_, options_, sums_);
    pinned_records_ = pinned(kMaxInFlight * sizeof(UpdateRecord));
    records_ = static_cast<UpdateRecord*>(pinned_records_.get());
  } else {
    gradients_ = std::make_unique<HostStep>(context, model, objective_, options_, sums_);
    host_records_.resize(kMaxInFlight);
    records_ = host_records_.data();
  }
  if (options.lanes > 1 || group.has_peers() ||
      options.communication_dtype != CommunicationDType::float32)
    lanes_ = std::make_unique<LaneSums>(context, model.parameters(), sums_, options, group);
  if (!group.has_peers()) return;
  partials_ = context.zeros({(parameters.flat().numel() + kSquaresElements - 1) / kSquaresElements},
                            DType::f64);
  const size_t votes = kMaxInFlight * lanes_->votes().bytes();
  if (stream_) {
    pinned_votes_ = pinned(votes);
    votes_ = static_cast<std::byte*>(pinned_votes_.get());
  } else {
    host_votes_.resize(votes);
    votes_ = host_votes_.data();
  }
}

Trainer::~Trainer() {
  if (!stream_) return;
  try {
    context_.backend().synchronize();
  } catch (const Error&) {  // the device is lost: nothing will be written any more
  }
}

void Trainer::PinnedRelease::operator()(void* block) const noexcept {
  stream->release_pinned(block);
}

Trainer::PinnedBlock Trainer::pinned(size_t bytes) {
  return {stream_->allocate_pinned(bytes), PinnedRelease{stream_}};
}

StepResult Trainer::step(std::span<const Batch> micro_batches) {
  require_idle();
  StepResult result;
  result.labels = total_labels(micro_batches, [](const Batch& batch) { return batch.label_count; });
  for (const Batch& batch : micro_batches) {
    result.sentences += batch.sentences;
    result.target_tokens += batch.target_in.numel();
    if (batch.source_ids.defined()) result.source_tokens += batch.source_ids.numel();
  }
  start(result, micro_batches.size(), Vote::none, [&](size_t i, uint32_t pass, bool first) {
    accumulate_gradients(context_, model_, micro_batches[i], objective_, options_.recompute,
                         training_pass(model_.spec(), options_, pass), 1 / result.labels, first,
                         sums_);
  });
  return await();
}

StepResult Trainer::step(std::span<const PackedBatchHost> micro_batches) {
  require_idle();
  submit(micro_batches);
  return await();
}

void Trainer::submit(std::span<const PackedBatchHost> micro_batches, Vote vote) {
  StepResult result;
  result.labels = total_labels(micro_batches, label_count);
  for (const PackedBatchHost& batch : micro_batches) {
    const BatchCounts counts = batch.counts();
    result.sentences += counts.sentences;
    result.target_tokens += counts.target_tokens;
    result.source_tokens += counts.source_tokens;
  }
  start(result, micro_batches.size(), vote, [&](size_t i, uint32_t pass, bool first) {
    gradients_->accumulate(micro_batches[i], result.labels, pass, first);
  });
}

// `accumulate` adds the gradient and the losses of a batch to those before it, the first one
// overwrites them.
void Trainer::start(const StepResult& result, size_t batches, Vote vote,
                    const Accumulate& accumulate) {
  require(in_flight_.size() < (works_ahead() ? kMaxInFlight : 1), ErrorCode::invalid_argument,
          kTrainerOrigin, in_flight_.size(), " updates are in flight, await one first");
  const uint64_t passes_before = state_.forward_passes;
  const size_t before = in_flight_.size();
  ParameterStore& parameters = model_.parameters();
  UpdateRecord& record = records_[next_record_];
  const PhaseRange step(context_, "step", true);
  try {
    {
      const Tf32Scope tf32(context_.backend(), options_.tf32);
      const Fp8Scope fp8(parameters, fp8_weights_.get());
      add_gradients(batches, accumulate);
    }
    update_.prepare(state_.update + 1, state_.update + 1 + static_cast<int64_t>(before));
    const PhaseRange phase(context_, "update", true);
    in_flight_.push_back({result, &record, passes_before});
    if (lanes_) lanes_->reduce(failure_ ? Vote::failed : vote, squares_of_parts());
    if (pruned_weights_) pruned_weights_->mask_gradient();
    if (group_.has_peers()) {
      update_shard();
    } else {
      update_.run(sums_.loss, sums_.nll);
      if (parameters.quantize_bits() != 0) parameters.follow_update(context_);
    }
    // From here on only a device or a peer that is lost can fail.
    const auto copy_back = [&](void* to, const void* from, size_t bytes) {
      if (works_ahead())
        stream_->copy_async(to, from, bytes);
      else
        context_.backend().copy_to_host(to, from, bytes);
    };
    copy_back(&record, update_.record(), sizeof record);
    if (group_.has_peers()) {
      const Tensor& votes = lanes_->votes();
      copy_back(votes_ + next_record_ * votes.bytes(), votes.raw(), votes.bytes());
    }
    if (works_ahead()) stream_->record(record_event(next_record_));
    // Without graphs, thousands of launches would wait for an exchange. A full queue may stop the
    // other ranks of the process from launching what the exchange waits for.
    if (works_ahead() && group_.has_peers() && !context_.graphs())
      stream_->wait(record_event(next_record_));
  } catch (...) {
    if (in_flight_.size() > before) in_flight_.pop_back();
    state_.forward_passes = passes_before;
    parameters.zero_grad();
    throw;
  }
  next_record_ = (next_record_ + 1) % kMaxInFlight;
  parameters.zero_grad();
}

StepResult Trainer::await() {
  require(!in_flight_.empty(), ErrorCode::invalid_argument, kTrainerOrigin,
          "no update is in flight");
  // The update leaves the queue even if the device fails, so that awaiting all of them ends.
  const PhaseRange phase(context_, "wait", false);
  const InFlight oldest = in_flight_.front();
  in_flight_.pop_front();
  const UpdateRecord& record = *oldest.record;
  const auto slot = static_cast<size_t>(oldest.record - records_);
  if (stream_)  // returns at once where copy_to_host() has waited already
    stream_->wait(record_event(slot));
  StepResult result = oldest.result;
  if (group_.has_peers()) {
    group_.communicator->check();
    const Vote vote = lanes_->highest_vote(votes_ + slot * lanes_->votes().bytes());
    if (vote == Vote::failed) fail_together(oldest.passes_before);
    result.stop_wanted = vote == Vote::stop;
  }
  result.loss = record.loss;
  result.nll = record.nll;
  result.grad_norm = record.norm;
  result.learning_rate = record.learning_rate;
  result.skipped = record.applied == 0;
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

void Trainer::check_loss(int64_t in_a_row) const {
  require(state_.far_off_in_a_row < in_a_row, ErrorCode::non_finite, kTrainerOrigin,
          "training has diverged: after update ", state_.update, " the loss was above ",
          far_off_loss(), " ", state_.far_off_in_a_row,
          " times in a row; guessing among all tokens gives ",
          std::log(static_cast<double>(model_.spec().vocabulary)));
}

double Trainer::far_off_loss() const {
  return 2 * std::log(static_cast<double>(model_.spec().vocabulary)) + 20;
}

void Trainer::reserve(std::span<const BatchBucket> buckets) {
  require_idle();
  const Fp8Scope fp8(model_.parameters(), fp8_weights_.get());
  if (context_.fused_kernels()) gradients_->reserve(buckets);  // reference ops use no arena
  if (lanes_) lanes_->reserve();
}

int64_t Trainer::fp8_bytes() const {
  return fp8_weights_ ? fp8_weights_->bytes() : 0;
}

void Trainer::require_idle() const {
  require(in_flight_.empty(), ErrorCode::invalid_argument, kTrainerOrigin, in_flight_.size(),
          " updates are in flight, await them first");
}

const Tensor& Trainer::ema_weights() const {
  return has_ema() && state_.update > 0 ? optimizer_->ema() : model_.parameters().master();
}

// Copies only, so that the weights come back with the same bits.
void Trainer::swap_weights_and_ema() {
  Backend& backend = context_.backend();
  auto* weights = static_cast<std::byte*>(model_.parameters().master().raw());
  auto* ema = static_cast<std::byte*>(optimizer_->ema().raw());
  const size_t bytes = optimizer_->ema().bytes();
  for (size_t at = 0; at < bytes; at += swap_buffer_.bytes()) {
    const size_t piece = std::min(swap_buffer_.bytes(), bytes - at);
    backend.copy(swap_buffer_.raw(), weights + at, piece);
    backend.copy(weights + at, ema + at, piece);
    backend.copy(ema + at, swap_buffer_.raw(), piece);
  }
  model_.parameters().master().mark_written();
}

EmaWeights::EmaWeights(Trainer& trainer)
    : trainer_(trainer), active_(trainer.has_ema() && trainer.state().update > 0) {
  trainer.require_idle();
  if (!active_) return;
  const ParameterStore& parameters = trainer.model_.parameters();
  // With master weights, the model's values are their rounding and can be restored from them.
  if (parameters.has_master()) {
    trainer.model_.parameters().follow(trainer.context_, trainer.optimizer_->ema());
  } else {
    trainer.swap_weights_and_ema();
  }
}

EmaWeights::~EmaWeights() {
  if (!active_) return;
  try {
    ParameterStore& parameters = trainer_.model_.parameters();
    if (parameters.has_master())
      parameters.follow_master(trainer_.context_);
    else
      trainer_.swap_weights_and_ema();
  } catch (const Error&) {  // the device is lost, and the weights with it
  }
}

TensorFile Trainer::copy_optimizer(const HostAllocator& allocate) const {
  require_idle();
  const ParameterStore& parameters = model_.parameters();
  TensorFile file;
  if (group_.has_peers()) {
    require(gathered_.has_value(), ErrorCode::internal, kTrainerOrigin,
            "the optimizer states of other ranks were not gathered");
    file.entries = state_entries(parameters, *optimizer_, *gathered_);
    return file;
  }
  file.storage = gather_states(context_, parameters, *optimizer_, group_, allocate);
  file.entries = state_entries(parameters, *optimizer_, file.storage);
  return file;
}

void Trainer::restore(const SafetensorsReader& optimizer, const TrainerState& state) {
  StagedTensors staged;
  stage_optimizer(optimizer, staged);
  staged.commit(context_);
  resume_from(state);
}

void Trainer::stage_optimizer(const SafetensorsReader& optimizer, StagedTensors& staged) const {
  require_idle();
  stage_states(model_.parameters(), optimizer, *optimizer_, group_, staged);
}

void Trainer::resume_from(const TrainerState& state) {
  optimizer_->set_steps(state.update);
  update_.set_updates(state.update);
  state_ = state;
}

}  // namespace trafo
