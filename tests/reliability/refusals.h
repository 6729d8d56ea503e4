// Part of the suite damaged_files.
#pragma once

#include "tests/reliability/suite.h"

namespace trafo::testing {

// Of the processor, for refusing one file: what takes longer would be a hang with a larger one.
inline constexpr double kMostSeconds = 1;

// Every reader meets files that are made to cost memory or time. Each that is refused is refused
// with at most its size and 64 MiB.
void try_costly_files(Suite& suite);

}  // namespace trafo::testing
