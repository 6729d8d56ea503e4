// Log-probabilities of the answers in a batch of preference pairs: what preference objectives are
// made of.
#pragma once

#include <string_view>

#include "engine/objective/frozen_model.h"
#include "engine/objective/objective.h"

namespace trafo {

// INVALID_ARGUMENT: the batch has no preference pairs. UNSUPPORTED: int8 weights. `name`: of the
// objective, for messages.
void check_answers(const Model& model, const Batch& batch, std::string_view name);

// INVALID_ARGUMENT: there is neither a reference nor an adapter, without which the model is one.
void check_reference(const Model& model, const FrozenModel* reference, std::string_view name);

// The negative log-likelihood of each label, [tokens], times `weights` where they are defined. It
// is 0 for kIgnoreLabel.
Tensor label_nll(Context& context, const Model& model, const Batch& batch,
                 const DropoutPass& dropout, const Tensor& weights);

// The sum of `values`, one for each target token, over each sentence: [sentences].
Tensor sum_of_sentences(Context& context, const Batch& batch, const Tensor& values);

// The negative log-likelihood of each answer, [sentences].
Tensor answer_nll(Context& context, const Model& model, const Batch& batch,
                  const DropoutPass& dropout, const Tensor& weights);

// The same of the reference or, without one, of the model without its adapter. Not differentiated.
Tensor reference_nll(Context& context, const Model& model, const Batch& batch,
                     const FrozenModel* reference, const Tensor& weights);

// Column 0 or 1 of [pairs, 2], as [pairs].
Tensor column(Context& context, const Tensor& x, int64_t i);

// 1 where a value is above 0, else 0.
Tensor is_positive(Context& context, const Tensor& values);

// The sum of `values` times `scale` and Batch::loss_scale: [1].
Tensor scaled_total(Context& context, const Batch& batch, const Tensor& values, double scale);

}  // namespace trafo
