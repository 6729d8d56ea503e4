// One update of the weights from a list of micro-batches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/nn/fp8_weights.h"
#include "engine/objective/registry.h"
#include "engine/optim/clipped_update.h"
#include "engine/optim/optimizer.h"
#include "engine/train/checkpoint/optimizer_io.h"
#include "engine/train/checkpoint/state.h"
#include "engine/train/parallel/lane_sums.h"
#include "engine/train/parallel/shared_weights.h"
#include "engine/train/parallel/training_group.h"
#include "engine/train/run/options.h"
#include "engine/train/step/ema_weights.h"
#include "engine/train/step/step_memory.h"
#include "engine/train/step/step_queue.h"
#include "engine/train/step/weight_pruning.h"

namespace trafo {

// Context, model and group must outlive the trainer. One thread at a time.
//
// With a group of several ranks, functions that say so are collective. Each rank gives all batches
// of an update. Batch i is in lane i mod TrainOptions::lanes; a rank computes the batches of its
// lanes and only counts the others (PackedBatchHost::elsewhere). It has the optimizer states of a
// shard of the weights.
class Trainer {
 public:
  // `objective`: null: the one of the options, without another model.
  Trainer(Context& context, Model& model, const TrainOptions& options,
          const TrainingGroup& group = {}, std::unique_ptr<Objective> objective = nullptr);
  ~Trainer();

  // Forward and backward of each micro-batch, then one clipped update with the gradient of
  // the mean loss over all their labels. Errors: INVALID_ARGUMENT without a batch or without a
  // label of positive weight; NON_FINITE after max_non_finite_steps updates in a row that were
  // skipped or had a loss of a diverged model; exceptions of the model. Errors other
  // than NON_FINITE and PEER_LOST leave the trainer unchanged, except that they may follow a due
  // pruning.
  // Collective: an error of one rank is thrown by all, as AgreedError.
  StepResult step(std::span<const PackedBatchHost> micro_batches);
  // The same for batches on the device, outside of planned memory.
  StepResult step(std::span<const Batch> micro_batches);

  // step() in two halves, so that an accelerator has the next update before this one is done.
  // submit() starts an update. await() waits for the oldest update in flight and returns its
  // result, or throws what step() throws. At most kMaxInFlight may be in flight; all must be
  // awaited before any other use of the trainer or the model. Collective. With a group, an error
  // of submit() is thrown by await(), and ends all updates in flight.
  static constexpr size_t kMaxInFlight = StepQueue::kMost;
  void submit(std::span<const PackedBatchHost> micro_batches, Vote vote = Vote::none);
  StepResult await();
  size_t in_flight() const { return queue_.size(); }
  // False if a step is done when submit() returns, so that there is nothing to gain from several in
  // flight: on the CPU, and without fused kernels, because reference ops read values on the host.
  bool works_ahead() const {
    return context_.backend().stream_device() != nullptr && context_.fused_kernels();
  }

  // Allocates the memory for micro-batches of these sizes. They and smaller ones then allocate
  // nothing. Without this call, memory is allocated as larger batches come.
  void reserve(std::span<const BatchBucket> buckets);
  // Steps that were recorded as graphs are recorded again: they have the earlier GEMM kernels.
  void drop_graphs() { memory_->drop_graphs(); }
  // Allocations of steps on the CPU that the plan did not have: none with fused kernels.
  int64_t unplanned_allocations() const { return memory_->unplanned_allocations(); }

  // NON_FINITE if that many of the last updates in a row, or more, had the loss of a diverged
  // model: above 2 ln V + 20 a token, where guessing among all V tokens gives ln V.
  void check_loss(int64_t in_a_row) const;

  const TrainOptions& options() const { return options_; }
  const TrainerState& state() const { return state_; }
  const Objective& objective() const { return *objective_; }
  void set_rate(RateFunction rate) {
    schedule_.set_function(std::move(rate));
    update_.set_schedule(schedule_);
  }
  void set_schedule_start(int64_t update) {
    schedule_.set_start(update);
    update_.set_schedule(schedule_);
  }
  double learning_rate(int64_t update) const { return schedule_(update); }  // update 1, 2, ...

  int64_t optimizer_bytes() const {
    return optimizer_->state_bytes() + (pruning_ ? pruning_->bytes() : 0);
  }
  int64_t fp8_bytes() const;  // of the copies of the weights; 0 without fp8
  ElementRange own_lanes() const { return lanes_ ? lanes_->own() : ElementRange{0, 1}; }
  SharedWeights& weights() { return weights_; }

  // The EMA tensor itself, which restoring a run fills; undefined if there is none.
  const Tensor& ema() const { return optimizer_->ema(); }
  // The weights to use: the EMA, or the model's own weights if there is no EMA or no update yet.
  // Same layout as ParameterStore::master().
  const Tensor& ema_weights() const;
  // Null if ema_weights() are the model's own.
  EmaSwap* ema_swap();

  // optimizer.safetensors. No update may be in flight.
  OptimizerFile& optimizer_file();
  const OptimizerFile& optimizer_file() const;
  // CORRUPT_FILE, or INVALID_ARGUMENT if the file has states of another optimizer or another
  // OptimizerStates. Changes nothing if it throws.
  void restore(const SafetensorsReader& optimizer, const TrainerState& state);
  // A staged restore, together with the tensors of other files: OptimizerFile::stage() may throw
  // and changes nothing; this follows the commit.
  void resume_from(const TrainerState& state);

 private:
  template <class AnyBatch>
  void submit_batches(std::span<const AnyBatch> batches, const StepResult& totals, Vote vote);
  template <class AnyBatch>
  void train_step(std::span<const AnyBatch> batches, const StepResult& totals, Vote vote);
  void prepare_weights();
  void keep_failure();
  [[noreturn]] void fail_together(uint64_t passes_before);
  double far_off_loss() const;
  void require_idle() const;

  Context& context_;
  Model& model_;
  TrainOptions options_;
  TrainingGroup group_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<Optimizer> optimizer_;
  Schedule schedule_;
  ClippedUpdate update_;
  StepSums sums_;
  std::unique_ptr<WeightPruning> pruning_;  // of a run that prunes or keeps zeros
  EmaSwap ema_swap_;
  std::unique_ptr<Fp8Weights> fp8_weights_;  // with TrainOptions::fp8
  std::unique_ptr<StepMemory> memory_;
  std::unique_ptr<LaneSums> lanes_;  // with several lanes or ranks
  SharedWeights weights_;
  OptimizerFile optimizer_file_;
  StepQueue queue_;  // after all that the device writes: its destructor waits
  TrainerState state_;
  std::optional<Error> failure_;  // of this rank, until all ranks know of it
};

}  // namespace trafo
