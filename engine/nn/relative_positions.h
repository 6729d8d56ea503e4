// Relative position biases of the scores of self-attention (Raffel et al., arXiv 1910.10683): a
// learned table with a row for each bucket of distances and a column for each head, which the
// blocks of a stack share.
#pragma once

#include <cstdint>
#include <string>

#include "engine/nn/parameter_store.h"
#include "engine/nn/stack_spec.h"

namespace trafo::nn {

// The bucket of a key that is `distance` tokens after its query; negative: before it. With causal,
// all keys after the query have bucket 0. Otherwise they have the second half of the buckets, and
// the others the first half. Small distances have a bucket each. Larger ones share buckets, which
// grow with the logarithm of the distance up to most_distance. float32, as in transformers.
int32_t relative_bucket(int64_t distance, bool causal, const RelativeSpec& spec);

class RelativePositions {
 public:
  RelativePositions() = default;
  // Declares `prefix`.weight [buckets, heads]. `spec` has attention.relative.
  RelativePositions(ParameterStore& store, const std::string& prefix, const StackSpec& spec,
                    int64_t max_positions);
  // Makes the buckets of all distances. Before biases().
  void upload(Context& context);
  // Takes the tensors of the same module of another model instead.
  void share_constants(const RelativePositions& from) {
    longest_ = from.longest_;
    buckets_ = from.buckets_;
  }

  bool defined() const { return store_ != nullptr; }
  // ops::AttentionOptions::distance_bias of sequences of up to `longest` tokens, [heads, 2 longest
  // - 1]; 0: of any length. INVALID_ARGUMENT: the model has fewer positions.
  Tensor biases(Context& context, int64_t longest) const;

 private:
  const ParameterStore* store_ = nullptr;
  ParamId table_ = kNoParam;
  RelativeSpec spec_;
  bool causal_ = false;
  int64_t max_positions_ = 0;
  int64_t longest_ = 0;  // max_positions, on an accelerator rounded up
  Tensor buckets_;       // [2 longest - 1] int32, from the distance 1 - longest on
};

}  // namespace trafo::nn
