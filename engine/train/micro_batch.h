// Forward and backward of one micro-batch of an update.
#pragma once

#include "engine/models/objective.h"

namespace trafo {

// The losses of an update's micro-batches, summed on the device: [1] each, stat_dtype of the model.
struct LossSums {
  Tensor loss, nll;

  LossSums() = default;
  LossSums(Context& context, DType model_dtype)
      : loss(context.zeros({1}, stat_dtype(model_dtype))),
        nll(context.zeros(loss.shape(), loss.dtype())) {}
};

// Computes `scale` times the summed loss of the batch, and its gradient. The first micro-batch of
// an update overwrites the flat gradient and `sums`, the others add to them; the flat gradient is
// complete after each. Does not wait for the device.
void accumulate_gradients(Context& context, Model& model, const Batch& batch,
                          const Objective& objective, Recompute recompute, const DropoutPass& pass,
                          double scale, bool first, const LossSums& sums);

}  // namespace trafo
