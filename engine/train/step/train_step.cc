// The training step: upload, forward, backward, reduce, update. TrainingRun::submit_update packs
// the batches.
#include <new>

#include "engine/backend/tf32.h"
#include "engine/train/step/trainer.h"

namespace trafo {

// Batch i is forward pass number `forward_passes` + i of the run, in lane i mod `lanes`. A lane
// adds up the gradients of its batches; `lanes_` adds all lanes and ranks. On an accelerator the
// host only issues work.
template <class AnyBatch>
void Trainer::train_step(std::span<const AnyBatch> batches, const StepResult& totals, Vote vote) {
  const PhaseRange step(context_, "step", true);
  const uint64_t passes = state_.forward_passes;
  state_.forward_passes = passes + batches.size();
  const bool works_ahead = this->works_ahead();
  try {
    const Tf32Scope tf32(context_.backend(), options_.tf32);
    const StepScope fp8(context_, &StepContext::fp8_weights, fp8_weights_.get());
    prepare_weights();
    const StepScope observed(context_, &StepContext::observer,
                             lanes_ ? lanes_->observer() : nullptr);
    const auto lanes = static_cast<size_t>(options_.lanes);
    for (int64_t lane = own_lanes().begin; lane < own_lanes().end && !failure_; ++lane) {
      bool first = true;
      for (auto i = static_cast<size_t>(lane); i < batches.size(); i += lanes, first = false) {
        {
          const StepMemory::Scope planned(*memory_);
          const MicroBatch micro =
              memory_->upload(batches[i], static_cast<uint32_t>(passes + i), totals.units, first);
          if (!memory_->has_graph()) {
            MicroBatchPass pass(context_, model_, micro, options_.recompute);
            const ObjectiveOutput loss = pass.forward(*objective_);
            pass.backward(loss, sums_);
          }
        }
        memory_->replay();
      }
      if (!lanes_) continue;
      if (first) lanes_->clear();
      lanes_->add_lane(lane);
    }
  } catch (...) {
    keep_failure();
  }
  const auto in_flight = static_cast<int64_t>(queue_.size());
  update_.prepare(state_.update + 1, state_.update + 1 + in_flight);
  const PhaseRange phase(context_, "update", true);
  queue_.push(totals, passes);
  if (lanes_) lanes_->reduce(failure_ ? Vote::failed : vote, weights_.squares_of_parts());
  if (pruning_) pruning_->mask_gradient();
  weights_.update(sums_);
  queue_.copy_back(update_.record(), sums_.metrics(), lanes_ ? lanes_->votes() : Tensor{},
                   !works_ahead);
  // Without graphs, thousands of launches would wait for an exchange. A full queue may stop the
  // other ranks of the process from launching what the exchange waits for.
  if (works_ahead && group_.has_peers() && !context_.graphs()) queue_.newest();
}

// Nothing changes weights from here on.
void Trainer::prepare_weights() {
  if (failure_) return;
  const int64_t next = state_.update + 1, latest = next + static_cast<int64_t>(queue_.size());
  // The number of the next update depends on whether those in flight are skipped: wait for them.
  if (pruning_ && pruning_->is_due(next, latest))
    pruning_->prune_before(queue_.empty() ? next : queue_.newest().updates + 1);
  if (fp8_weights_) fp8_weights_->refresh(context_);
}

// Inside a catch block. With peers, an error of this rank is kept for the vote: it has to take part
// in what the others do with their gradients.
void Trainer::keep_failure() {
  if (!group_.has_peers()) throw;
  try {
    throw;
  } catch (const Error& error) {
    failure_ = error;
  } catch (const std::bad_alloc&) {
    failure_ = Error(ErrorCode::out_of_memory, "trainer", "no memory is left");
  } catch (const std::exception& error) {
    failure_ = Error(ErrorCode::internal, "trainer", error.what());
  }
}

// After an error nothing has changed.
template <class AnyBatch>
void Trainer::submit_batches(std::span<const AnyBatch> batches, const StepResult& totals,
                             Vote vote) {
  const size_t before = queue_.size();
  require(before < (works_ahead() ? kMaxInFlight : 1), ErrorCode::invalid_argument, "trainer",
          before, " updates are in flight, await one first");
  const uint64_t passes_before = state_.forward_passes;
  try {
    train_step(batches, totals, vote);
  } catch (...) {
    queue_.shrink(before);
    state_.forward_passes = passes_before;
    model_.parameters().zero_grad();
    throw;
  }
  model_.parameters().zero_grad();
}

template void Trainer::submit_batches(std::span<const PackedBatchHost>, const StepResult&, Vote);
template void Trainer::submit_batches(std::span<const Batch>, const StepResult&, Vote);

}  // namespace trafo
