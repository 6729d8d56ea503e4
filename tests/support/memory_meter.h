// How much memory this program has from malloc, aligned_alloc and operator new, the most it had,
// and how often it asked. Programs that link this wrap malloc, aligned_alloc and free
// (trafo_measure_memory in tests/CMakeLists.txt).
#pragma once

#include <cstdint>

namespace trafo::testing {

// Bytes above what was in use when reset_memory_peak() was called last. Sanitizers bring their own
// allocator: then measures_memory() is false and the peak 0.
bool measures_memory();
void reset_memory_peak();
int64_t memory_peak();

// How often this program has called operator new; 0 under sanitizers.
int64_t heap_calls();

}  // namespace trafo::testing
