// The parts of a training run.
#pragma once

#include "commands/profile.h"
#include "commands/trafo_handles.h"
#include "report/reporter.h"
#include "run_dir/run_records.h"
#include "settings/settings.h"

namespace translate_train {

struct Corpora {
  Corpus train, valid;
};

// Moves 1% of the pairs (at most 2000) to `valid`: those whose text has the smallest hashes, so
// that the same pairs are chosen whatever their order, and never a copy of one that stays.
Corpora hold_out(Corpus all, Reporter& reporter);

// A vocabulary of --dim-vocabs tokens, with `soft_limit` at most, and of --vocab-kind.
Tokenizer train_vocabulary(const Corpus& corpus, const Settings& settings, bool soft_limit,
                           Reporter& reporter);

int64_t pair_count(const Corpus& corpus);

// Runs to the end and shows progress. SIGTERM and SIGINT save and stop. Returns the exit code.
int run_trainer(trafo_trainer* trainer, RunRecords& records, Reporter& reporter,
                const ProfileRequest& profile);
// The same on another rank than the first one, which says nothing. In a separate process it takes
// SIGTERM and SIGINT.
int run_other_rank(trafo_trainer* trainer, const ProfileRequest& profile, bool is_process);

}  // namespace translate_train
