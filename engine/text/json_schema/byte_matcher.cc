#include "engine/text/json_schema/byte_matcher.h"

#include <algorithm>
#include <utility>

namespace trafo {
namespace {

constexpr size_t kRecentCalls = 64;  // that call() compares
constexpr size_t kKeptCalls = 4096;  // before they are compacted

}  // namespace

int32_t MatchCalls::call(int32_t next, int32_t outer) {
  const size_t last = calls_.size() - std::min(calls_.size(), kRecentCalls);
  for (size_t i = calls_.size(); i-- > last;)
    if (calls_[i].next == next && calls_[i].outer == outer) return static_cast<int32_t>(i);
  calls_.push_back({next, outer, depth(outer) + 1});
  return static_cast<int32_t>(calls_.size() - 1);
}

// Adds the states that take a byte next, without a byte from `from` on. Every state has an end
// within the depth, so that leaving others out never leads to a text without one.
void MatchCalls::close(MatchState from, int32_t most_depth, MatchStates& to) {
  open_.assign(1, from);
  while (!open_.empty()) {
    const MatchState at = open_.back();
    open_.pop_back();
    const ByteGrammar::Node& node = grammar_->node(at.node);
    if (node.height > most_depth - depth(at.call)) {
      to.is_cut = to.is_cut || node.height != ByteGrammar::kNever;
      continue;
    }
    switch (node.kind) {
      case ByteGrammar::Kind::end:
        if (at.call < 0) {
          to.complete = true;
        } else {
          const Call& call = calls_[static_cast<size_t>(at.call)];
          open_.push_back({call.next, call.outer});
        }
        break;
      case ByteGrammar::Kind::split:
        for (const int32_t target : grammar_->targets(node)) open_.push_back({target, at.call});
        break;
      case ByteGrammar::Kind::call:
        open_.push_back({grammar_->start(node.first), call(node.second, at.call)});
        break;
      case ByteGrammar::Kind::bytes:
        if (to.states.size() < kMostStates && std::ranges::find(to.states, at) == to.states.end())
          to.states.push_back(at);
        break;
    }
  }
}

void MatchCalls::advance(const MatchStates& from, uint8_t byte, int32_t most_depth,
                         MatchStates& to) {
  clear(to);
  for (const MatchState& state : from.states) {
    const ByteGrammar::Node& node = grammar_->node(state.node);
    if (grammar_->has(node, byte)) close({node.second, state.call}, most_depth, to);
  }
}

void MatchCalls::compact(MatchStates& states) {
  std::vector<int32_t> place(calls_.size(), -1);
  for (const MatchState& state : states.states)
    for (int32_t at = state.call; at >= 0 && place[static_cast<size_t>(at)] < 0;
         at = calls_[static_cast<size_t>(at)].outer)
      place[static_cast<size_t>(at)] = 0;
  int32_t kept = 0;
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (place[i] < 0) continue;
    Call call = calls_[i];
    if (call.outer >= 0) call.outer = place[static_cast<size_t>(call.outer)];
    place[i] = kept;
    calls_[static_cast<size_t>(kept++)] = call;
  }
  calls_.resize(static_cast<size_t>(kept));
  for (MatchState& state : states.states)
    if (state.call >= 0) state.call = place[static_cast<size_t>(state.call)];
}

ByteMatcher::ByteMatcher(std::shared_ptr<const ByteGrammar> grammar)
    : grammar_(std::move(grammar)), calls_(*grammar_) {
  calls_.begin(grammar_->root(), ByteGrammar::kMostDepth, states_);
}

bool ByteMatcher::push(std::string_view bytes) {
  const size_t calls = calls_.size();
  MatchStates now = states_, after;
  for (const char byte : bytes) {
    calls_.advance(now, static_cast<uint8_t>(byte), ByteGrammar::kMostDepth, after);
    std::swap(now, after);
    if (now.states.empty() && !now.complete) {
      calls_.resize(calls);
      return false;
    }
  }
  states_ = std::move(now);
  if (calls_.size() > kKeptCalls) calls_.compact(states_);
  return true;
}

}  // namespace trafo
