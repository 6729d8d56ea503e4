// A run as its directory tells it: metrics.jsonl (run_records.h) and config.yml.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace translate_train {

// NaN wherever a record does not say, or says that a value was not finite.
struct TrainPoint {
  int64_t update;
  double tokens, seconds;  // of the run so far: target tokens, training time
  double loss, nll;        // with and without label smoothing
  double grad_norm, learning_rate, speed;
  double memory, peak_memory;               // bytes
  std::map<std::string, double> objective;  // metrics of the objective, by name
};

struct ValidPoint {
  int64_t update;
  double tokens, seconds;
  std::vector<double> metrics;            // by metric_specs()
  bool has_verdict, improved;             // whether the log says that it was a new best; and what
  size_t sample_set;                      // in RunLog::sample_sets
  std::vector<std::string> translations;  // of its sources; empty: not recorded
};

struct SampleSet {
  std::vector<std::string> sources, references;
};

struct RunLog {
  std::string name;
  std::vector<TrainPoint> train;  // by update, each once
  std::vector<ValidPoint> valid;  // likewise
  std::vector<SampleSet> sample_sets;
  std::vector<int64_t> resumed_after;  // updates
  std::vector<std::pair<std::string, std::string>> settings;
  std::string version, device;
  int64_t parameters = 0, train_pairs = 0, valid_pairs = 0;  // 0: unknown
  int64_t last_update = 0, epoch = 0, skipped = 0;
  double eta_seconds = -1;
  std::string stop;      // of the end record; empty: there is none
  double last_time = 0;  // Unix seconds

  // Index in `valid` of the last that the run called a new best; of logs that do not say, the best
  // by the first metric that was measured. -1: none.
  int best_validation() const;
};

// Throws a usage error if `path` is no run directory. Leaves out parts that cannot be read and adds
// a warning for each.
RunLog read_run(const std::string& path, std::vector<std::string>& warnings);

}  // namespace translate_train
