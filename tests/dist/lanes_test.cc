#include "engine/dist/lanes.h"

#include <gtest/gtest.h>

#include <string>

namespace trafo {
namespace {

std::string add(const std::string& left, const std::string& right) {
  return "(" + left + "+" + right + ")";
}

std::string name_of(const LaneNode& node, int64_t lanes) {
  const int64_t begin = node.index << node.level;
  if (node.level == 0) return std::to_string(begin);
  const LaneNode left{node.level - 1, 2 * node.index}, right{node.level - 1, 2 * node.index + 1};
  const bool has_right = (right.index << right.level) < lanes;
  return has_right ? add(name_of(left, lanes), name_of(right, lanes)) : name_of(left, lanes);
}

TEST(Lanes, TheTreeIsThatOfTheNumbers) {
  const auto sum_of = [](int64_t lanes) {
    std::vector<std::pair<LaneNode, std::string>> all;
    for (const LaneNode& node : lane_nodes({0, lanes}))
      all.emplace_back(node, name_of(node, lanes));
    return sum_of_lanes(all, add);
  };
  EXPECT_EQ(sum_of(1), "0");
  EXPECT_EQ(sum_of(2), "(0+1)");
  EXPECT_EQ(sum_of(3), "((0+1)+2)");
  EXPECT_EQ(sum_of(4), "((0+1)+(2+3))");
  EXPECT_EQ(sum_of(7), "(((0+1)+(2+3))+((4+5)+6))");
}

TEST(Lanes, TheTreeIsTheSameForEveryNumberOfRanks) {
  for (int64_t lanes = 1; lanes <= 17; ++lanes) {
    int level = 0;
    while ((int64_t{1} << level) < lanes) ++level;
    const std::string whole = name_of({level, 0}, lanes);
    for (int size = 1; size <= lanes; ++size) {
      std::vector<std::pair<LaneNode, std::string>> all;
      int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const ElementRange own = lanes_of(rank, size, lanes);
        EXPECT_EQ(own.begin, next);
        EXPECT_GE(own.count(), 1);
        next = own.end;
        for (const LaneNode& node : lane_nodes(own)) all.emplace_back(node, name_of(node, lanes));
      }
      EXPECT_EQ(next, lanes);
      EXPECT_EQ(sum_of_lanes(all, add), whole) << lanes << " lanes on " << size << " ranks";
    }
  }
}

TEST(Lanes, ShardsAreWholePiecesOfTheWorkspace) {
  for (const int64_t count : {int64_t{1}, kShardElements - 1, kShardElements, kShardElements + 1,
                              7 * kShardElements + 5, 64 * kShardElements})
    for (const int size : {1, 2, 3, 4, 8, 16}) {
      int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const ElementRange shard = shard_of(rank, size, count);
        EXPECT_EQ(shard.begin, next);
        EXPECT_TRUE(shard.begin % kShardElements == 0 || shard.count() == 0);
        next = shard.end;
      }
      EXPECT_EQ(next, count);
    }
}

}  // namespace
}  // namespace trafo
