// state.json of a checkpoint: the state of a run besides weights and moments. A run that resumes
// from it computes the same bits as one that never stopped.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/batcher.h"
#include "engine/nn/parameter_store.h"
#include "engine/train/run/options.h"

namespace trafo {

inline constexpr int64_t kStateVersion = 1;

// Counters of a Trainer.
struct TrainerState {
  int64_t update = 0;  // updates applied
  uint64_t forward_passes =
      0;  // micro-batches seen, also of skipped updates; number of the next dropout masks
  int64_t skipped = 0;
  int64_t skipped_in_a_row = 0;
  int64_t far_off_in_a_row = 0;  // updates whose loss showed divergence (far_off_loss)
  bool operator==(const TrainerState&) const = default;
};

struct BestMetric {
  double value = 0;
  int64_t update = 0;
  bool operator==(const BestMetric&) const = default;
};

// Sums since the last log event: over units of the objective (Objective::units), nll over labels.
struct LogSums {
  double loss = 0, nll = 0, units = 0, labels = 0;
  std::vector<std::pair<std::string, double>> metrics = {};  // of the objective, by name
  bool operator==(const LogSums&) const = default;
};

struct RunState {
  TrainerState trainer;
  BatcherState position;
  int64_t target_tokens = 0, source_tokens = 0;
  LogSums log;
  double grad_norm = 0;  // of the last update
  // In the order of TrainOptions::valid_metrics; empty: not measured yet.
  std::vector<std::pair<std::string, std::optional<BestMetric>>> best;
  // Validations in a row without an improvement: by metric, and the count that early stopping uses.
  std::map<std::string, int64_t> stalled_by_metric;
  int64_t stalled = 0;
  int64_t validated_update = -1;  // the last one that was validated
  bool validation_due = false;    // a validation was due when the state was saved
  double train_seconds = 0;
  std::string validation;  // validation_identity() of the scores; empty: there are none
  // Where the phase began (TrainOptions::phase): limits and the schedule count from here.
  int64_t phase_update = 0, phase_tokens = 0;
  // The metrics of the model before the first update of the phase; empty: not measured.
  std::vector<std::pair<std::string, double>> start;
  std::vector<int64_t> kept;  // updates that were best in earlier phases: their checkpoints stay
  // The phase began with this restore, and `position` is that of the phase before. Not saved.
  bool begins_phase = false;
};

// Identifies data, tokenizer and fixed options. They must be the same when a run resumes.
struct RunIdentity {
  uint64_t corpus = 0;          // TokenizedCorpus::fingerprint
  std::string tokenizer;        // CRC-32 of the serialised tokenizer; empty when the run has none
  std::string options;          // fixed_options_json
  std::string groups = {};      // parameter_groups_json
  std::string teacher = {};     // checksum of the teacher's weights; empty: the run has none
  std::string reference = {};   // the same of the reference
  std::string validation = {};  // validation_identity(); saved as RunState::validation
  int64_t phase = 1;            // TrainOptions::phase
  bool restart_validation = false;  // TrainOptions::restart_validation; not saved
};

// The frozen parameters and the ones with separate factors, as a JSON object of parameter names;
// empty for a model whose parameters are all trained alike.
std::string parameter_groups_json(const ParameterStore& parameters);

std::string encode_state(const RunState& state, const RunIdentity& identity);

struct SavedState {
  RunState state;
  RunIdentity identity;
};
// CORRUPT_FILE naming `label` and the field; VERSION when a newer release wrote it.
SavedState decode_state(const std::string& text, const std::string& label);

// Takes over the state of a checkpoint with the identity `saved` for a run with `given`. A new
// phase begins if given.phase is the next one. Best scores and patience start anew with it, and
// with another validation where that is allowed. INVALID_ARGUMENT as for check_identity(), or
// because the validation or the phase does not fit.
void adopt_state(SavedState& saved, const RunIdentity& given, const std::string& label);

// INVALID_ARGUMENT naming what changed. Options that may change with a phase are compared only
// within one.
void check_identity(const RunIdentity& saved, const RunIdentity& given, const std::string& label);

}  // namespace trafo
