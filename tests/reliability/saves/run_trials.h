// A training run of ten updates whose first five are saved, and what has to hold of its directory
// whatever happens to the rest.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tests/reliability/suite.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo::testing {

class RunTrials {
 public:
  // On the way to kPaused, update 6 is saved; kPaused itself is not.
  static constexpr int64_t kSaved = 5, kSavedLater = 6, kPaused = 7, kEnd = 10;

  RunTrials();

  const TrainingData& data() const { return data_; }
  const TrainOptions& options() const { return options_; }
  const ModelConfig& config() const { return config_; }
  // A run directory with a checkpoint of update kSaved.
  const std::filesystem::path& prepared() const { return prepared_; }
  Process open(const std::filesystem::path& run, uint64_t model_seed = 5) const;

  // Nothing of checkpoint `acknowledged` or newer is lost or damaged.
  void check_checkpoints(Suite& suite, const std::filesystem::path& run, int64_t acknowledged,
                         const std::string& label) const;
  // To the end in this process; the weights equal the undisturbed run's.
  void check_end(Suite& suite, Process& process, const std::string& label) const;
  // A later process finds the end of the run and no leftovers.
  void check_later_process(Suite& suite, const std::filesystem::path& run,
                           const std::string& label) const;
  // The last two, in a new process.
  void check_resumed(Suite& suite, const std::filesystem::path& run, int64_t acknowledged,
                     const std::string& label) const;

 private:
  TemporaryDirectory folder_;
  std::filesystem::path prepared_;
  TrainingData data_;
  TrainOptions options_;
  ModelConfig config_;
  Reference reference_;
};

// The run directory of one trial.
class RunCopy {
 public:
  explicit RunCopy(const std::filesystem::path& of);
  const std::filesystem::path& path() const { return path_; }

 private:
  TemporaryDirectory folder_;
  std::filesystem::path path_;
};

}  // namespace trafo::testing
