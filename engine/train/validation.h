// Measures a model on the validation data.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/models/model.h"
#include "engine/train/cancel.h"
#include "engine/train/training_data.h"

namespace trafo {

struct ValidationResult {
  std::vector<double> values;           // in the order of TrainOptions::valid_metrics
  std::vector<std::string> hypotheses;  // one per validation pair; empty if no metric needs them
};

// Mean cross-entropy per label of a corpus, without label smoothing and dropout. CANCELLED if the
// token is set meanwhile. batch_tokens: see BatcherOptions.
double mean_cross_entropy(Context& context, const Model& model, const TokenizedCorpus& corpus,
                          const SpecialTokens& tokens, const CancelToken* cancel = nullptr,
                          int64_t batch_tokens = 0);

// Needs data.valid. No value if cancelled.
std::optional<ValidationResult> validate_model(Context& context, const Model& model,
                                               const TrainingData& data,
                                               const TrainOptions& options,
                                               const CancelToken* cancel);

// True if `value` of this metric is better than `best`.
bool is_better(const std::string& metric, double value, double best);

}  // namespace trafo
