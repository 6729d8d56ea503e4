// Forward and backward of one micro-batch of an update.
#pragma once

#include "engine/models/model.h"
#include "engine/train/options.h"

namespace trafo {

// The losses of an update's micro-batches, summed on the device: [1] each, stat_dtype of the model.
struct LossSums {
  Tensor loss, nll;

  LossSums() = default;
  LossSums(Context& context, DType model_dtype)
      : loss(context.zeros({1}, stat_dtype(model_dtype))),
        nll(context.zeros(loss.shape(), loss.dtype())) {}
};

// `scale` times the summed loss of the batch and its gradient. For the first micro-batch of an
// update the flat gradient and `sums` are overwritten, for the others added to; the flat gradient
// is whole after each. Waits for nothing.
void accumulate_gradients(Context& context, Model& model, const Batch& batch,
                          const TrainOptions& options, const DropoutPass& pass, double scale,
                          bool first, const LossSums& sums);

}  // namespace trafo
