// Measures a model on the validation data.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/cancel.h"
#include "engine/models/model.h"
#include "engine/train/parallel/training_group.h"
#include "engine/train/run/training_data.h"

namespace trafo {

class StepGraphs;

struct ValidationResult {
  std::vector<double> values;           // in the order of TrainOptions::valid_metrics
  std::vector<std::string> hypotheses;  // one per validation pair; empty if no metric needs them
};

// Mean cross-entropy per label of a corpus, without label smoothing and dropout. CANCELLED if the
// token is set meanwhile. batch_tokens: see BatcherOptions.
double mean_cross_entropy(Context& context, const Model& model, const TokenizedCorpus& corpus,
                          const SpecialTokens& tokens, const CancelToken* cancel = nullptr,
                          int64_t batch_tokens = 0);

// Needs data.valid. No value if cancelled. step_graphs: see DecodeOptions.
std::optional<ValidationResult> validate_model(Context& context, const Model& model,
                                               const TrainingData& data,
                                               const TrainOptions& options,
                                               const CancelToken* cancel,
                                               StepGraphs* step_graphs = nullptr);

// Numbers that are measured batch by batch and whose means are reported.
struct MeasuredBatches {
  size_t width = 1;            // numbers of a batch
  std::vector<double> values;  // of the batches of one rank, in their order
  double units = 0;            // of all batches of all ranks: what a mean is divided by
};

// The part that one rank of a group measures: the batches and the translations whose number modulo
// the number of ranks is the rank.
struct ValidationPart {
  MeasuredBatches cross_entropy, objective;                 // by Objective::metrics()
  std::vector<std::pair<int64_t, std::string>> hypotheses;  // with the number of their pair
};
ValidationPart validate_part(Context& context, const Model& model, const TrainingData& data,
                             const TrainOptions& options, const CancelToken* cancel,
                             const TrainingGroup& group, StepGraphs* step_graphs = nullptr);
// The result of all parts, by rank. The same bits for any number of them: sums are in the order of
// the batches, and for any number of threads. INTERNAL: they do not fit together.
ValidationResult join_parts(std::span<const ValidationPart> parts, const TrainingData& data,
                            const TrainOptions& options, int threads = 1);
// A part as bytes, for other ranks. INTERNAL: they are no such numbers.
std::string encode_part(const ValidationPart& part);
ValidationPart decode_part(std::string_view bytes);

// The metrics among options.valid_metrics that may judge a checkpoint; the first one decides which
// is best. Metrics of words are not among them where more than half of the references are written
// without spaces and another metric is measured: they would count whole phrases as words.
struct DecidingMetrics {
  std::vector<std::string> names;
  std::string warning;  // why metrics of words do not decide, or should not; empty: they may
};
DecidingMetrics deciding_metrics(const TrainingData& data, const TrainOptions& options);

// The validation text (a checksum) and the settings that its scores depend on, as a JSON object.
// Only scores with equal identities are comparable. Empty: there is no validation.
std::string validation_identity(const TrainingData& data, const TrainOptions& options);

}  // namespace trafo
