#include "engine/text/json_schema/byte_grammar.h"

#include <algorithm>

namespace trafo {

ByteGrammar::ByteGrammar() {
  add({.kind = Kind::end});
}

int32_t ByteGrammar::add(Node node) {
  nodes_.push_back(node);
  return static_cast<int32_t>(nodes_.size() - 1);
}

int32_t ByteGrammar::byte_set(const ByteSet& bytes, int32_t next) {
  const auto known = std::ranges::find(sets_, bytes);
  const auto set = static_cast<int32_t>(known - sets_.begin());
  if (known == sets_.end()) sets_.push_back(bytes);
  return add({.kind = Kind::bytes, .first = set, .second = next});
}

int32_t ByteGrammar::byte_range(uint8_t low, uint8_t high, int32_t next) {
  ByteSet bytes{};
  for (int byte = low; byte <= high; ++byte)
    bytes[static_cast<size_t>(byte / 64)] |= uint64_t{1} << (byte % 64);
  return byte_set(bytes, next);
}

int32_t ByteGrammar::literal(std::string_view text, int32_t next) {
  for (size_t i = text.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(text[i]);
    next = byte_range(byte, byte, next);
  }
  return next;
}

int32_t ByteGrammar::one_of(std::span<const std::string> texts, int32_t next) {
  return one_of(texts, 0, next);
}

// The texts have their first `taken` bytes in common.
int32_t ByteGrammar::one_of(std::span<const std::string> texts, size_t taken, int32_t next) {
  if (texts.size() == 1) return literal(std::string_view(texts[0]).substr(taken), next);
  size_t common = taken;
  while (common < texts.front().size() && common < texts.back().size() &&
         texts.front()[common] == texts.back()[common])
    ++common;
  std::vector<int32_t> branches;
  size_t begin = 0;
  if (texts[0].size() == common) {
    branches.push_back(next);
    begin = 1;
  }
  while (begin < texts.size()) {
    size_t past = begin + 1;
    while (past < texts.size() && texts[past][common] == texts[begin][common]) ++past;
    branches.push_back(one_of(texts.subspan(begin, past - begin), common, next));
    begin = past;
  }
  return literal(std::string_view(texts[0]).substr(taken, common - taken),
                 split(std::move(branches)));
}

int32_t ByteGrammar::split(std::vector<int32_t> targets) {
  targets_.push_back(std::move(targets));
  return add({.kind = Kind::split, .first = static_cast<int32_t>(targets_.size() - 1)});
}

void ByteGrammar::set_targets(int32_t node, std::vector<int32_t> targets) {
  targets_[static_cast<size_t>(nodes_[static_cast<size_t>(node)].first)] = std::move(targets);
}

int32_t ByteGrammar::call(int32_t rule, int32_t next) {
  return add({.kind = Kind::call, .first = rule, .second = next});
}

int32_t ByteGrammar::new_rule() {
  rules_.push_back(0);
  return static_cast<int32_t>(rules_.size() - 1);
}

int32_t ByteGrammar::height_of(const Node& node) const {
  const auto height = [&](int32_t id) { return nodes_[static_cast<size_t>(id)].height; };
  switch (node.kind) {
    case Kind::end:
      return 0;
    case Kind::bytes:
      return height(node.second);
    case Kind::split: {
      int32_t least = kNever;
      for (const int32_t target : targets(node)) least = std::min(least, height(target));
      return least;
    }
    case Kind::call: {
      const int32_t inside = height(start(node.first));
      return inside >= kMostDepth ? kNever : std::max(inside + 1, height(node.second));
    }
  }
  return kNever;
}

// The least fixpoint. Heights fall from round to round and are at most kMostDepth.
void ByteGrammar::finish() {
  for (bool changed = true; changed;) {
    changed = false;
    for (Node& node : nodes_) {
      const int32_t height = height_of(node);
      changed = changed || height != node.height;
      node.height = height;
    }
  }
}

// Depth first. A node that is met again below itself is in a loop without a byte, which takes a
// call.
int32_t ByteGrammar::left_recursive_rule() const {
  enum class Seen : uint8_t { no, open, done };
  struct Visit {
    int32_t node;
    size_t next = 0;  // branch
  };
  std::vector<Seen> seen(nodes_.size());
  std::vector<Visit> open;
  int32_t found = -1;
  const auto enter = [&](int32_t id, int32_t rule) {
    Seen& of_node = seen[static_cast<size_t>(id)];
    if (of_node == Seen::open && rule >= 0) found = rule;
    if (of_node != Seen::no) return;
    of_node = Seen::open;
    open.push_back({id});
  };
  for (const int32_t first : rules_) {
    enter(first, -1);
    while (!open.empty() && found < 0) {
      Visit& visit = open.back();
      const Node& at = node(visit.node);
      const size_t branch = visit.next++;
      if (at.kind == Kind::split && branch < targets(at).size()) {
        enter(targets(at)[branch], -1);
      } else if (at.kind == Kind::call && branch == 0) {
        enter(start(at.first), at.first);
      } else {
        seen[static_cast<size_t>(visit.node)] = Seen::done;
        open.pop_back();
      }
    }
  }
  return found;
}

}  // namespace trafo
