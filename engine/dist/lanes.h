// How the gradients of an update are added when several ranks train one model.
//
// The micro-batches of an update are dealt into a fixed number of lanes. The sums of the lanes are
// added in a binary tree over the numbers of the lanes: (0 + 1) + (2 + 3) and so on. A rank
// computes consecutive lanes. The tree does not depend on the number of ranks, and so neither do
// the bits of a sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/core/element_range.h"

namespace trafo {

// A node of the tree: the sum of lanes [index << level, (index + 1) << level). A node whose right
// half has no lanes is its left half.
struct LaneNode {
  int level = 0;
  int64_t index = 0;
  bool operator==(const LaneNode&) const = default;
};

// True if the sum of the two is a node: left and right half of it.
inline bool are_halves(const LaneNode& left, const LaneNode& right) {
  return left.level == right.level && left.index % 2 == 0 && right.index == left.index + 1;
}

// The lanes of a rank. Counts differ by at most one.
ElementRange lanes_of(int rank, int size, int64_t lanes);

// The fewest nodes that make up these lanes, in order.
std::vector<LaneNode> lane_nodes(const ElementRange& lanes);

// The root of the tree over nodes that make up all lanes, in order. add(left, right) returns the
// sum of two neighbours.
template <class Value, class Add>
Value sum_of_lanes(const std::vector<std::pair<LaneNode, Value>>& nodes, Add add) {
  std::vector<std::pair<LaneNode, Value>> open;
  for (std::pair<LaneNode, Value> next : nodes) {
    while (!open.empty() && are_halves(open.back().first, next.first)) {
      next = {{next.first.level + 1, next.first.index / 2}, add(open.back().second, next.second)};
      open.pop_back();
    }
    open.push_back(std::move(next));
  }
  // The remaining entries are left halves. The right half of each ends with the last lane.
  while (open.size() > 1) {
    const Value right = open.back().second;
    open.pop_back();
    open.back().second = add(open.back().second, right);
  }
  return open.front().second;
}

// Shards of a flat workspace begin at multiples of this. It is the number of elements whose squares
// make one partial sum of the norm (kSquaresElements), and a multiple of a block of 8-bit states.
inline constexpr int64_t kShardElements = 32768;

// The elements that a rank's optimizer updates, of a workspace of `count`. They may be none.
ElementRange shard_of(int rank, int size, int64_t count);

// Part `part` of `parts` of a shard. Parts begin at multiples of kShardElements too, and may be
// empty.
ElementRange part_of_shard(const ElementRange& shard, int part, int parts);

}  // namespace trafo
