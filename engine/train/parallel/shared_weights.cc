#include "engine/train/parallel/shared_weights.h"

#include "engine/ops/cast/cast.h"
#include "engine/train/checkpoint/optimizer_io.h"

namespace trafo {

SharedWeights::SharedWeights(Context& context, ParameterStore& parameters, Optimizer& optimizer,
                             ClippedUpdate& update, const TrainingGroup& group, bool prunes)
    : context_(context),
      parameters_(parameters),
      optimizer_(optimizer),
      update_(update),
      group_(group),
      prunes_(prunes) {
  if (group.has_peers())
    partials_ = context.zeros(
        {(parameters.flat().numel() + kSquaresElements - 1) / kSquaresElements}, DType::f64);
}

LaneSums::Added SharedWeights::squares_of_parts() {
  if (!group_.has_peers() || prunes_) return {};
  return [this](const ElementRange& range) { update_.square(partials_, range); };
}

void SharedWeights::update(const StepSums& sums) {
  if (group_.has_peers()) return update_shard(sums);
  update_.run(sums.loss(), sums.nll());
  if (parameters_.quantize_bits() != 0) parameters_.follow_update(context_);
}

void SharedWeights::update_shard(const StepSums& sums) {
  Communicator& group = *group_.communicator;
  if (prunes_) update_.square(partials_, optimizer_.shard());
  std::vector<size_t> partial_begins;
  for (const size_t begin : shard_bytes(parameters_.flat_grad()))
    partial_begins.push_back(
        (begin / dtype_size(parameters_.flat_grad().dtype()) + kSquaresElements - 1) /
        kSquaresElements * sizeof(double));
  group.all_gather(partials_.raw(), partial_begins);
  const Tensor& whole = may_leave_masters() ? parameters_.flat() : parameters_.master();
  const int parts = group_.shard_parts(whole.bytes() / static_cast<size_t>(group_.size));
  if (optimizer_.needs_whole_matrices()) {
    // A matrix may be in several shards.
    update_.run_part(sums.loss(), sums.nll(), partials_, optimizer_.shard(), false);
    const Tensor& directions = parameters_.flat_grad();
    group.all_gather(directions.raw(), shard_bytes(directions));
    directions.mark_written();
    update_.finish();
    group.all_gather(whole.raw(), shard_bytes(whole));
  } else if (parts == 1) {
    update_.run(sums.loss(), sums.nll(), partials_);
    group.all_gather(whole.raw(), shard_bytes(whole));
  } else {
    update_in_parts(sums, whole, parts);
  }
  whole.mark_written();
  complete_ = !may_leave_masters();
  if (complete_) parameters_.follow_master(context_);
}

// A part of the shard is sent while the next one is updated.
void SharedWeights::update_in_parts(const StepSums& sums, const Tensor& whole, int parts) {
  Communicator& group = *group_.communicator;
  const size_t element = dtype_size(whole.dtype());
  for (int part = 0; part < parts; ++part) {
    update_.run_part(sums.loss(), sums.nll(), partials_,
                     part_of_shard(optimizer_.shard(), part, parts), part > 0);
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
// shard itself. Codes, pruning and some optimizers depend on whole matrices.
bool SharedWeights::may_leave_masters() const {
  return parameters_.dtype() == DType::bf16 && parameters_.quantize_bits() == 0 && !prunes_ &&
         !optimizer_.reads_parameters();
}

// The first byte of each rank's shard, and the end.
std::vector<size_t> SharedWeights::shard_bytes(const Tensor& workspace) const {
  std::vector<size_t> begins;
  for (int rank = 0; rank < group_.size; ++rank)
    begins.push_back(static_cast<size_t>(shard_of(rank, group_.size, workspace.numel()).begin) *
                     dtype_size(workspace.dtype()));
  begins.push_back(workspace.bytes());
  return begins;
}

void SharedWeights::complete() {
  if (complete_) return;
  const Tensor& masters = parameters_.master();
  group_.communicator->all_gather(masters.raw(), shard_bytes(masters));
  masters.mark_written();
  complete_ = true;
}

void SharedWeights::complete_with_ema() {
  complete();
  const Tensor& ema = optimizer_.ema();
  if (!group_.has_peers() || !ema.defined()) return;
  group_.communicator->all_gather(ema.raw(), shard_bytes(ema));
  ema.mark_written();
}

void SharedWeights::replace_incomplete() noexcept {
  if (complete_) return;
  const Tensor& masters = parameters_.master();
  const ElementRange& own = optimizer_.shard();
  try {
    for (const ElementRange& range :
         {ElementRange{0, own.begin}, ElementRange{own.end, masters.numel()}}) {
      if (range.count() == 0) continue;
      const auto part = [&](const Tensor& workspace) {
        return workspace.as_strided({range.count()}, {1}, workspace.offset() + range.begin);
      };
      convert_into(context_, part(masters), part(parameters_.flat()));
    }
    complete_ = true;
  } catch (const std::exception&) {  // the device is lost, and the weights with it
  }
}

void SharedWeights::follow_root() {
  Communicator& group = *group_.communicator;
  if (group_.rank != 0) receive_states(context_, parameters_, optimizer_, group_);
  const auto follow = [&](const Tensor& tensor) {
    group.broadcast(tensor.raw(), tensor.bytes(), 0);
    tensor.mark_written();
  };
  follow(parameters_.master());
  complete_ = true;
  if (optimizer_.ema().defined()) follow(optimizer_.ema());
  for (size_t i = 0; i < parameters_.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!parameters_.trainable(id)) follow(parameters_.stored(id));
  }
  parameters_.follow_master(context_);
}

}  // namespace trafo
