#include "engine/autograd/checkpoint.h"

#include "engine/autograd/leaf_watch.h"

namespace trafo {

std::vector<Tensor> checkpoint(Context& context, const std::vector<Tensor>& inputs,
                               RegionFn region) {
  const OpRange range(context, "checkpoint", std::span<const Tensor>(inputs));
  if (!context.recording()) return region(context, inputs);

  std::vector<Tensor> outputs;
  std::vector<LeafWatch::Leaf> used;  // leaves that the region reads beside its inputs
  bool trainable = false;
  for (const Tensor& input : inputs) trainable = trainable || requires_grad(input);
  {
    NoGrad no_grad(context);
    LeafWatch leaves(context);
    std::vector<Tensor> constants;
    for (const Tensor& input : inputs)
      constants.push_back(input.defined() ? input.detach() : input);
    outputs = region(context, constants);
    used = leaves.leaves();
    trainable = trainable || !used.empty();
  }
  for (Tensor& output : outputs)
    if (output.defined()) output = output.detach();  // an output may be one of the inputs

  if (!trainable) return outputs;  // all parameters of the region are frozen

  // The region's parameters are not in `inputs`, so its outputs always require a gradient.
  Tensor token = context.empty({1}, DType::f32);
  set_requires_grad(token, true);
  std::vector<Tensor> recorded_inputs = inputs;
  recorded_inputs.push_back(token);
  std::vector<Tensor*> recorded_outputs;
  for (Tensor& output : outputs) recorded_outputs.push_back(&output);

  std::vector<SavedTensor> saved;
  std::vector<LeafWatch::Leaf> kept;
  for (const Tensor& input : inputs) {
    saved.push_back(input.defined() ? SavedTensor(input) : SavedTensor());
    if (saved.back().is_kept()) kept.push_back({input.storage(), input.storage()->version()});
  }

  auto backward = [saved, kept = std::move(kept), used = std::move(used),
                   region = std::move(region), count = outputs.size()](Backward& b) {
    for (const LeafWatch::Leaf& input : kept)
      check_version("checkpoint", "an input of the region", *input.storage, input.version);
    for (const LeafWatch::Leaf& leaf : used)
      check_version("checkpoint", "a parameter of the region", *leaf.storage, leaf.version);
    Context& ctx = b.context();
    std::vector<Tensor> upstream(count);
    for (size_t i = 0; i < count; ++i)
      if (b.has_grad_output(i)) upstream[i] = b.grad_output(i);

    std::vector<Tensor> leaves;
    for (const SavedTensor& input : saved) leaves.push_back(input.get(ctx));
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i].defined()) continue;
      leaves[i] = leaves[i].detach();
      // The input's own Variable, so that gradients are summed in the same order as without
      // checkpointing.
      leaves[i].set_variable(b.variable(i));
    }
    TapeScope scope(ctx);
    std::vector<Tensor> again = region(ctx, leaves);
    require(again.size() == count, ErrorCode::invalid_argument, "checkpoint",
            "the region returned ", again.size(), " outputs when recomputed, ", count, " before");
    ctx.tape().backward(ctx, again, upstream);
  };
  context.record("checkpoint", recorded_inputs, recorded_outputs, {}, std::move(backward));
  return outputs;
}

}  // namespace trafo
