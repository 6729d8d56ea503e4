// The tokens of a vocabulary by their bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

class TokenTrie {
 public:
  // UNSUPPORTED: Tokenizer::token_bytes. Tokens without bytes are not in it.
  explicit TokenTrie(const Tokenizer& tokenizer);

  // Depth first: node i + 1 is the first below node i, unless that is `past`. Node 0 is the root.
  struct Node {
    int32_t past;   // the first node that is not below this one
    int32_t token;  // the first of its tokens in tokens(), which end where the next node's begin
    int32_t above;  // its parent
    uint8_t byte;
  };
  const Node& node(int32_t index) const { return nodes_[static_cast<size_t>(index)]; }
  // Those whose bytes end in the node.
  std::span<const int32_t> tokens_at(int32_t index) const {
    const auto begin = static_cast<size_t>(node(index).token);
    const auto after = static_cast<size_t>(index) + 1;
    const auto end =
        after < nodes_.size() ? static_cast<size_t>(nodes_[after].token) : tokens_.size();
    return std::span(tokens_).subspan(begin, end - begin);
  }
  size_t depth() const { return depth_; }  // bytes of the longest token
  int32_t vocabulary() const { return vocabulary_; }

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  size_t depth_ = 0;
  int32_t vocabulary_;
};

}  // namespace trafo
