// The ranks that train one model together.
#pragma once

#include <algorithm>

#include "engine/dist/communicator.h"

namespace trafo {

// The most parts that shards are exchanged in. Computation on one part runs beside the exchange of
// the next one.
inline constexpr int kMostShardParts = 4;

struct TrainingGroup {
  int rank = 0, size = 1;
  // In a dry run:
  bool overlap = false;
  int per_host = 1;
  // Null for one rank, and in a dry run of one of several.
  Communicator* communicator = nullptr;

  TrainingGroup() = default;
  // Of a dry run. with_overlap: the ranks exchange gradients beside the backward pass. on_a_host:
  // Communicator::ranks_per_host().
  TrainingGroup(int this_rank, int ranks, bool with_overlap = false, int on_a_host = 1)
      : rank(this_rank), size(ranks), overlap(with_overlap), per_host(on_a_host) {}
  explicit TrainingGroup(Communicator* group) : communicator(group) {
    if (group == nullptr) return;
    rank = group->rank();
    size = group->size();
  }
  bool has_peers() const { return size > 1; }
  int ranks_per_host() const { return communicator ? communicator->ranks_per_host() : per_host; }
  // In how many parts shards are exchanged, of `bytes` each: the same on all ranks.
  int shard_parts(size_t bytes) const {
    if (communicator == nullptr || communicator->marks() < kMostShardParts ||
        ranks_per_host() > 1 || communicator->least_part() == 0)
      return 1;
    return static_cast<int>(std::clamp<size_t>(bytes / communicator->least_part(), 1,
                                               static_cast<size_t>(kMostShardParts)));
  }
  bool overlaps() const { return communicator ? communicator->overlaps_backward() : overlap; }
};

// With peers, agree_after(): collective.
template <class Action>
void on_all_ranks(const TrainingGroup& group, Action action) {
  if (group.has_peers())
    agree_after(*group.communicator, action);
  else
    action();
}

}  // namespace trafo
