// The draft model of speculative decoding: a small model that proposes the next tokens of texts
// (Leviathan et al., arXiv 2211.17192).
//
// It has a KV cache of its own, with a row for each text that it has read. A text finds its row
// again by its number; a new one takes over or copies the row with which it has the longest
// beginning in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/models/model.h"

namespace trafo {

class PackedWeights;

// The number of tokens with which both texts begin.
inline int64_t common_tokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

// One thread at a time. Context and model must outlive it.
class DraftModel {
 public:
  DraftModel(Context& context, const Model& model, std::shared_ptr<const PackedWeights> weights)
      : context_(context), model_(model), weights_(std::move(weights)) {}

  int64_t max_positions() const { return model_.spec().max_positions; }

  struct Text {
    int64_t number;
    std::span<const int32_t> tokens;  // at least one
  };
  // Gives each text a row, and keeps the rows of `kept` others, the newest ones. Returns the tokens
  // of each text that its row does not have yet, the last one always.
  std::vector<std::vector<int32_t>> begin(std::span<const Text> texts, int64_t kept);
  // Appends tokens to the texts of begin(), in their order. Returns the logits after them,
  // [texts with tokens, vocabulary].
  Tensor read(std::span<const std::vector<int32_t>> tokens);
  void forget();

 private:
  struct Row {
    int64_t number;
    std::vector<int32_t> tokens;  // that were read
  };
  int32_t row_of(const Text& text) const;

  Context& context_;
  const Model& model_;
  std::shared_ptr<const PackedWeights> weights_;
  DecodeState state_;
  std::vector<Row> rows_;  // of the texts of begin(), then the kept ones, oldest first
};

}  // namespace trafo
