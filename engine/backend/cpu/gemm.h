// GEMM on the CPU: own packed micro-kernels for SSE4, AVX2 and AVX-512.
//
// Every element of C is computed by one block of work with an order of summation that follows from
// the shape and the instruction set alone, so results are the same bits for every number of
// threads.
#pragma once

#include <cstdint>

#include "engine/backend/backend.h"
#include "engine/backend/cpu/thread_pool.h"

namespace trafo {

// Runs GemmParams (backend.h), f32 or f64. k == 0 leaves C + bias when accumulating, else bias or
// zeros; an empty C is a no-op. C overlaps neither A nor B nor bias. Throws INVALID_ARGUMENT for
// sizes or leading dimensions that cannot be, DTYPE_MISMATCH for another type, OUT_OF_MEMORY when
// there is no room for packing.
void gemm_cpu(ThreadPool& pool, const GemmParams& params);

// Bytes of packing scratch that all threads hold now. It grows to the needs of the largest GEMM,
// is reused by later ones and goes back to the system when its thread ends.
int64_t gemm_scratch_bytes();

}  // namespace trafo
