// One update of the weights from a list of micro-batches.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/data/batcher.h"
#include "engine/io/byte_sink.h"
#include "engine/io/safetensors.h"
#include "engine/memory/host_buffer.h"
#include "engine/models/model_io.h"
#include "engine/models/objective.h"
#include "engine/optim/clipped_update.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/pruned_weights.h"
#include "engine/train/checkpoint/state.h"
#include "engine/train/parallel/lane_sums.h"
#include "engine/train/parallel/training_group.h"
#include "engine/train/run/options.h"
#include "engine/train/step/micro_batch.h"

namespace trafo {

class Fp8Weights;
class StagedTensors;

struct StepResult {
  int64_t update = 0;        // updates applied so far, this one included unless it was skipped
  double loss = 0;           // mean per label, with label smoothing
  double nll = 0;            // mean per label, without
  double grad_norm = 0;      // global norm of the mean loss's gradient, before clipping
  double learning_rate = 0;  // of this update
  double labels = 0;         // what the means are divided by: the sum of the target weights
  int64_t source_tokens = 0, target_tokens = 0;  // read by the encoder and by the decoder
  int64_t sentences = 0;
  bool skipped = false;  // loss or gradient was not finite: weights, moments and schedule untouched
  bool stop_wanted = false;  // a rank of the group has voted for a stop
};

// Context, model and group must outlive the trainer. One thread at a time.
//
// With a group of several ranks, functions that say so are collective. Each rank gives all batches
// of an update. Batch i is in lane i mod TrainOptions::lanes; a rank computes the batches of its
// lanes and only counts the others (PackedBatchHost::elsewhere). It has the optimizer states of a
// shard of the weights.
class Trainer {
 public:
  Trainer(Context& context, Model& model, const TrainOptions& options,
          const TrainingGroup& group = {});
  ~Trainer();

  // Forward and backward of each micro-batch, then one clipped update with the gradient of
  // the mean loss over all their labels. Errors: INVALID_ARGUMENT without a batch or without a
  // label of positive weight; NON_FINITE after max_non_finite_steps updates in a row that were
  // skipped or had a loss of a diverged model; exceptions of the model. Errors other
  // than NON_FINITE and PEER_LOST leave the trainer unchanged, except that they may follow a due
  // pruning.
  // Collective: an error of one rank is thrown by all, as AgreedError.
  StepResult step(std::span<const Batch> micro_batches);
  // The same from host memory; one micro-batch is on the device at a time.
  StepResult step(std::span<const PackedBatchHost> micro_batches);

  // step() in two halves, so that an accelerator has the next update before this one is done.
  // submit() starts an update. await() waits for the oldest update in flight and returns its
  // result, or throws what step() throws. At most kMaxInFlight may be in flight; all must be
  // awaited before any other use of the trainer or the model. Collective. With a group, an error
  // of submit() is thrown by await(), and ends all updates in flight.
  static constexpr size_t kMaxInFlight = StreamDevice::kEvents / 2;
  void submit(std::span<const PackedBatchHost> micro_batches, Vote vote = Vote::none);
  StepResult await();
  size_t in_flight() const { return in_flight_.size(); }
  // False if a step is done when submit() returns, so that there is nothing to gain from several in
  // flight: on the CPU, and without fused kernels, because reference ops read values on the host.
  bool works_ahead() const { return stream_ != nullptr && context_.fused_kernels(); }

  // Allocates the memory for micro-batches of these sizes. They and smaller ones then allocate
  // nothing. Without this call, memory is allocated as larger batches come.
  void reserve(std::span<const BatchBucket> buckets);
  // Steps that were recorded as graphs are recorded again: they have the earlier GEMM kernels.
  void drop_graphs() { gradients_->drop_graphs(); }
  // Allocations of steps on the CPU that the plan did not have: none with fused kernels.
  int64_t unplanned_allocations() const { return gradients_->unplanned_allocations(); }

  // NON_FINITE if that many of the last updates in a row, or more, had the loss of a diverged
  // model: above 2 ln V + 20 a token, where guessing among all V tokens gives ln V.
  void check_loss(int64_t in_a_row) const;

  const TrainOptions& options() const { return options_; }
  const TrainerState& state() const { return state_; }
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
    return optimizer_->state_bytes() + (pruned_weights_ ? pruned_weights_->bytes() : 0);
  }
  int64_t fp8_bytes() const;  // of the copies of the weights; 0 without fp8
  const TrainingGroup& group() const { return group_; }
  ElementRange own_lanes() const { return lanes_ ? lanes_->own() : ElementRange{0, 1}; }

