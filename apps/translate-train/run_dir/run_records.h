// The records of a run: RUN/metrics.jsonl, which `report` draws, and TensorBoard's files.
//
// metrics.jsonl has one JSON object a line, each with "type", "update" and "time" (Unix seconds):
//   run      at the start of every process: what it runs on
//   samples  likewise: the validation sentences whose translations are kept
//   train    every display; "objective": the metrics of the objective by name, if it has any
//   skipped  an update that was left out because loss or gradient was not finite (then null)
//   valid    every validation, and one before the first update of a run or phase that starts from a
//            model ("start": true); "samples": translations of the sentences of the last samples
//            record
//   average  the mean of the last checkpoints (--average-last), with its metrics
//   end      the process is done, "stop" says why: limit, early stopping, cancelled, stopped,
//            diverged, failed
// Readers must skip types and keys that they do not know. Records appear in the order of updates:
// when a run resumes, the records after its last checkpoint are removed.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands/trafo_handles.h"
#include "report/reporter.h"
#include "report/tfevents.h"
#include "settings/setting_types.h"

namespace translate_train {

// A validation pair whose translation is kept.
struct SamplePair {
  int64_t line = 0;  // from 0
  std::string source, reference;
};
// A few, spread evenly over the corpus; long ones are cut.
std::vector<SamplePair> pick_samples(const Corpus& valid);

struct RunFacts {
  nlohmann::ordered_json description;  // members of the run record
  std::vector<SamplePair> samples;
  std::string tensorboard;          // folder of its event files; empty: none
  bool tensorboard_is_own = false;  // RUN/tensorboard, which must be a directory of its own
};

// The metrics of an event that are numbers, in the order in which metrics are listed.
std::vector<std::pair<const MetricSpec*, double>> values_of(const trafo_event& event);

// The metrics of the objective in an event, by name.
std::vector<std::pair<std::string, double>> objective_values_of(const trafo_event& event);

class RunRecords {
 public:
  RunRecords(RunFacts facts, Reporter& reporter);

  // Records what belongs into the files; returns the record, empty if there is none.
  nlohmann::ordered_json take(const trafo_event& event);
  // An error ended the run, which then has no last event.
  void fail(bool diverged);

 private:
  nlohmann::ordered_json end(int64_t update, const char* stop, double seconds);
  void begin(const trafo_event& event, bool resumed);
  nlohmann::ordered_json train(const trafo_event& event);
  nlohmann::ordered_json valid(const trafo_event& event);
  nlohmann::ordered_json averaged(const trafo_event& event);
  void board_samples(int64_t update, const std::vector<std::string>& translations);
  void check_board();

  RunFacts facts_;
  Reporter& reporter_;
  std::unique_ptr<TensorBoardWriter> board_;
  int64_t last_update_ = -1;  // none yet
  double last_seconds_ = 0;
};

}  // namespace translate_train
