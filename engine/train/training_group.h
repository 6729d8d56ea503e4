// The ranks that train one model together.
#pragma once

#include "engine/dist/communicator.h"

namespace trafo {

struct TrainingGroup {
  int rank = 0, size = 1;
  bool overlap = false;  // in a dry run
  // Null for one rank, and in a dry run of one of several.
  Communicator* communicator = nullptr;

  TrainingGroup() = default;
  // Of a dry run. with_overlap: the ranks exchange gradients beside the backward pass.
  TrainingGroup(int this_rank, int ranks, bool with_overlap = false)
      : rank(this_rank), size(ranks), overlap(with_overlap) {}
  explicit TrainingGroup(Communicator* group) : communicator(group) {
    if (group == nullptr) return;
    rank = group->rank();
    size = group->size();
  }
  bool has_peers() const { return size > 1; }
  bool overlaps() const { return communicator ? communicator->marks() > 0 : overlap; }
};

}  // namespace trafo
