// The parts of a training run that `train` and `demo` share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "profile.h"
#include "reporter.h"
#include "run_records.h"
#include "settings.h"
#include "trafo_handles.h"

namespace translate_train {

struct Corpora {
  Corpus train, valid;
};

// Moves 1% of the pairs (at most 2000) to `valid`: those whose text has the smallest hashes, so
// that the same pairs are chosen whatever their order, and never a copy of one that stays.
Corpora hold_out(Corpus all);

Tokenizer train_vocabulary(const Corpus& corpus, int64_t pieces, bool soft_limit,
                           Reporter& reporter);

int64_t pair_count(const Corpus& corpus);

struct RunResult {
  int exit_code = 0;
  int32_t stop = TRAFO_STOP_NONE;
};

// Runs to the end, showing progress; SIGTERM and SIGINT save and stop. `keep_going`, called at
// every event, may end the run, which then counts as done.
RunResult run_trainer(trafo_trainer* trainer, const trafo_trainer_options& options,
                      RunRecords& records, Reporter& reporter,
                      const std::function<bool(const trafo_event&)>& keep_going = {},
                      const ProfileRequest& profile = {});

// The whole of `train`: corpus, vocabulary and model by `settings`, which get their defaults here,
// and the run in (or continued from) the directory `run`.
RunResult train_run(Settings settings, const std::string& run, Reporter& reporter,
                    const std::function<bool(const trafo_event&)>& keep_going = {},
                    const ProfileRequest& profile = {});

}  // namespace translate_train
