// The texts of a grammar, byte by byte: the set of all stacks of calls that a text may lead to.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "engine/text/json_schema/byte_grammar.h"

namespace trafo {

// A node that takes a byte next, and the calls that it is in.
struct MatchState {
  int32_t node;
  int32_t call;  // index of the innermost call; -1: none
  bool operator==(const MatchState&) const = default;
};

struct MatchStates {
  std::vector<MatchState> states;
  bool complete = false;  // the text may end here
  bool is_cut = false;    // a state was left out as too deep
};

// The calls of states. They are appended, and dropped from the end.
class MatchCalls {
 public:
  // More states than these are left out: the text still ends well.
  static constexpr size_t kMostStates = 256;

  explicit MatchCalls(const ByteGrammar& grammar) : grammar_(&grammar) {}

  size_t size() const { return calls_.size(); }
  void resize(size_t size) { calls_.resize(size); }
  int32_t depth(int32_t call) const {
    return call < 0 ? 0 : calls_[static_cast<size_t>(call)].depth;
  }

  // The states from a node on, before a byte. `most_depth`: of calls.
  void begin(int32_t node, int32_t most_depth, MatchStates& to) {
    clear(to);
    close({node, -1}, most_depth, to);
  }
  // The states after a byte.
  void advance(const MatchStates& from, uint8_t byte, int32_t most_depth, MatchStates& to);
  // Drops the calls in which no state is.
  void compact(MatchStates& states);

 private:
  struct Call {
    int32_t next;   // the node after it
    int32_t outer;  // -1: none
    int32_t depth;
  };
  static void clear(MatchStates& states) {
    states.states.clear();
    states.complete = states.is_cut = false;
  }
  void close(MatchState from, int32_t most_depth, MatchStates& to);
  int32_t call(int32_t next, int32_t outer);

  const ByteGrammar* grammar_;
  std::vector<Call> calls_;
  std::vector<MatchState> open_;  // of close()
};

// A text that begins as the grammar allows.
class ByteMatcher {
 public:
  explicit ByteMatcher(std::shared_ptr<const ByteGrammar> grammar);

  // False, and nothing changes: no text of the grammar begins so.
  bool push(std::string_view bytes);
  bool complete() const { return states_.complete; }
  const MatchStates& states() const { return states_; }
  const MatchCalls& calls() const { return calls_; }

 private:
  std::shared_ptr<const ByteGrammar> grammar_;
  MatchCalls calls_;
  MatchStates states_;
};

}  // namespace trafo
