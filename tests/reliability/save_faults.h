// Parts of the family save_faults.
#pragma once

#include "tests/reliability/family.h"

namespace trafo::testing {

// Each call that a training run makes while it is opened, saved or brought to its end.
void try_runs(Family& family, bool is_long);
// Each call that writes one file or exports a model.
void try_files(Family& family, bool is_long);
// The power goes in the middle of it.
void try_power_loss(Family& family, bool is_long);
// Full disk, read-only and missing directories, two processes.
void try_environment(Family& family);

}  // namespace trafo::testing
