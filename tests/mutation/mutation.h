// Chooses between the right and the wrong form of a mutated place, in the copy of the sources that
// mutation.py writes and nowhere else. TRAFO_MUTATION is the number of the one mutation that is on;
// none if it is not set.
#pragma once

#include <cstdlib>

namespace trafo {

inline int mutation_number() {
  static const int number = [] {
    const char* text = std::getenv("TRAFO_MUTATION");
    return text ? std::atoi(text) : 0;
  }();
  return number;
}

inline bool mutated_here(int number) {
  return mutation_number() == number;
}

}  // namespace trafo
