// Tests of CPU kernels with every instruction set of the machine. To be included before any header
// of Highway.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "engine/backend/cpu/simd.h"
#include "hwy/highway.h"

namespace trafo::testing {

// Runs `body` with every instruction set of this machine in turn.
template <class F>
void for_each_target(F&& body) {
  for (int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
    hwy::SetSupportedTargetsForTest(0);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace trafo::testing
