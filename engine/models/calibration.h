// Runs of a model on a sample of data that show what its linear layers multiply.
#pragma once

#include <cstdint>

#include "engine/data/tokenized_corpus.h"
#include "engine/models/model.h"

namespace trafo {

inline constexpr int64_t kCalibrationTokens = 1 << 16;

// Tells `observer` what every linear layer multiplies in forward passes over the pairs, without
// dropout, until kCalibrationTokens target tokens were read or all pairs. start_id: what the
// decoder begins with. The model computes in float, and is as before at the end.
void observe_calibration(Context& context, Model& model, const TokenizedCorpus& pairs,
                         int32_t start_id, LinearObserver& observer);

}  // namespace trafo
