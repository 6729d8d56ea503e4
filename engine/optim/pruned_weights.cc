#include "engine/optim/pruned_weights.h"

#include <algorithm>
#include <cstring>

#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"

namespace trafo {
namespace {

constexpr const char* kPrunedWeightsOrigin = "zero_pruned";

}  // namespace

PrunedWeights::PrunedWeights(Context& context, const Optimizer& optimizer,
                             const std::vector<ElementRange>& matrices)
    : context_(context), optimizer_(optimizer) {
  const ElementRange& shard = optimizer.shard();
  const auto cells = static_cast<size_t>((shard.count() + kGroupElements - 1) / kGroupElements);
  std::vector<uint8_t> prunable(cells);
  for (const ElementRange& matrix : matrices) {
    require(matrix.begin % kGroupElements == 0 && matrix.begin <= matrix.end, ErrorCode::internal,
            kPrunedWeightsOrigin, "elements ", matrix.begin, " to ", matrix.end,
            " are no matrix of a workspace");
    const int64_t begin = std::max(matrix.begin, shard.begin);
    const int64_t end = std::min(matrix.end, shard.end);
    for (int64_t i = begin; i < end; i += kGroupElements)
      prunable[static_cast<size_t>((i - shard.begin) / kGroupElements)] = 1;
  }
  std::vector<int32_t> words((cells + sizeof(int32_t) - 1) / sizeof(int32_t));
  if (cells > 0) std::memcpy(words.data(), prunable.data(), cells);
  prunable_ = context.from_values<int32_t>(words, {static_cast<int64_t>(words.size())});
}

void PrunedWeights::mask(const UpdateState& state, void* x, bool codes) const {
  launch(context_, OpKernel::zero_pruned, kPrunedWeightsOrigin,
         ZeroPrunedParams{state.dtype, state.count, state.param,
                          static_cast<const uint8_t*>(prunable_.raw()), x, codes});
}

void PrunedWeights::mask_gradient() const {
  const UpdateRange range(context_, kPrunedWeightsOrigin);
  const Tensor& gradients = optimizer_.gradients();
  mask(optimizer_.state(),
       static_cast<std::byte*>(gradients.raw()) +
           static_cast<size_t>(optimizer_.shard().begin) * dtype_size(gradients.dtype()),
       false);
  gradients.mark_written();
}

void PrunedWeights::mask_states() const {
  const UpdateRange range(context_, kPrunedWeightsOrigin);
  const UpdateState elements = optimizer_.state();
  for (const StateTensor& state : optimizer_.states())
    if (state.layout == StateLayout::elements || state.layout == StateLayout::codes)
      mask(elements, state.tensor.raw(), state.layout == StateLayout::codes);
  if (elements.post.ema) mask(elements, elements.post.ema, false);
}

}  // namespace trafo
