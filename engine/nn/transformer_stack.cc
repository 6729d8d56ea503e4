#include "engine/nn/transformer_stack.h"

#include <memory>
#include <utility>

#include "engine/autograd/checkpoint.h"

namespace trafo::nn {

TransformerStack::TransformerStack(ParameterStore& store, const std::string& prefix, int64_t blocks,
                                   const BlockOptions& options, uint32_t first_dropout_layer,
                                   bool depth_scaled_init, std::span<const int64_t> owners)
    : prefix_(prefix),
      stack_(options.stack),
      norm_options_(options.norm),
      pre_norm_(options.pre_norm) {
  int64_t declared = 0;
  for (int64_t i = 0; i < blocks; ++i) {
    const auto number = static_cast<size_t>(i);
    const uint32_t dropout_layer = first_dropout_layer + static_cast<uint32_t>(i);
    if (!owners.empty() && owners[number] != i) {
      blocks_.push_back(blocks_[static_cast<size_t>(owners[number])].as_layer(i, dropout_layer));
      continue;
    }
    BlockOptions block = options;
    block.attention.cross_part = declared++;
    if (depth_scaled_init) block.attention.depth = block.feed_forward.depth = declared;
    blocks_.emplace_back(store, prefix + "." + std::to_string(i), block, i, dropout_layer);
  }
}

void TransformerStack::add_final_norm(ParameterStore& store) {
  if (pre_norm_) final_norm_ = Norm(store, prefix_ + ".norm", norm_options_, {stack_});
}

size_t TransformerStack::next_block(size_t i, const DropoutPass& pass) const {
  while (i < blocks_.size() && blocks_[i].skipped(pass)) ++i;
  return i;
}

ResidualStream TransformerStack::run_block(Context& context, size_t i, ResidualStream stream,
                                           const BlockInputs& inputs) const {
  const size_t next = next_block(i + 1, inputs.dropout);
  const Norm& next_norm = next < blocks_.size() ? blocks_[next].first_norm() : final_norm_;
  return blocks_[i].forward(context, std::move(stream), inputs, next_norm);
}

ResidualStream TransformerStack::checkpoint_block(Context& context, size_t i,
                                                  const ResidualStream& stream,
                                                  const BlockInputs& inputs) const {
  // The first run leaves here how its last norm is computed again, so that the next block need not
  // keep a copy of its input.
  const auto recompute = std::make_shared<std::function<Tensor(Context&)>>();
  // The keys and values of the encoder need a gradient: they are an input of the region.
  BlockInputs constants = inputs;
  constants.encoder.values = {};
  // A post-norm stream is one tensor. As one input, the parts of its gradient are summed in the
  // order of a block that is not checkpointed.
  const Tensor residual = pre_norm_ ? stream.residual : Tensor{};
  const std::vector<Tensor> outputs =
      checkpoint(context, {residual, stream.input, inputs.encoder.values},
                 [this, i, constants, recompute](Context& ctx, const std::vector<Tensor>& given) {
                   BlockInputs block_inputs = constants;
                   block_inputs.encoder.values = given[2];
                   const Tensor& from = pre_norm_ ? given[0] : given[1];
                   ResidualStream result = run_block(ctx, i, {from, given[1]}, block_inputs);
                   *recompute = std::move(result.recompute_input);
                   return std::vector<Tensor>{result.residual, result.input};
                 });
  if (outputs[1].variable()) outputs[1].variable()->recompute = std::move(*recompute);
  return {outputs[0], outputs[1]};
}

Tensor TransformerStack::forward(Context& context, const Tensor& embedded,
                                 const BlockInputs& inputs) const {
  const bool checkpointed = context.recompute() == Recompute::full && context.recording();
  size_t i = next_block(0, inputs.dropout);
  if (i == blocks_.size()) return pre_norm_ ? final_norm_.forward(context, embedded) : embedded;
  ResidualStream stream = blocks_[i].begin(context, embedded);
  for (; i < blocks_.size(); i = next_block(i + 1, inputs.dropout))
    stream = checkpointed ? checkpoint_block(context, i, stream, inputs)
                          : run_block(context, i, std::move(stream), inputs);
  return stream.input;
}

}  // namespace trafo::nn
