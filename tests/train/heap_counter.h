#pragma once

#include <cstdint>

namespace trafo::testing {

// How often this program has called operator new; 0 under sanitizers, which have their own.
int64_t heap_calls();

}  // namespace trafo::testing
