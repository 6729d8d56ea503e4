// The ranks that train one model together.
#pragma once

#include "engine/dist/communicator.h"

namespace trafo {

struct TrainingGroup {
  int rank = 0, size = 1;
  // Null for one rank, and in a dry run of one of several.
  Communicator* communicator = nullptr;

  TrainingGroup() = default;
  TrainingGroup(int this_rank, int ranks) : rank(this_rank), size(ranks) {}
  explicit TrainingGroup(Communicator* group) : communicator(group) {
    if (group == nullptr) return;
    rank = group->rank();
    size = group->size();
  }
  bool has_peers() const { return size > 1; }
};

}  // namespace trafo
