// Trainer: what several lanes and ranks need.
#include <algorithm>
#include <new>

#include "engine/autograd/gradient_watch.h"
#include "engine/nn/fp8_weights.h"
#include "engine/ops/cast/cast.h"
#include "engine/train/checkpoint/optimizer_io.h"
#include "engine/train/step/trainer.h"

namespace trafo {
namespace {

constexpr const char* kTrainerGroupOrigin = "trainer";

}  // namespace

// Leaves the flat gradient and the sums of the losses to LaneSums, or to the update if there is one
// lane. With peers, an error of this rank is kept for the vote: it has to take part in what the
// others do with their gradients.
void Trainer::add_gradients(size_t batches, const Accumulate& accumulate) {
  const uint64_t passes = state_.forward_passes;
  const auto add_lanes = [&] {
    prune_weights();
    if (fp8_weights_) fp8_weights_->refresh(context_);  // nothing changes weights from here on
    const GradientWatch watch(lanes_ ? lanes_->observer() : nullptr);
    const auto lanes = static_cast<size_t>(options_.lanes);
    for (int64_t lane = own_lanes().begin; lane < own_lanes().end; ++lane) {
      bool first = true;
      for (auto i = static_cast<size_t>(lane); i < batches; i += lanes, first = false)
        accumulate(i, static_cast<uint32_t>(passes + i), first);
      if (!lanes_) continue;
      if (first) lanes_->clear();
      lanes_->add_lane(lane);
    }
  };
  if (!group_.has_peers()) {
    add_lanes();
  } else if (!failure_) {
    try {
      add_lanes();
    } catch (const Error& error) {
      failure_ = error;
    } catch (const std::bad_alloc&) {
      failure_ = Error(ErrorCode::out_of_memory, kTrainerGroupOrigin, "no memory is left");
    } catch (const std::exception& error) {
      failure_ = Error(ErrorCode::internal, kTrainerGroupOrigin, error.what());
    }
  }
  state_.forward_passes = passes + batches;
}

// Inputs of update_shard() for each part of the shard, where nothing changes the gradient before.
LaneSums::Added Trainer::squares_of_parts() {
  if (!group_.has_peers() || pruned_weights_) return {};
  return [this](const ElementRange& range) { update_.square(partials_, range); };
}

// Every rank decides from the same partial sums, and so alike. Then it updates its shard.
void Trainer::update_shard() {
  ParameterStore& parameters = model_.parameters();
  Communicator& group = *group_.communicator;
  if (pruned_weights_) update_.square(partials_, optimizer_->shard());
  std::vector<size_t> partial_begins;
  for (const size_t begin : shard_bytes(parameters.flat_grad()))
    partial_begins.push_back(
        (begin / dtype_size(parameters.flat_grad().dtype()) + kSquaresElements - 1) /
        kSquaresElements * sizeof(double));
  group.all_gather(partials_.raw(), partial_begins);
  const Tensor& whole = may_leave_masters() ? parameters.flat() : parameters.master();
  const int parts = group_.shard_parts(whole.bytes() / static_cast<size_t>(group_.size));
  if (optimizer_->needs_whole_matrices()) {
    // A matrix may be in several shards.
    update_.run_part(sums_.loss, sums_.nll, partials_, optimizer_->shard(), false);
    const Tensor& directions = parameters.flat_grad();
    group.all_gather(directions.raw(), shard_bytes(directions));
    directions.mark_written();
    update_.finish();
    group.all_gather(whole.raw(), shard_bytes(whole));
  } else if (parts == 1) {
    update_.run(sums_.loss, sums_.nll, partials_);
    group.all_gather(whole.raw(), shard_bytes(whole));
  } else {
    update_in_parts(whole, parts);
  }
  whole.mark_written();
  masters_complete_ = !may_leave_masters();
  if (masters_complete_) parameters.follow_master(context_);
}

// A part of the shard is sent while the next one is updated.
void Trainer::update_in_parts(const Tensor& whole, int parts) {
  Communicator& group = *group_.communicator;
  const size_t element = dtype_size(whole.dtype());
  for (int part = 0; part < parts; ++part) {
    update_.run_part(sums_.loss, sums_.nll, partials_,
                     part_of_shard(optimizer_->shard(), part, parts), part > 0);
    group.set_mark(part);
    std::vector<Communicator::ByteRange> ranges;
    for (int rank = 0; rank < group_.size; ++rank) {
      const ElementRange of_rank =
          part_of_shard(shard_of(rank, group_.size, whole.numel()), part, parts);
      ranges.emplace_back(static_cast<size_t>(of_rank.begin) * element,
                          static_cast<size_t>(of_rank.end) * element);
    }
    group.all_gather_after(part, whole.raw(), ranges);
  }
  group.join();
}

// Whether the next update needs no more than the shard of the masters: the optimizer rounds its
// shard itself. Codes and pruning depend on whole matrices.
bool Trainer::may_leave_masters() const {
  const ParameterStore& parameters = model_.parameters();
  return parameters.dtype() == DType::bf16 && parameters.quantize_bits() == 0 && !pruned_weights_;
}

// The first byte of each rank's shard, and the end.
std::vector<size_t> Trainer::shard_bytes(const Tensor& workspace) const {
  std::vector<size_t> begins;
  for (int rank = 0; rank < group_.size; ++rank)
    begins.push_back(static_cast<size_t>(shard_of(rank, group_.size, workspace.numel()).begin) *
                     dtype_size(workspace.dtype()));
  begins.push_back(workspace.bytes());
  return begins;
}

// No update from the failed one on was applied, because the rank that failed has contributed a loss
// that is not a number to each of them.
void Trainer::fail_together(uint64_t passes_before) {
  if (stream_) context_.backend().synchronize();
  in_flight_.clear();
  state_.forward_passes = passes_before;
  optimizer_->set_steps(state_.update);
  const std::optional<Error> mine = std::exchange(failure_, std::nullopt);
  agree(*group_.communicator, mine);
  fail(ErrorCode::internal, kTrainerGroupOrigin, "a rank has failed and does not say why");
}

void Trainer::complete_masters() {
  if (masters_complete_) return;
  const Tensor& masters = model_.parameters().master();
  group_.communicator->all_gather(masters.raw(), shard_bytes(masters));
  masters.mark_written();
  masters_complete_ = true;
}

void Trainer::replace_incomplete_masters() noexcept {
  if (masters_complete_) return;
  const ParameterStore& parameters = model_.parameters();
  const Tensor& masters = parameters.master();
  const ElementRange& own = optimizer_->shard();
  try {
    for (const ElementRange& range :
         {ElementRange{0, own.begin}, ElementRange{own.end, masters.numel()}}) {
      if (range.count() == 0) continue;
      const auto part = [&](const Tensor& workspace) {
        return workspace.as_strided({range.count()}, {1}, workspace.offset() + range.begin);
      };
      convert_into(context_, part(masters), part(parameters.flat()));
    }
    masters_complete_ = true;
  } catch (const std::exception&) {  // the device is lost, and the weights with it
  }
}

void Trainer::complete_weights() {
  require_idle();
  complete_masters();
  if (!group_.has_peers() || !has_ema()) return;
  group_.communicator->all_gather(optimizer_->ema().raw(), shard_bytes(optimizer_->ema()));
  optimizer_->ema().mark_written();
}

void Trainer::gather_optimizer() {
  require_idle();
  if (!group_.has_peers()) return;
  gathered_ = gather_states(context_, model_.parameters(), *optimizer_, group_);
  group_.communicator->check();
}

void Trainer::follow_root() {
  ParameterStore& parameters = model_.parameters();
  Communicator& group = *group_.communicator;
  if (group_.rank != 0) receive_states(context_, parameters, *optimizer_, group_);
  const auto follow = [&](const Tensor& tensor) {
    group.broadcast(tensor.raw(), tensor.bytes(), 0);
    tensor.mark_written();
  };
  follow(parameters.master());
  masters_complete_ = true;
  if (has_ema()) follow(optimizer_->ema());
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!parameters.trainable(id)) follow(parameters.value(id));
  }
  parameters.follow_master(context_);
}

}  // namespace trafo
