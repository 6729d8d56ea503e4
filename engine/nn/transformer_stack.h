// The blocks of an encoder or a decoder, one after the other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/nn/relative_positions.h"
#include "engine/nn/transformer_block.h"

namespace trafo::nn {

// The dropout layers of a model, which tell their random numbers apart: its embeddings (source 0
// and target 1 of an encoder-decoder model), then the blocks of its stacks in their order.
inline constexpr uint32_t kEmbeddingDropout = 0;
inline constexpr uint32_t kFirstBlockDropout = 1;

class TransformerStack {
 public:
  TransformerStack() = default;
  // Declares blocks `prefix`.0, `prefix`.1, ..., but for those that share the parameters of an
  // earlier one. The first drops out as layer `first_dropout_layer`.
  TransformerStack(ParameterStore& store, const std::string& prefix, StackSpec spec,
                   uint32_t first_dropout_layer);
  // Declares `prefix`.norm, which the stack ends with. A post-norm stack has none.
  void add_final_norm(ParameterStore& store);

  // Declares `prefix`.relative_positions, which a stack with attention.relative has.
  void add_relative_positions(ParameterStore& store, int64_t max_positions);
  // After the parameters were allocated.
  void upload_constants(Context& context);
  void share_constants(const TransformerStack& from) {  // of a model of the same configuration
    relative_positions_.share_constants(from.relative_positions_);
  }

  // embedded [T, width] -> [T, width], normalised. inputs.distance_bias is the stack's own. Blocks
  // that inputs.dropout skips are left out. Under Recompute::full, backward keeps what passes
  // between blocks and computes each block again.
  Tensor forward(Context& context, const Tensor& embedded, BlockInputs inputs) const;

 private:
  // The first block from number i on that the pass does not skip; blocks_.size(): none.
  size_t next_block(size_t i, const DropoutPass& pass) const;
  ResidualStream run_block(Context& context, size_t i, ResidualStream stream,
                           const BlockInputs& inputs) const;
  ResidualStream checkpoint_block(Context& context, size_t i, const ResidualStream& stream,
                                  const BlockInputs& inputs) const;

  std::string prefix_;
  StackSpec spec_;
  std::vector<TransformerBlock> blocks_;
  Norm final_norm_;
  RelativePositions relative_positions_;
};

}  // namespace trafo::nn
