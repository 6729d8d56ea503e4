// How a GEMM is computed: the first row of kGemmKernels whose condition holds.
//
// The CPU and the CUDA code dispatch by this table, tests enumerate it, and the page
// docs/reference/kernel-selection.md is generated from it. Each row states its condition twice, in
// words for the page and as the predicate below them.
#pragma once

#include <cstdint>

#include "engine/core/device.h"
#include "engine/core/dtype.h"

namespace trafo {

enum class GemmKernel {
  packed_weight,     // backend/cpu/packed_weights.cc
  bias_only,         // backend/cpu/gemm.cc, backend/cuda/gemm.cu
  dot,               // backend/cpu/gemm_skinny-inl.h
  in_place,          // backend/cpu/gemm_skinny-inl.h
  blocks_bf16,       // backend/cpu/gemm_bf16.cc, gemm_bf16_arm.cc
  blocks,            // backend/cpu/gemm_driver-inl.h
  epilogue,          // backend/cuda/gemm.cu, ops/feed_forward/activation_gemm_wgmma_cuda.cu
  low_rank,          // backend/cuda/gemm.cu, ops/low_rank_linear/low_rank_gemm_wgmma_cuda.cu
  rank_update,       // backend/cuda/rank_update.cu
  few_rows,          // backend/cuda/few_rows.cu
  float32_then_sum,  // backend/cuda/gemm.cu
  cublaslt,          // backend/cuda/gemm_plans.cu
  cublaslt_then_bias,
};

// The facts that the choice depends on, for C [m, n] = A [m, k] B [k, n].
struct GemmCase {
  DeviceKind device = DeviceKind::cpu;
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  bool has_bias = false;
  // CPU: B was laid out ahead by PackedWeights; rows of the micro-kernel, 14 with AVX-512 and NEON,
  // else 6.
  bool packed_weight = false;
  int64_t panel_rows = 6;
  bool multiplies_bf16 = false;  // float32 with the context's matmul precision bfloat16
  // CUDA
  bool c_is_bf16 = false;
  bool accumulate = false;
  bool has_epilogue = false;     // an activation is part of the call
  bool has_term = false;         // a product of low rank is part of the call
  bool bias_in_epilogue = true;  // bias on 16 bytes, and cuBLASLt has such a kernel
  // One bfloat16 GEMM whose rows, of A and of B, begin and end on 16 bytes.
  bool rows_on_16_bytes = false;
};

// Most rows of A for which dot products along the rows of a transposed B beat packing it.
constexpr int64_t most_dot_rows(int64_t panel_rows) {
  return panel_rows == 14 ? 24 : 8;
}

// Most rows of A for which the bytes of B are the time of a GEMM, and few_rows is the faster
// kernel.
inline constexpr int64_t kMostFewRows = 16;

struct GemmKernelRow {
  GemmKernel kernel;
  const char* name;
  DeviceKind device;
  const char* when;
  bool (*takes)(const GemmCase& c);
  const char* description;
};

inline constexpr GemmKernelRow kGemmKernels[] = {
    // clang-format off
    {GemmKernel::bias_only, "bias_only", DeviceKind::cpu,
     "k = 0",
     [](const GemmCase& c) { return c.k == 0; },
     "C = bias or zeros, added to C if asked"},

    {GemmKernel::packed_weight, "packed_weight", DeviceKind::cpu,
     "float32, B is a weight that a translator laid out ahead",
     [](const GemmCase& c) { return c.packed_weight; },
     "blocks of the packed micro-kernel; rows of C do not depend on how many there are"},

    {GemmKernel::dot, "dot", DeviceKind::cpu,
     "A as stored, B transposed, m <= 24 (AVX-512, NEON) or m <= 8 (AVX2, SSE4)",
     [](const GemmCase& c) {
       return !c.trans_a && c.trans_b && c.m <= most_dot_rows(c.panel_rows);
     },
     "dot products along the rows of B, which is read once and not packed"},

    {GemmKernel::in_place, "in_place", DeviceKind::cpu,
     "A and B as stored, m <= 14 (AVX-512, NEON) or m <= 6 (AVX2, SSE4)",
     [](const GemmCase& c) { return !c.trans_a && !c.trans_b && c.m <= c.panel_rows; },
     "micro-kernel on B where it is, read once and not packed"},

    {GemmKernel::blocks_bf16, "blocks_bf16", DeviceKind::cpu,
     "float32, the context multiplies in bfloat16",
     [](const GemmCase& c) { return c.multiplies_bf16; },
     "rounds A and B to bfloat16 while it packs them, blocks as below; float32 sums (AMX, AVX512-BF16, BFMMLA of 64-bit ARM)"},

    {GemmKernel::blocks, "blocks", DeviceKind::cpu,
     "all others",
     [](const GemmCase&) { return true; },
     "packs the smaller operand once for all threads, blocks of work along the larger one"},

    {GemmKernel::epilogue, "epilogue", DeviceKind::cuda,
     "bfloat16, an activation is part of the call",
     [](const GemmCase& c) { return c.has_epilogue; },
     "on 9.0 an own kernel, if C has a tile of 256 x 192 for every multiprocessor; otherwise GEMM and "
     "activation apart"},

    {GemmKernel::low_rank, "low_rank", DeviceKind::cuda,
     "bfloat16, a product of low rank is part of the call",
     [](const GemmCase& c) { return c.has_term; },
     "on 9.0 an own kernel, if C has a tile of 256 x 192 for every multiprocessor and there is no "
     "bias; otherwise GEMM and rank_update"},

    {GemmKernel::bias_only, "bias_only", DeviceKind::cuda,
     "k = 0",
     [](const GemmCase& c) { return c.k == 0; },
     "C = bias or zeros, added to C if asked"},

    {GemmKernel::rank_update, "rank_update", DeviceKind::cuda,
     "bfloat16 C that is added to without a bias, A as stored, k <= 64",
     [](const GemmCase& c) {
       return c.c_is_bf16 && c.accumulate && !c.has_bias && !c.trans_a && c.k <= 64;
     },
     "an own kernel that reads and writes C once, for what an adapter adds"},

    {GemmKernel::few_rows, "few_rows", DeviceKind::cuda,
     "bfloat16, A as stored, B transposed, m <= 16, nothing is added to, rows on 16 bytes",
     [](const GemmCase& c) {
       return c.rows_on_16_bytes && !c.accumulate && !c.trans_a && c.trans_b &&
              c.m <= kMostFewRows;
     },
     "an own kernel that reads B once, with a block for 16 of its rows, for decode steps"},

    {GemmKernel::float32_then_sum, "float32_then_sum", DeviceKind::cuda,
     "bfloat16 C that is added to, or whose bias cuBLASLt cannot take",
     [](const GemmCase& c) {
       return c.c_is_bf16 && (c.accumulate || (c.has_bias && !c.bias_in_epilogue));
     },
     "cuBLASLt into float32 scratch, then a kernel that adds and rounds once"},

    {GemmKernel::cublaslt_then_bias, "cublaslt_then_bias", DeviceKind::cuda,
     "float32 C with a bias that cuBLASLt cannot take",
     [](const GemmCase& c) { return c.has_bias && !c.bias_in_epilogue; },
     "cuBLASLt, then a kernel that adds the bias"},

    {GemmKernel::cublaslt, "cublaslt", DeviceKind::cuda,
     "all others",
     [](const GemmCase&) { return true; },
     "one cuBLASLt call, bias in its epilogue; the algorithm is cached by shape"},
    // clang-format on
};

constexpr GemmKernel gemm_kernel(const GemmCase& c) {
  for (const GemmKernelRow& row : kGemmKernels)
    if (row.device == c.device && row.takes(c)) return row.kernel;
  return c.device == DeviceKind::cpu ? GemmKernel::blocks : GemmKernel::cublaslt;
}

}  // namespace trafo
