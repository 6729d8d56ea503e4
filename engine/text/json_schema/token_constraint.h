// The tokens that may follow a text, so that it begins as a grammar allows.
//
// Most tokens are decided by the innermost node of a state alone: they stay inside its rule, or
// nothing goes on with them. These decisions are made once for each node. The rest, such as tokens
// with the quote at the end of a string, depend on the calls around it. At worst a token takes one
// walk over the trie of the vocabulary with MatchCalls::kMostStates states.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/text/json_schema/byte_matcher.h"
#include "engine/text/json_schema/token_trie.h"

namespace trafo {

// A bit for each token of the vocabulary.
class TokenSet {
 public:
  explicit TokenSet(int32_t vocabulary) : words_(static_cast<size_t>(vocabulary + 63) / 64) {}
  void add(int32_t token) { words_[at(token)] |= bit(token); }
  bool has(int32_t token) const { return (words_[at(token)] & bit(token)) != 0; }
  void add(const TokenSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }

 private:
  static size_t at(int32_t token) { return static_cast<size_t>(token) / 64; }
  static uint64_t bit(int32_t token) { return uint64_t{1} << (token % 64); }
  std::vector<uint64_t> words_;
};

// One thread at a time.
class TokenConstraint {
 public:
  TokenConstraint(std::shared_ptr<const ByteGrammar> grammar, std::shared_ptr<const TokenTrie> trie)
      : grammar_(std::move(grammar)), trie_(std::move(trie)), steps_(trie_->depth() + 1) {}

  ByteMatcher begin() const { return ByteMatcher(grammar_); }
  // The tokens whose bytes ByteMatcher::push() takes.
  TokenSet allowed(const ByteMatcher& matcher);

 private:
  struct OfNode {
    TokenSet allowed;           // in any calls
    std::vector<int32_t> open;  // nodes of the trie: tokens there and below depend on the calls
  };
  // A node of the trie above the present one.
  struct Step {
    int32_t node = 0;
    size_t calls = 0;  // that its states are in
    MatchStates states;
  };
  const OfNode& of_node(int32_t node);
  bool is_decided_by_nodes(const ByteMatcher& matcher) const;
  void add_open(const ByteMatcher& matcher, std::vector<int32_t> open, TokenSet& allowed);
  bool add(int32_t node, const MatchStates& states, TokenSet& allowed) const;
  template <class Visit>
  void walk(MatchCalls& calls, int32_t root, const MatchStates& states, int32_t most_depth,
            const Visit& visit);

  std::shared_ptr<const ByteGrammar> grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  std::unordered_map<int32_t, OfNode> known_;
  std::vector<Step> steps_;
};

}  // namespace trafo
