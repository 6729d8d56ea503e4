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

// The metrics among options.valid_metrics that may judge a checkpoint; the first one decides which
// is best. BLEU is none of them where more than half of the references are written without spaces
// and another metric is measured: it would count whole phrases as words.
struct DecidingMetrics {
  std::vector<std::string> names;
  std::string warning;  // why BLEU does not decide, or should not; empty: it may
};
DecidingMetrics deciding_metrics(const TrainingData& data, const TrainOptions& options);

// True if `value` of this metric is better than `best`.
bool is_better(const std::string& metric, double value, double best);

}  // namespace trafo
