// Put before every source by coverage.py: the condition of a require(), or of a check(), is a
// branch of the line that makes it, not of the one function that all of them call.
#pragma once

#include "engine/core/status.h"

#define require(condition, ...)   \
  __extension__({                 \
    if (condition) {              \
    } else                        \
      ::trafo::fail(__VA_ARGS__); \
  })

#ifdef TRAFO_CHECK_CONDITIONS  // of files whose check(bool condition, why...) refuses
#define check(condition, ...) check((condition) ? true : false, __VA_ARGS__)
#endif
