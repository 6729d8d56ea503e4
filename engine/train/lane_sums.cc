#include "engine/train/lane_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/ops/view/view.h"

namespace trafo {
namespace {

constexpr const char* kLaneSumsOrigin = "lane sums";

// Sums that wait at the same time while these lanes are added.
size_t most_waiting(const ElementRange& lanes) {
  size_t most = 0;
  for (int64_t past = lanes.begin + 1; past < lanes.end; ++past)
    most = std::max(most, lane_nodes({lanes.begin, past}).size());
  return most;
}

}  // namespace

LaneSums::LaneSums(Context& context, ParameterStore& parameters, const LossSums& sums,
                   int64_t lanes, Recompute recompute, const TrainingGroup& group)
    : context_(context),
      parameters_(parameters),
      sums_(sums),
      lanes_(lanes),
      group_(group),
      own_(lanes_of(group.rank, group.size, lanes)),
      shard_(shard_of(group.rank, group.size, parameters.flat().numel())) {
  require(lanes >= group.size, ErrorCode::invalid_argument, kLaneSumsOrigin, "lanes is ", lanes,
          " and the group has ", group.size, " ranks: each needs a lane of its own");
  const Tensor& gradient = parameters.flat_grad();
  const size_t waiting = most_waiting(own_);
  for (size_t i = 0; i < waiting; ++i)
    buffers_.push_back({{},
                        context.empty(gradient.shape(), gradient.dtype()),
                        context.empty({1}, sums.loss.dtype()),
                        context.empty({1}, sums.nll.dtype())});
  if (!group.has_peers()) return;
  size_t most = 0, all = 0;
  for (int rank = 0; rank < group.size; ++rank) {
    nodes_.push_back(lane_nodes(lanes_of(rank, group.size, lanes)));
    most = std::max(most, nodes_.back().size());
    all += nodes_.back().size();
  }
  row_width_ = 1 + 2 * static_cast<int64_t>(most);
  rows_ = context.zeros({group.size, row_width_}, sums.loss.dtype());
  staged_nodes_ = static_cast<int64_t>(all - nodes_[static_cast<size_t>(group.rank)].size());
  beside_ = lanes == group.size && recompute == Recompute::none && group.overlaps();
  if (beside_ && group.communicator)
    marks_ = std::make_unique<GradientMarks>(context, parameters, *group.communicator);
}

void LaneSums::reserve() {
  staging_ = {};
  const int64_t elements = staged_nodes_ * shard_.count();
  if (elements == 0) return;
  const DType dtype = parameters_.flat_grad().dtype();
  Backend& backend = context_.backend();
  const size_t bytes = static_cast<size_t>(elements) * dtype_size(dtype);
  // On an accelerator the memory of a step is idle between steps, and work is in stream order.
  if (!beside_ && backend.stream_device() != nullptr && backend.arena_bytes() >= bytes) {
    own_staging_ = {};
    const auto idle = std::make_shared<Storage>(nullptr, context_.device(), backend.arena_memory(),
                                                backend.arena_bytes());
    staging_ = Tensor(idle, dtype, {elements}, {1}, 0);
    return;
  }
  if (!own_staging_.defined()) own_staging_ = context_.empty({elements}, dtype);
  staging_ = own_staging_;
}

Tensor LaneSums::part(const Tensor& workspace, const ElementRange& range) const {
  return workspace.as_strided({range.count()}, {1}, workspace.offset() + range.begin);
}

void LaneSums::clear() {
  cleared_ = true;
  parameters_.zero_grad();
  parameters_.complete_grads(context_);
  for (const Tensor& sum : {sums_.loss, sums_.nll})
    context_.backend().fill_zero(sum.raw(), sum.bytes());
}

void LaneSums::add_lane(int64_t lane) {
  if (lane == own_.begin) waiting_.clear();
  LaneNode node{0, lane};
  const Tensor& gradient = parameters_.flat_grad();
  while (!waiting_.empty() && are_halves(waiting_.back(), node)) {
    const Sum& left = buffers_[waiting_.size() - 1];
    accumulate_into(context_, gradient, left.gradient);
    accumulate_into(context_, sums_.loss, left.loss);
    accumulate_into(context_, sums_.nll, left.nll);
    node = {node.level + 1, node.index / 2};
    waiting_.pop_back();
  }
  if (lane + 1 == own_.end) return;
  const Sum& to = buffers_[waiting_.size()];
  Backend& backend = context_.backend();
  backend.copy(to.gradient.raw(), gradient.raw(), gradient.bytes());
  backend.copy(to.loss.raw(), sums_.loss.raw(), sums_.loss.bytes());
  backend.copy(to.nll.raw(), sums_.nll.raw(), sums_.nll.bytes());
  waiting_.push_back(node);
}

void LaneSums::reduce(Vote vote) {
  if (!group_.has_peers()) {  // left halves whose right half ends with the last lane
    for (; !waiting_.empty(); waiting_.pop_back()) {
      const Sum& left = buffers_[waiting_.size() - 1];
      accumulate_into(context_, parameters_.flat_grad(), left.gradient);
      accumulate_into(context_, sums_.loss, left.loss);
      accumulate_into(context_, sums_.nll, left.nll);
    }
    return;
  }
  reserve();  // the memory of the steps may have moved
  write_row(vote);
  exchange(vote);
  add_losses();
  add_shard();
}

void LaneSums::write_row(Vote vote) {
  Backend& backend = context_.backend();
  const size_t element = dtype_size(rows_.dtype());
  auto* row = static_cast<std::byte*>(rows_.raw()) +
              static_cast<size_t>(group_.rank * row_width_) * element;
  const auto fill = [&]<class T>(T) {
    const std::vector<T> values(static_cast<size_t>(row_width_),
                                vote == Vote::failed ? std::numeric_limits<T>::quiet_NaN() : T{0});
    const auto ballot = static_cast<T>(vote);
    backend.copy_from_host(row, values.data(), values.size() * sizeof(T));
    backend.copy_from_host(row, &ballot, sizeof ballot);
  };
  if (rows_.dtype() == DType::f64)
    fill(0.0);
  else
    fill(0.0f);
  if (vote == Vote::failed) return;
  const size_t nodes = nodes_[static_cast<size_t>(group_.rank)].size();
  for (size_t i = 0; i < nodes; ++i) {
    const bool home = i + 1 == nodes;
    const Tensor& loss = home ? sums_.loss : buffers_[i].loss;
    const Tensor& nll = home ? sums_.nll : buffers_[i].nll;
    backend.copy(row + (1 + 2 * i) * element, loss.raw(), element);
    backend.copy(row + (2 + 2 * i) * element, nll.raw(), element);
  }
}

struct LaneSums::Pieces {
  std::vector<SendPiece> sends;
  std::vector<ReceivePiece> receives;
};

// What is in `range` of all nodes: it goes to the owners of the shards.
void LaneSums::add_pieces(const ElementRange& range, Pieces& pieces) const {
  const Tensor& gradient = parameters_.flat_grad();
  const size_t element = dtype_size(gradient.dtype());
  const auto common = [&](const ElementRange& shard) {
    const int64_t begin = std::max(range.begin, shard.begin);
    return ElementRange{begin, std::max(begin, std::min(range.end, shard.end))};
  };
  const ElementRange mine = common(shard_);
  int64_t staged = 0;
  for (int peer = 0; peer < group_.size; ++peer) {
    if (peer == group_.rank) continue;
    const ElementRange theirs = common(shard_of(peer, group_.size, gradient.numel()));
    const size_t nodes = nodes_[static_cast<size_t>(group_.rank)].size();
    for (size_t i = 0; i < nodes && theirs.count() > 0; ++i) {
      const Tensor piece = part(i + 1 == nodes ? gradient : buffers_[i].gradient, theirs);
      pieces.sends.push_back({peer, piece.raw(), piece.bytes()});
    }
    const auto their_nodes = static_cast<int64_t>(nodes_[static_cast<size_t>(peer)].size());
    for (int64_t i = 0; i < their_nodes && mine.count() > 0; ++i) {
      const int64_t at = (staged + i) * shard_.count() + mine.begin - shard_.begin;
      pieces.receives.push_back(
          {peer, static_cast<std::byte*>(staging_.raw()) + static_cast<size_t>(at) * element,
           static_cast<size_t>(mine.count()) * element});
    }
    staged += their_nodes;
  }
}

// All rows, to everyone.
void LaneSums::add_rows(Pieces& pieces) const {
  const size_t bytes = static_cast<size_t>(row_width_) * dtype_size(rows_.dtype());
  auto* rows = static_cast<std::byte*>(rows_.raw());
  for (int peer = 0; peer < group_.size; ++peer) {
    if (peer == group_.rank) continue;
    pieces.sends.push_back({peer, rows + static_cast<size_t>(group_.rank) * bytes, bytes});
    pieces.receives.push_back({peer, rows + static_cast<size_t>(peer) * bytes, bytes});
  }
}

// In one exchange or, with marks, in one for each part of the gradient, which may come while the
// backward pass still runs, and one for the rows.
void LaneSums::exchange(Vote vote) {
  Communicator& group = *group_.communicator;
  Pieces pieces;
  if (marks_) {
    if (vote == Vote::failed || std::exchange(cleared_, false)) marks_->set_all();
    for (size_t i = marks_->parts().size(); i-- > 0;) {
      pieces = {};
      add_pieces(marks_->parts()[i], pieces);
      group.exchange_after(static_cast<int>(i), pieces.sends, pieces.receives);
    }
    group.join();
    pieces = {};
  } else {
    add_pieces({0, parameters_.flat_grad().numel()}, pieces);
  }
  add_rows(pieces);
  group.exchange(pieces.sends, pieces.receives);
}

void LaneSums::add_losses() {
  std::vector<std::pair<LaneNode, Tensor>> all;
  for (size_t rank = 0; rank < nodes_.size(); ++rank)
    for (size_t i = 0; i < nodes_[rank].size(); ++i)
      all.emplace_back(nodes_[rank][i], rows_.as_strided({2}, {1},
                                                         static_cast<int64_t>(rank) * row_width_ +
                                                             1 + 2 * static_cast<int64_t>(i)));
  const Tensor total = sum_of_lanes(all, [&](const Tensor& left, const Tensor& right) {
    accumulate_into(context_, left, right);
    return left;
  });
  const auto* both = static_cast<const std::byte*>(total.raw());
  context_.backend().copy(sums_.loss.raw(), both, sums_.loss.bytes());
  context_.backend().copy(sums_.nll.raw(), both + sums_.loss.bytes(), sums_.nll.bytes());
}

void LaneSums::add_shard() {
  const Tensor& gradient = parameters_.flat_grad();
  if (shard_.count() == 0) return;
  const Tensor home = part(gradient, shard_);
  std::vector<std::pair<LaneNode, Tensor>> all;
  int64_t staged = 0;
  for (size_t rank = 0; rank < nodes_.size(); ++rank)
    for (size_t i = 0; i < nodes_[rank].size(); ++i) {
      Tensor value;
      if (rank != static_cast<size_t>(group_.rank))
        value = part(staging_, {staged * shard_.count(), (staged + 1) * shard_.count()}), ++staged;
      else
        value = i + 1 == nodes_[rank].size() ? home : part(buffers_[i].gradient, shard_);
      all.emplace_back(nodes_[rank][i], value);
    }
  // Additions commute, so that the sum may end in its place, the flat gradient.
  sum_of_lanes(all, [&](const Tensor& left, const Tensor& right) {
    const bool to_right = same_tensor(right, home);
    const Tensor& to = to_right ? right : left;
    accumulate_into(context_, to, to_right ? left : right);
    return to;
  });
  gradient.mark_written();
}

Vote LaneSums::highest_vote(const void* host_copy) const {
  int32_t highest = 0;
  for (int64_t rank = 0; rank < group_.size; ++rank) {
    const int64_t at = rank * row_width_;
    const double vote = rows_.dtype() == DType::f64
                            ? static_cast<const double*>(host_copy)[at]
                            : static_cast<double>(static_cast<const float*>(host_copy)[at]);
    highest = std::max(highest, static_cast<int32_t>(vote));
  }
  return static_cast<Vote>(highest);
}

}  // namespace trafo
