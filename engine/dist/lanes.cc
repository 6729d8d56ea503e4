#include "engine/dist/lanes.h"

#include <algorithm>

namespace trafo {

ElementRange lanes_of(int rank, int size, int64_t lanes) {
  const auto begin = [&](int64_t r) { return r * lanes / size; };
  return {begin(rank), begin(rank + int64_t{1})};
}

std::vector<LaneNode> lane_nodes(const ElementRange& lanes) {
  std::vector<LaneNode> nodes;
  for (int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
    LaneNode node{0, lane};
    while (!nodes.empty() && are_halves(nodes.back(), node)) {
      node = {node.level + 1, node.index / 2};
      nodes.pop_back();
    }
    nodes.push_back(node);
  }
  return nodes;
}

ElementRange shard_of(int rank, int size, int64_t count) {
  const int64_t pieces = (count + kShardElements - 1) / kShardElements;
  const auto begin = [&](int64_t r) { return std::min(count, r * pieces / size * kShardElements); };
  return {begin(rank), begin(rank + int64_t{1})};
}

ElementRange part_of_shard(const ElementRange& shard, int part, int parts) {
  const ElementRange inside = shard_of(part, parts, shard.count());
  return {shard.begin + inside.begin, shard.begin + inside.end};
}

}  // namespace trafo
