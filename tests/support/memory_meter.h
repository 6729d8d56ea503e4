// How much memory this program has from malloc, aligned_alloc and operator new, and the most it
// had.
#pragma once

#include <cstdint>

namespace trafo::testing {

// Bytes above what was in use when reset_memory_peak() was called last. Sanitizers bring their own
// allocator: then measures_memory() is false and the peak 0.
bool measures_memory();
void reset_memory_peak();
int64_t memory_peak();

}  // namespace trafo::testing
