#include "engine/nn/transformer_stack.h"

#include <memory>
#include <utility>

#include "engine/autograd/checkpoint.h"

namespace trafo::nn {

TransformerStack::TransformerStack(ParameterStore& store, const std::string& prefix, StackSpec spec,
                                   uint32_t first_dropout_layer)
    : prefix_(prefix), spec_(std::move(spec)) {
  for (int64_t i = 0; i < spec_.layers(); ++i) {
    const int64_t owner = spec_.sharing.owners[static_cast<size_t>(i)];
    const uint32_t dropout_layer = first_dropout_layer + static_cast<uint32_t>(i);
    if (owner != i)
      blocks_.push_back(blocks_[static_cast<size_t>(owner)].as_layer(i, dropout_layer));
    else
      blocks_.emplace_back(store, concat(prefix, ".", i), spec_, i, dropout_layer);
  }
}

void TransformerStack::add_final_norm(ParameterStore& store) {
  if (spec_.ends_with_norm())
    final_norm_ = Norm(store, prefix_ + ".norm", spec_.norm, spec_.width, {spec_.stack});
}

void TransformerStack::add_relative_positions(ParameterStore& store, int64_t max_positions) {
  if (spec_.attention.relative)
    relative_positions_ =
        RelativePositions(store, prefix_ + ".relative_positions", spec_, max_positions);
}

void TransformerStack::upload_constants(Context& context) {
  if (relative_positions_.defined()) relative_positions_.upload(context);
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
  // The keys and values of the encoder and the biases need a gradient: they are inputs of the
  // region.
  BlockInputs constants = inputs;
  constants.encoder.values = constants.distance_bias = {};
  // A stream that is not pre-norm is one tensor. As one input, the parts of its gradient are summed
  // in the order of a block that is not checkpointed.
  const Tensor residual = spec_.pre_norm() ? stream.residual : Tensor{};
  const std::vector<Tensor> outputs =
      checkpoint(context, {residual, stream.input, inputs.encoder.values, inputs.distance_bias},
                 [this, i, constants, recompute](Context& ctx, const std::vector<Tensor>& given) {
                   BlockInputs block_inputs = constants;
                   block_inputs.encoder.values = given[2];
                   block_inputs.distance_bias = given[3];
                   const Tensor& from = spec_.pre_norm() ? given[0] : given[1];
                   ResidualStream result = run_block(ctx, i, {from, given[1]}, block_inputs);
                   *recompute = std::move(result.recompute_input);
                   return std::vector<Tensor>{result.residual, result.input};
                 });
  if (outputs[1].variable()) outputs[1].variable()->recompute = std::move(*recompute);
  return {outputs[0], outputs[1]};
}

Tensor TransformerStack::forward(Context& context, const Tensor& embedded,
                                 BlockInputs inputs) const {
  const bool checkpointed = context.recompute() == Recompute::full && context.recording();
  size_t i = next_block(0, inputs.dropout);
  if (i == blocks_.size())
    return spec_.ends_with_norm() ? final_norm_.forward(context, embedded) : embedded;
  if (relative_positions_.defined()) {
    const bool decode_step = inputs.cache && !inputs.cache->is_prefill();
    inputs.distance_bias = relative_positions_.biases(
        context, decode_step ? inputs.cache->longest_after() : inputs.sequences.longest);
  }
  ResidualStream stream = blocks_[i].begin(context, embedded);
  for (; i < blocks_.size(); i = next_block(i + 1, inputs.dropout))
    stream = checkpointed ? checkpoint_block(context, i, stream, inputs)
                          : run_block(context, i, std::move(stream), inputs);
  const bool is_normed = spec_.norm.placement != NormPlacement::on_output;
  return is_normed ? stream.input : final_norm_.forward(context, stream.input);
}

}  // namespace trafo::nn
