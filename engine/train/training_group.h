// The ranks that train one model together.
#pragma once

#include "engine/dist/communicator.h"

namespace trafo {

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
  bool overlaps() const { return communicator ? communicator->marks() > 0 : overlap; }
};

}  // namespace trafo
