// Parts of the suite save_faults.
#pragma once

#include "tests/reliability/suite.h"

namespace trafo::testing {

// Each call that a training run makes while it is opened, saved or brought to its end.
void try_runs(Suite& suite, bool is_long);
// Each call that writes one file or exports a model.
void try_files(Suite& suite, bool is_long);
// The power goes in the middle of it.
void try_power_loss(Suite& suite, bool is_long);
// File systems without locks, or without fsync.
void try_missing_operations(Suite& suite);
// Full disk, read-only and missing directories, two processes.
void try_environment(Suite& suite);

}  // namespace trafo::testing
