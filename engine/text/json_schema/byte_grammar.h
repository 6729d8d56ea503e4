// A grammar of bytes: rules that call each other, as a recursive transition network. A rule is a
// graph of nodes that takes one byte or more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trafo {

class ByteGrammar {
 public:
  static constexpr int32_t kMostNodes = 1 << 17;
  // Calls of rules inside each other, in a text and in its shortest end.
  static constexpr int32_t kMostDepth = 256;
  static constexpr int32_t kNever = INT32_MAX;

  enum class Kind : uint8_t { end, bytes, split, call };
  struct Node {
    Kind kind;
    int32_t first = 0;   // bytes: a set; split: a list; call: a rule
    int32_t second = 0;  // bytes, call: the next node
    // Calls inside each other that the shortest way from here to the end of the rule takes, in the
    // depth; kNever: there is no end.
    int32_t height = kNever;
  };
  using ByteSet = std::array<uint64_t, 4>;

  ByteGrammar();

  // Graphs are made from their end to their beginning: each call returns the node before `next`.
  // Callers compare size() with kMostNodes.
  int32_t end() const { return 0; }
  int32_t byte_range(uint8_t low, uint8_t high, int32_t next);
  int32_t byte_set(const ByteSet& bytes, int32_t next);
  int32_t literal(std::string_view text, int32_t next);
  // One of the texts, which are sorted and unique.
  int32_t one_of(std::span<const std::string> texts, int32_t next);
  int32_t split(std::vector<int32_t> targets);
  int32_t call(int32_t rule, int32_t next);
  int32_t optional(int32_t node, int32_t next) { return split({node, next}); }
  // A split whose targets are set later, for a loop.
  int32_t reserve() { return split({}); }
  void set_targets(int32_t node, std::vector<int32_t> targets);
  int32_t new_rule();
  void set_rule(int32_t rule, int32_t start) { rules_[static_cast<size_t>(rule)] = start; }
  void set_root(int32_t rule) { root_ = rule; }

  // After the last node: computes the heights.
  void finish();

  size_t size() const { return nodes_.size(); }
  int32_t root() const { return start(root_); }  // the first node of whole texts
  const Node& node(int32_t id) const { return nodes_[static_cast<size_t>(id)]; }
  int32_t start(int32_t rule) const { return rules_[static_cast<size_t>(rule)]; }
  std::span<const int32_t> targets(const Node& split) const {
    return targets_[static_cast<size_t>(split.first)];
  }
  bool has(const Node& node, uint8_t byte) const {
    return sets_[static_cast<size_t>(node.first)][byte / 64] >> (byte % 64) & 1;
  }
  // A rule that calls itself before it takes a byte; -1: no rule does.
  int32_t left_recursive_rule() const;

 private:
  int32_t add(Node node);
  int32_t height_of(const Node& node) const;
  int32_t one_of(std::span<const std::string> texts, size_t taken, int32_t next);

  std::vector<Node> nodes_;
  std::vector<ByteSet> sets_;
  std::vector<std::vector<int32_t>> targets_;
  std::vector<int32_t> rules_;  // their first nodes
  int32_t root_ = 0;
};

}  // namespace trafo
