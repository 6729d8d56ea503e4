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
//
// `multiply`, f32 or bf16, is what a GEMM of f32 multiplies: with bf16, A and B are rounded to it,
// products are exact, sums and C are f32. UNSUPPORTED: bf16, unless has_bf16_gemm(). GEMMs of f64
// do not change.
void gemm_cpu(ThreadPool& pool, const GemmParams& params, DType multiply = DType::f32);

// Whether this processor multiplies bfloat16 (AVX512-BF16, or FEAT_BF16 of 64-bit ARM).
bool has_bf16_gemm();
// Says what the others lack.
inline constexpr char kNoBf16Gemm[] =
    "this processor does not multiply bfloat16, which takes AVX512-BF16 (AMD from Zen 4 on, Intel "
    "from Cooper Lake on) or FEAT_BF16 of 64-bit ARM; use float32";

// Bytes of packing scratch that all threads hold now. It grows to the needs of the largest GEMM,
// is reused by later ones and goes back to the system when its thread ends.
int64_t gemm_scratch_bytes();

}  // namespace trafo
