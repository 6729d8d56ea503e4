// Part of the family damaged_files.
#pragma once

#include "tests/reliability/family.h"

namespace trafo::testing {

// Every reader meets files that are made to cost memory. Each that is refused is refused with at
// most its size and 64 MiB.
void try_costly_files(Family& family);

}  // namespace trafo::testing