  // Collective, and nothing with one rank. A rank updates its shard of the masters and of their
  // EMA. The model computes with rounded values, which all ranks get in every update; masters that
  // have more digits than these are completed here, before anybody reads them.
  void complete_masters();
  // The same, and the EMA of the weights.
  void complete_weights();
  // When the group has ended: what was not completed gets the digits of the rounded values.
  void replace_incomplete_masters() noexcept;
  // Collective, and nothing with one rank. Collects the optimizer states on rank 0, where
  // copy_optimizer() needs them, and drops them.
  void gather_optimizer();
  void drop_gathered() { gathered_.reset(); }
  // Collective, after a restore on rank 0 whose commit the other ranks follow with this call: they
  // get the optimizer states, and all ranks the weights and the EMA of rank 0.
  void follow_root();

  bool has_ema() const { return optimizer_->ema().defined(); }
  // The weights to use: the EMA, or the model's own weights if there is no EMA or no update yet.
  // Same layout as ParameterStore::master().
  const Tensor& ema_weights() const;
  // The EMA tensor itself, which restoring a run fills.
  const Tensor& ema() const { return optimizer_->ema(); }

  // The contents of optimizer.safetensors, see optimizer_io.h. With several ranks they point to
  // what gather_optimizer() has collected.
  TensorFile copy_optimizer(const HostAllocator& allocate = plain_host_buffer) const;
  void write_optimizer(ByteSink& sink) const { copy_optimizer().write(sink); }
  // CORRUPT_FILE, or INVALID_ARGUMENT if the file has states of another optimizer or another
  // OptimizerStates. Changes
  // nothing if it throws.
  void restore(const SafetensorsReader& optimizer, const TrainerState& state);
  // A staged restore, together with the tensors of other files: stage_optimizer() may throw and
  // changes nothing; resume_from() follows the commit of `staged`.
  void stage_optimizer(const SafetensorsReader& optimizer, StagedTensors& staged) const;
  void resume_from(const TrainerState& state);

 private:
  double far_off_loss() const;
  // An update that was submitted and not yet awaited.
  struct InFlight {
    StepResult result;
    const UpdateRecord* record;  // filled in when its event has passed
    uint64_t passes_before = 0;
  };
  using Accumulate = std::function<void(size_t batch, uint32_t pass, bool first)>;
  void start(const StepResult& result, size_t batches, Vote vote, const Accumulate& accumulate);
  void add_gradients(size_t batches, const Accumulate& accumulate);
  LaneSums::Added squares_of_parts();
  void update_shard();
  void update_in_parts(const Tensor& whole, int parts);
  bool may_leave_masters() const;
  void prepare_pruning();
  int64_t next_update() const;
  void prune_weights();
  static int record_event(size_t record);
  [[noreturn]] void fail_together(uint64_t passes_before);
  std::vector<size_t> shard_bytes(const Tensor& workspace) const;
  void require_idle() const;
  void swap_weights_and_ema();

  friend class EmaWeights;
  Context& context_;
  Model& model_;
  TrainOptions options_;
  TrainingGroup group_;
  LabelSmoothedCrossEntropy objective_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Fp8Weights> fp8_weights_;      // with TrainOptions::fp8
  std::optional<PrunedWeights> pruned_weights_;  // of a run that prunes or keeps zeros
  Schedule schedule_;
  ClippedUpdate update_;
  LossSums sums_;
  Tensor swap_buffer_;  // scratch for swapping the weights with their EMA
  // Memory of the host that `stream` has pinned.
  struct PinnedRelease {
    StreamDevice* stream;
    void operator()(void* block) const noexcept;
  };
  using PinnedBlock = std::unique_ptr<void, PinnedRelease>;
  PinnedBlock pinned(size_t bytes);

  StreamDevice* stream_;  // null on the CPU
  PinnedBlock pinned_records_, pinned_votes_;
  std::unique_ptr<GradientStep> gradients_;
  TrainerState state_;
  std::deque<InFlight> in_flight_;
  UpdateRecord* records_ = nullptr;  // kMaxInFlight of them; pinned on an accelerator
  std::vector<UpdateRecord> host_records_;
  size_t next_record_ = 0;
  // With several lanes or ranks:
  std::unique_ptr<LaneSums> lanes_;
  Tensor partials_;  // sums of squares of the gradient, of all shards
  bool masters_complete_ = true;
  std::byte* votes_ = nullptr;  // LaneSums::votes() for each record
  std::vector<std::byte> host_votes_;
  std::optional<Error> failure_;  // of this rank, until all ranks know of it
  std::optional<std::vector<HostBuffer>> gathered_;
};

// During its lifetime the model computes with Trainer::ema_weights(). No update may be in flight or
// submitted, and nothing may be saved.
class EmaWeights {
 public:
  explicit EmaWeights(Trainer& trainer);
  ~EmaWeights();
  EmaWeights(const EmaWeights&) = delete;
  EmaWeights& operator=(const EmaWeights&) = delete;

 private:
  Trainer& trainer_;
  bool active_;
};

}  // namespace trafo
