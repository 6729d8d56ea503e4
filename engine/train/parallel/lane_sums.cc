#include "engine/train/parallel/lane_sums.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/core/argument_error.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

constexpr const char* kLaneSumsOrigin = "lane sums";
constexpr size_t kStagingAlignment = 256;  // bytes

// Sums that wait at the same time while these lanes are added.
size_t most_waiting(const ElementRange& lanes) {
  size_t most = 0;
  for (int64_t past = lanes.begin + 1; past < lanes.end; ++past)
    most = std::max(most, lane_nodes({lanes.begin, past}).size());
  return most;
}

std::vector<std::vector<LaneNode>> nodes_by_rank(int size, int64_t lanes) {
  std::vector<std::vector<LaneNode>> nodes;
  for (int rank = 0; rank < size; ++rank) nodes.push_back(lane_nodes(lanes_of(rank, size, lanes)));
  return nodes;
}

size_t node_count(const std::vector<std::vector<LaneNode>>& nodes) {
  size_t count = 0;
  for (const auto& of_rank : nodes) count += of_rank.size();
  return count;
}

ElementRange common_of(const ElementRange& a, const ElementRange& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace

LaneSums::LaneSums(Context& context, ParameterStore& parameters, const StepSums& sums,
                   const TrainOptions& options, const TrainingGroup& group)
    : context_(context),
      parameters_(parameters),
      sums_(sums),
      lanes_(options.lanes),
      rounds_(options.communication_dtype == CommunicationDType::bfloat16),
      group_(group),
      own_(lanes_of(group.rank, group.size, lanes_)),
      shard_(shard_of(group.rank, group.size, parameters.flat().numel())),
      nodes_(nodes_by_rank(group.size, lanes_)) {
  for (int part = 0; part < kMostShardParts; ++part)
    shard_trees_.emplace_back(context, node_count(nodes_));
  require_argument(lanes_ >= group.size, kLaneSumsOrigin, "lanes", " is ", lanes_,
                   " and the group has ", group.size, " ranks: each needs a lane of its own");
  const Tensor& gradient = parameters.flat_grad();
  require_argument(!rounds_ || gradient.dtype() == DType::f32, kLaneSumsOrigin,
                   "communication_dtype", " is bf16, and the gradients of this model are ",
                   dtype_name(gradient.dtype()), ": it is for float32 gradients");
  const size_t waiting = most_waiting(own_);
  for (size_t i = 0; i < waiting; ++i)
    buffers_.push_back({{},
                        context.empty(gradient.shape(), gradient.dtype()),
                        context.empty(sums.values().shape(), sums.values().dtype())});
  if (waiting > 0)
    for (int64_t lane = own_.begin; lane < own_.end; ++lane)
      lane_trees_.emplace_back(context, waiting + 1);
  if (!group.has_peers()) return;
  size_t most = 0;
  for (const auto& nodes : nodes_) most = std::max(most, nodes.size());
  row_width_ = 1 + sums.values().numel() * static_cast<int64_t>(most);
  rows_ = context.zeros({group.size, row_width_}, sums.values().dtype());
  find_hosts();
  plan_staging();
  beside_ = lanes_ == group.size && options.recompute == Recompute::none && group.overlaps() &&
            per_host_ == 1;
  if (!beside_) return;
  reserve();  // graphs of steps know this memory
  if (group.communicator)
    marks_ = std::make_unique<GradientMarks>(context, parameters, *group.communicator,
                                             [this](const ElementRange& range) { pack(range); });
}

size_t LaneSums::element_of(const LaneNode& node) const {
  return is_narrow(node) ? sizeof(BFloat16) : dtype_size(parameters_.flat_grad().dtype());
}

std::byte* LaneSums::home() const {
  return static_cast<std::byte*>(parameters_.flat_grad().raw());
}

std::byte* LaneSums::own_node(size_t i) const {
  return i + 1 == own_nodes() ? home() : static_cast<std::byte*>(buffers_[i].gradient.raw());
}

// Two levels, if there are several ranks on each host, and the lanes of a host are one node.
void LaneSums::find_hosts() {
  const int per_host = group_.ranks_per_host();
  if (per_host == 1) return;
  std::vector<LaneNode> nodes;
  for (int first = 0; first < group_.size; first += per_host) {
    const ElementRange begin = lanes_of(first, group_.size, lanes_);
    const ElementRange end = lanes_of(first + per_host - 1, group_.size, lanes_);
    const std::vector<LaneNode> of_host = lane_nodes({begin.begin, end.end});
    if (of_host.size() > 1) return;
    nodes.push_back(of_host[0]);
  }
  per_host_ = per_host;
  host_nodes_ = std::move(nodes);
  const int first = group_.rank / per_host * per_host;
  neighbours_ = {first, first + per_host};
  size_t elements = 0;
  for (int host = 0; host < group_.size; host += per_host) {
    column_.push_back(
        shard_of(host + group_.rank - first, group_.size, parameters_.flat_grad().numel()));
    column_begins_.push_back(elements);
    elements += static_cast<size_t>(column_.back().count());
    host_trees_.emplace_back(context_, node_count(nodes_));
  }
}

void LaneSums::plan_staging() {
  const int64_t all = parameters_.flat_grad().numel();
  int64_t column = shard_.count();
  if (per_host_ > 1) column = static_cast<int64_t>(column_begins_.back()) + column_.back().count();
  const int64_t packed = per_host_ > 1 ? all : all - shard_.count();
  for (int rank = 0; rank < group_.size; ++rank) {
    places_.emplace_back();
    for (const LaneNode& node : nodes_[static_cast<size_t>(rank)]) {
      places_.back().push_back(staging_bytes_);
      const bool comes = per_host_ == 1 || neighbours_.contains(rank);
      const int64_t elements = rank != group_.rank ? (comes ? column : 0)
                               : is_narrow(node)   ? packed
                                                   : 0;
      const size_t bytes = static_cast<size_t>(elements) * element_of(node);
      staging_bytes_ += (bytes + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment;
    }
  }
  // The sums of other hosts replace the sums of this host.
  if (per_host_ > 1)
    staging_bytes_ =
        std::max(staging_bytes_, host_nodes_.size() * static_cast<size_t>(shard_.count()) *
                                     dtype_size(parameters_.flat_grad().dtype()));
}

// Where element `element` of what has come of a node of another rank is.
std::byte* LaneSums::staged(int rank, size_t i, size_t element) const {
  const auto of_rank = static_cast<size_t>(rank);
  return static_cast<std::byte*>(staging_.raw()) + places_[of_rank][i] +
         element * element_of(nodes_[of_rank][i]);
}

void LaneSums::reserve() {
  staging_ = {};
  if (staging_bytes_ == 0) return;
  Backend& backend = context_.backend();
  const auto words = static_cast<int64_t>(staging_bytes_ / sizeof(int32_t));
  // On an accelerator the memory of a step is idle between steps, and work is in stream order.
  if (!beside_ && backend.stream_device() != nullptr && backend.arena_bytes() >= staging_bytes_) {
    own_staging_ = {};
    const auto idle = std::make_shared<Storage>(nullptr, context_.device(), backend.arena_memory(),
                                                backend.arena_bytes());
    staging_ = Tensor(idle, DType::i32, {words}, {1}, 0);
    return;
  }
  if (!own_staging_.defined()) own_staging_ = context_.empty({words}, DType::i32);
  staging_ = own_staging_;
}

void LaneSums::clear() {
  cleared_ = true;
  parameters_.zero_grad();
  parameters_.complete_grads(context_);
  sums_.clear(context_);
}

// The waiting left halves and the lane after them become one sum. It waits as well, or stays in the
// flat gradient if the lane is the last one.
void LaneSums::add_lane(int64_t lane) {
  if (lane == own_.begin) waiting_.clear();
  LaneNode node{0, lane};
  const TermKind kind = rounds_ ? TermKind::rounded : TermKind::plain;
  std::vector<TreeTerm> terms{{home(), kind, 0}};
  while (!waiting_.empty() && are_halves(waiting_.back(), node)) {
    const Sum& left = buffers_[waiting_.size() - 1];
    terms.insert(terms.begin(), TreeTerm{left.gradient.raw(), TermKind::plain, 0});
    ++terms.back().additions;
    accumulate_into(context_, sums_.values(), left.step);
    node = {node.level + 1, node.index / 2};
    waiting_.pop_back();
  }
  const bool is_last = lane + 1 == own_.end;
  if (is_last && terms.size() == 1) return;  // add_shard() rounds it
  void* out = is_last ? home() : buffers_[waiting_.size()].gradient.raw();
  const Tensor& gradient = parameters_.flat_grad();
  lane_trees_[static_cast<size_t>(lane - own_.begin)].run(terms, gradient.dtype(), gradient.numel(),
                                                          out);
  if (is_last) return;
  const Sum& to = buffers_[waiting_.size()];
  context_.backend().copy(to.step.raw(), sums_.values().raw(), to.step.bytes());
  waiting_.push_back(node);
}

void LaneSums::reduce(Vote vote, const Added& added) {
  const UpdateRange range(context_, "reduce_gradients");
  if (group_.has_peers()) {
    reserve();  // the memory of the steps may have moved
    write_row(vote);
    if (parts() > 1) return reduce_in_parts(added);
    exchange(vote);
    add_step_sums();
  } else {  // left halves whose right half ends with the last lane
    for (; !waiting_.empty(); waiting_.pop_back())
      accumulate_into(context_, sums_.values(), buffers_[waiting_.size() - 1].step);
  }
  add_shard();
  if (added) added(shard_);
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
  for (size_t i = 0; i < own_nodes(); ++i) {
    const Tensor& sums = i + 1 == own_nodes() ? sums_.values() : buffers_[i].step;
    backend.copy(row + element + i * sums.bytes(), sums.raw(), sums.bytes());
  }
}

struct LaneSums::Pieces {
  std::vector<SendPiece> sends;
  std::vector<ReceivePiece> receives;
};

// Rounds what is in `range` and travels, of own nodes that do so as bfloat16: with one level that
// is what is outside the shard.
void LaneSums::pack(const ElementRange& range) const {
  for (size_t i = 0; i < own_nodes(); ++i) {
    if (!is_narrow(nodes_[static_cast<size_t>(group_.rank)][i])) continue;
    const int64_t all = parameters_.flat_grad().numel();
    const int64_t left = per_host_ > 1 ? all : shard_.begin;
    const int64_t right = per_host_ > 1 ? all : shard_.end;
    for (const ElementRange& side : {ElementRange{0, left}, ElementRange{right, all}}) {
      const ElementRange common = common_of(range, side);
      if (common.count() == 0) continue;
      launch(context_, OpKernel::cast_forward, kLaneSumsOrigin,
             CastForwardParams{DType::f32, DType::bf16, common.count(),
                               own_node(i) + static_cast<size_t>(common.begin) * sizeof(float),
                               packed(i, common.begin)});
    }
  }
}

// Where element `begin` of own node i is when it travels as bfloat16.
std::byte* LaneSums::packed(size_t i, int64_t begin) const {
  const bool is_before = per_host_ > 1 || begin < shard_.begin;
  const int64_t at = is_before ? begin : begin - shard_.count();
  return static_cast<std::byte*>(staging_.raw()) + places_[static_cast<size_t>(group_.rank)][i] +
         static_cast<size_t>(at) * sizeof(BFloat16);
}

// Pieces of own nodes in `range` that are sent to a peer, and the pieces that it sends, received at
// `element` and after.
void LaneSums::add_piece(int peer, const ElementRange& theirs, const ElementRange& mine,
                         size_t element, Pieces& pieces) const {
  const auto& own = nodes_[static_cast<size_t>(group_.rank)];
  for (size_t i = 0; i < own.size() && theirs.count() > 0; ++i) {
    const size_t bytes = element_of(own[i]);
    const std::byte* from = is_narrow(own[i])
                                ? packed(i, theirs.begin)
                                : own_node(i) + static_cast<size_t>(theirs.begin) * bytes;
    pieces.sends.push_back({peer, from, static_cast<size_t>(theirs.count()) * bytes});
  }
  const auto& other = nodes_[static_cast<size_t>(peer)];
  for (size_t i = 0; i < other.size() && mine.count() > 0; ++i)
    pieces.receives.push_back(
        {peer, staged(peer, i, element), static_cast<size_t>(mine.count()) * element_of(other[i])});
}

// The parts of all nodes in `range`, which are sent to the owners of the shards.
void LaneSums::add_pieces(const ElementRange& range, Pieces& pieces) const {
  const int64_t all = parameters_.flat_grad().numel();
  const ElementRange mine = common_of(range, shard_);
  for (int peer = 0; peer < group_.size; ++peer)
    if (peer != group_.rank)
      add_piece(peer, common_of(range, shard_of(peer, group_.size, all)), mine,
                static_cast<size_t>(mine.begin - shard_.begin), pieces);
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
  if (per_host_ > 1) return exchange_in_two_levels();
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
    const ElementRange all{0, parameters_.flat_grad().numel()};
    pack(all);
    add_pieces(all, pieces);
  }
  add_rows(pieces);
  group.exchange(pieces.sends, pieces.receives);
}

int LaneSums::parts() const {
  if (marks_) return 1;  // parts of the gradient, each of them in one shard, are exchanged earlier
  const size_t elements = static_cast<size_t>(parameters_.flat_grad().numel() / group_.size);
  return group_.shard_parts(elements * element_of({0, 0}));
}

// The same part of every shard is exchanged while the one before is added and the next one is
// rounded. All ranks send in both directions all the time.
void LaneSums::reduce_in_parts(const Added& added) {
  Communicator& group = *group_.communicator;
  const int count = parts();
  const auto shard_part = [&](int rank, int part) {
    return part_of_shard(shard_of(rank, group_.size, parameters_.flat_grad().numel()), part, count);
  };
  for (int part = 0; part < count; ++part) {
    for (int peer = 0; peer < group_.size; ++peer)
      if (peer != group_.rank) pack(shard_part(peer, part));
    group.set_mark(part);
  }
  for (int part = 0; part < count; ++part) {
    const ElementRange mine = shard_part(group_.rank, part);
    Pieces pieces;
    for (int peer = 0; peer < group_.size; ++peer)
      if (peer != group_.rank)
        add_piece(peer, shard_part(peer, part), mine,
                  static_cast<size_t>(mine.begin - shard_.begin), pieces);
    if (part == 0) add_rows(pieces);
    group.exchange_after(part, pieces.sends, pieces.receives);
    group.join();
    if (part == 0) add_step_sums();
    add_nodes(shard_trees_[static_cast<size_t>(part)], {0, group_.size}, mine,
              static_cast<size_t>(mine.begin - shard_.begin));
    if (added) added(mine);
  }
}

// After it the flat gradient has, in the shard, the sum of this host, and the staging memory the
// sums of the others.
void LaneSums::exchange_in_two_levels() {
  Communicator& group = *group_.communicator;
  const int64_t all = parameters_.flat_grad().numel();
  const size_t element = dtype_size(parameters_.flat_grad().dtype());
  Pieces pieces;
  pack({0, all});
  for (auto peer = static_cast<int>(neighbours_.begin); peer < neighbours_.end; ++peer) {
    if (peer == group_.rank) continue;
    for (size_t host = 0; host < column_.size(); ++host) {
      const int owner = static_cast<int>(host) * per_host_ + peer % per_host_;
      add_piece(peer, shard_of(owner, group_.size, all), column_[host], column_begins_[host],
                pieces);
    }
  }
  add_rows(pieces);
  group.exchange(pieces.sends, pieces.receives);
  for (size_t host = 0; host < column_.size(); ++host)
    add_nodes(host_trees_[host], neighbours_, column_[host], column_begins_[host]);
  pieces = {};
  for (size_t host = 0; host < column_.size(); ++host) {
    const int peer = static_cast<int>(host) * per_host_ + group_.rank % per_host_;
    if (peer == group_.rank) continue;
    if (column_[host].count() > 0)
      pieces.sends.push_back({peer, home() + static_cast<size_t>(column_[host].begin) * element,
                              static_cast<size_t>(column_[host].count()) * element});
    if (shard_.count() > 0)
      pieces.receives.push_back(
          {peer, host_sum(host), static_cast<size_t>(shard_.count()) * element});
  }
  group.exchange(pieces.sends, pieces.receives);
}

// Where the sum of another host comes.
std::byte* LaneSums::host_sum(size_t host) const {
  return static_cast<std::byte*>(staging_.raw()) +
         host * static_cast<size_t>(shard_.count()) * dtype_size(parameters_.flat_grad().dtype());
}

void LaneSums::add_step_sums() {
  std::vector<std::pair<LaneNode, Tensor>> all;
  const int64_t count = sums_.values().numel();
  for (size_t rank = 0; rank < nodes_.size(); ++rank)
    for (size_t i = 0; i < nodes_[rank].size(); ++i)
      all.emplace_back(nodes_[rank][i], rows_.as_strided({count}, {1},
                                                         static_cast<int64_t>(rank) * row_width_ +
                                                             1 + count * static_cast<int64_t>(i)));
  const Tensor total = sum_of_lanes(all, [&](const Tensor& left, const Tensor& right) {
    accumulate_into(context_, left, right);
    return left;
  });
  context_.backend().copy(sums_.values().raw(), total.raw(), total.bytes());
}

// The flat gradient gets, in `range`, the sum of the nodes of these ranks. The received sums of
// others are staged from element `staged_element` on. A lane that is in the flat gradient by itself
// has not been rounded yet.
void LaneSums::add_nodes(ops::TreeSum& tree, const ElementRange& ranks, const ElementRange& range,
                         size_t staged_element) {
  if (range.count() == 0) return;  // nothing is staged
  std::vector<std::pair<LaneNode, TreeTerm>> nodes;
  const size_t first =
      static_cast<size_t>(range.begin) * dtype_size(parameters_.flat_grad().dtype());
  for (auto rank = static_cast<int>(ranks.begin); rank < ranks.end; ++rank) {
    const auto& of_rank = nodes_[static_cast<size_t>(rank)];
    for (size_t i = 0; i < of_rank.size(); ++i) {
      const bool narrow = is_narrow(of_rank[i]);
      if (rank == group_.rank)
        nodes.push_back(
            {of_rank[i], {own_node(i) + first, narrow ? TermKind::rounded : TermKind::plain, 0}});
      else
        nodes.push_back(
            {of_rank[i],
             {staged(rank, i, staged_element), narrow ? TermKind::bfloat16 : TermKind::plain, 0}});
    }
  }
  add_terms(tree, nodes, range);
}

// The same of these terms.
void LaneSums::add_terms(ops::TreeSum& tree,
                         const std::vector<std::pair<LaneNode, TreeTerm>>& nodes,
                         const ElementRange& range) {
  std::vector<TreeTerm> terms;
  std::vector<std::pair<LaneNode, size_t>> order;
  for (const auto& [node, term] : nodes) {
    order.emplace_back(node, terms.size());
    terms.push_back(term);
  }
  // The sum of two neighbours follows the last term of the right one.
  sum_of_lanes(order, [&](size_t, size_t right) {
    ++terms[right].additions;
    return right;
  });
  if (terms.size() == 1 && terms[0].kind == TermKind::plain) return;
  const Tensor& gradient = parameters_.flat_grad();
  tree.run(terms, gradient.dtype(), range.count(),
           home() + static_cast<size_t>(range.begin) * dtype_size(gradient.dtype()));
  gradient.mark_written();
}

void LaneSums::add_shard() {
  if (shard_.count() == 0) return;
  if (per_host_ == 1) return add_nodes(shard_trees_[0], {0, group_.size}, shard_, 0);
  const size_t first =
      static_cast<size_t>(shard_.begin) * dtype_size(parameters_.flat_grad().dtype());
  std::vector<std::pair<LaneNode, TreeTerm>> sums;
  const auto own = static_cast<size_t>(group_.rank / per_host_);
  for (size_t host = 0; host < host_nodes_.size(); ++host)
    sums.push_back(
        {host_nodes_[host], {host == own ? home() + first : host_sum(host), TermKind::plain, 0}});
  add_terms(shard_trees_[0], sums, shard_);
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
