// Chooses between the right and the wrong form of a seeded fault: only in the copy of the sources
// that seeded_faults.py writes. TRAFO_SEEDED_FAULT is the number of the one fault that is on; none
// if it is not set.
#pragma once

#include <cstdlib>

namespace trafo {

inline int seeded_fault_number() {
  static const int number = [] {
    const char* text = std::getenv("TRAFO_SEEDED_FAULT");
    return text ? std::atoi(text) : 0;
  }();
  return number;
}

inline bool seeded_fault(int number) {
  return seeded_fault_number() == number;
}

}  // namespace trafo
