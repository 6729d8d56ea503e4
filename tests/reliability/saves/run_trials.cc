#include "tests/reliability/saves/run_trials.h"

namespace trafo::testing {

namespace fs = std::filesystem;

RunTrials::RunTrials()
    : prepared_(folder_ / "prepared"),
      data_(copy_data(Architecture::decoder_lm)),
      options_(quick_options()),
      config_(tiny_config(Architecture::decoder_lm)) {
  options_.ema_alpha = 1e-2;  // a checkpoint with all the files that there can be
  options_.optimizer_states = OptimizerStates::eight_bit;
  options_.log_freq = {3, PeriodUnit::updates};
  options_.valid_freq = {4, PeriodUnit::updates};
  options_.save_freq = {3, PeriodUnit::updates};
  options_.keep_last = 1;
  options_.keep_best = true;
  options_.average_last = 2;
  options_.after_updates = kEnd;
  reference_ = [&] {
    TrainOptions alone = options_;
    alone.average_last = 0;
    return uncut(data_, alone, kEnd, 1, config_);
  }();
  Process process = open(prepared_);
  process.run->run({}, nullptr, kSaved);
  process.run->save();
}

Process RunTrials::open(const fs::path& run, uint64_t model_seed) const {
  return Process(data_, options_, run, 1, config_, model_seed);
}

void RunTrials::check_checkpoints(Suite& suite, const fs::path& run, int64_t acknowledged,
                                  const std::string& label) const {
  try {
    const CheckpointDirectory checkpoints(run);
    const NewestValid newest = checkpoints.newest_valid();
    suite.require(newest.refused.empty(), label + ": a checkpoint is damaged");
    suite.require(newest.update && *newest.update >= acknowledged,
                  concat(label, ": the newest checkpoint is ", newest.update.value_or(-1), ", ",
                         acknowledged, " was acknowledged"));
    for (const int64_t update : checkpoints.list()) checkpoints.verify(update);
  } catch (const Error& error) {
    suite.failed(label + ": the checkpoints do not load: " + error.what());
  }
}

void RunTrials::check_end(Suite& suite, Process& process, const std::string& label) const {
  try {
    suite.require(process.run->run().reason == StopReason::limit, label + ": no end");
    suite.require(process.weights() == reference_.weights, label + ": other weights at the end");
    suite.require(timeless(process.run->state()) == reference_.state,
                  label + ": another state at the end");
  } catch (const Error& error) {
    suite.failed(label + ": training does not go on: " + error.what());
  }
}

void RunTrials::check_later_process(Suite& suite, const fs::path& run,
                                    const std::string& label) const {
  try {
    Process later = open(run, 99);
    suite.require(later.run->resumed() && later.run->state().trainer.update == kEnd,
                  label + ": a later process does not find the end");
    suite.require(later.weights() == reference_.weights, label + ": other weights were saved");
    for (const fs::path& folder : {run, run / "ckpt"})
      for (const std::string& name : list_directory(folder))
        suite.require(!name.starts_with('.') || name == ".lock", label + ": left behind: " + name);
    SafetensorsReader::open(run / "ckpt" / kAveragedFolder / kModelFile).verify();
  } catch (const Error& error) {
    suite.failed(label + ": a later process fails: " + error.what());
  }
}

void RunTrials::check_resumed(Suite& suite, const fs::path& run, int64_t acknowledged,
                              const std::string& label) const {
  try {
    Process next = open(run, 99);
    suite.require(next.run->resumed() && next.run->state().trainer.update >= acknowledged,
                  label + ": resumed before what was acknowledged");
    check_end(suite, next, label);
  } catch (const Error& error) {
    suite.failed(label + ": does not resume: " + error.what());
    return;
  }
  check_later_process(suite, run, label);
}

RunCopy::RunCopy(const fs::path& of) : path_(folder_ / "run") {
  fs::copy(of, path_, fs::copy_options::recursive);
}

}  // namespace trafo::testing
