#include "engine/text/json_schema/token_constraint.h"

#include <algorithm>
#include <utility>

namespace trafo {
namespace {

constexpr size_t kMostKnown = 1024;  // nodes whose decisions are kept
// Bounds of the states that nodes alone decide of, and of the states that each leads to.
constexpr size_t kFewStates = 16;
static_assert(kFewStates * kFewStates <= MatchCalls::kMostStates);
constexpr int32_t kHalfDepth = ByteGrammar::kMostDepth / 2;

}  // namespace

// Calls visit(node, states) for the nodes below `root`, whose states are given, depth first. It
// returns whether to go on below the node.
template <class Visit>
void TokenConstraint::walk(MatchCalls& calls, int32_t root, const MatchStates& states,
                           int32_t most_depth, const Visit& visit) {
  steps_[0].node = root;
  steps_[0].calls = calls.size();
  steps_[0].states = states;
  size_t depth = 0;
  const int32_t past = trie_->node(root).past;
  for (int32_t node = root + 1; node < past;) {
    while (node >= trie_->node(steps_[depth].node).past) --depth;
    calls.resize(steps_[depth].calls);
    Step& step = steps_[depth + 1];
    calls.advance(steps_[depth].states, trie_->node(node).byte, most_depth, step.states);
    if (!visit(node, step.states)) {
      node = trie_->node(node).past;
      continue;
    }
    step.node = node++;
    step.calls = calls.size();
    ++depth;
  }
}

// Adds the tokens of a node with these states. Returns whether tokens below it can follow.
bool TokenConstraint::add(int32_t node, const MatchStates& states, TokenSet& allowed) const {
  if (!states.states.empty() || states.complete)
    for (const int32_t token : trie_->tokens_at(node)) allowed.add(token);
  return !states.states.empty();
}

const TokenConstraint::OfNode& TokenConstraint::of_node(int32_t node) {
  if (const auto known = known_.find(node); known != known_.end()) return known->second;
  if (known_.size() >= kMostKnown) known_.clear();
  OfNode result{TokenSet(trie_->vocabulary()), {}};
  MatchCalls calls(*grammar_);
  MatchStates states;
  calls.begin(node, kHalfDepth, states);
  if (states.is_cut) result.open.push_back(0);
  walk(calls, 0, states, kHalfDepth, [&](int32_t at, const MatchStates& now) {
    if (now.complete || now.is_cut || now.states.size() > kFewStates) {
      result.open.push_back(at);
      return false;
    }
    return add(at, now, result.allowed);
  });
  return known_.emplace(node, std::move(result)).first->second;
}

bool TokenConstraint::is_decided_by_nodes(const ByteMatcher& matcher) const {
  const std::vector<MatchState>& states = matcher.states().states;
  return states.size() <= kFewStates && std::ranges::all_of(states, [&](const MatchState& state) {
           return matcher.calls().depth(state.call) <= kHalfDepth;
         });
}

// Adds the tokens at and below nodes of the trie.
void TokenConstraint::add_open(const ByteMatcher& matcher, std::vector<int32_t> open,
                               TokenSet& allowed) {
  std::ranges::sort(open);
  MatchCalls calls = matcher.calls();
  const size_t before = calls.size();
  int32_t past = 0;
  for (const int32_t root : open) {
    if (root < past) continue;  // below the node before
    past = std::max(trie_->node(root).past, root + 1);
    std::vector<int32_t> path;
    for (int32_t node = root; node > 0; node = trie_->node(node).above) path.push_back(node);
    calls.resize(before);
    MatchStates states = matcher.states(), next;
    for (auto node = path.rbegin(); node != path.rend(); ++node) {
      calls.advance(states, trie_->node(*node).byte, ByteGrammar::kMostDepth, next);
      std::swap(states, next);
    }
    if (root > 0 && !add(root, states, allowed)) continue;
    walk(calls, root, states, ByteGrammar::kMostDepth,
         [&](int32_t at, const MatchStates& now) { return add(at, now, allowed); });
  }
}

TokenSet TokenConstraint::allowed(const ByteMatcher& matcher) {
  TokenSet allowed(trie_->vocabulary());
  std::vector<int32_t> open;
  if (is_decided_by_nodes(matcher)) {
    for (const MatchState& state : matcher.states().states) {
      const OfNode& of = of_node(state.node);
      allowed.add(of.allowed);
      open.insert(open.end(), of.open.begin(), of.open.end());
    }
  } else {
    open.push_back(0);
  }
  add_open(matcher, std::move(open), allowed);
  return allowed;
}

}  // namespace trafo
