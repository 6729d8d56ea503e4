// Which kernel computes attention: the first row of kAttentionKernels whose conditions all hold.
//
// The CUDA and the CPU code dispatch by this table, tests enumerate it, and the page
// docs/reference/kernel-selection.md is generated from it. To find the kernel of a problem, read
// the rows from the top.
#pragma once

#include <cstdint>
#include <iterator>
#include <limits>

#include "engine/backend/cuda/cards.h"
#include "engine/core/device.h"
#include "engine/core/dtype.h"

namespace trafo {

enum class AttentionKernel {
  decode,          // attention_decode_cuda.cu
  short_mma,       // attention_short_{forward,backward}_cuda.cu
  wgmma_pipeline,  // attention_wgmma_pipeline_{forward,backward}_cuda.cu
  wgmma_ordered,   // attention_wgmma_ordered_backward_cuda.cu
  wgmma_short,     // attention_wgmma_short_forward_cuda.cu
  wgmma,           // attention_wgmma_{forward,backward}_cuda.cu
  mma,             // attention_mma_{forward,backward}_cuda.cu
  cuda_cores,      // attention_cuda.cu
  one_query,       // attention_cpu.cc
  tiles,           // attention_cpu.cc
};
inline constexpr int kAttentionKernelCount = static_cast<int>(AttentionKernel::tiles) + 1;

// The facts that the choice depends on. Grouped queries (kv_heads < heads) do not change it: every
// kernel takes them.
struct AttentionCase {
  DeviceKind device = DeviceKind::cpu;
  bool backward = false;
  bool hopper = false;  // the GPU has compute capability 9.0, and the plugin machine code for it
  int64_t shared_memory = 0;  // CUDA: bytes that a block can ask for
  DType dtype = DType::f32;
  int64_t head_dim = 0;
  int64_t queries = 0, keys = 0;  // of the longest sequence
  bool dropout = false;
  bool causal = false;
  bool window = false;     // shorter than the longest sequence
  bool bias = false;       // of distances
  bool soft_cap = false;   // of scores
  bool saves_lse = false;  // forward: a backward will follow
  bool aligned = true;     // every row of q, k, v, and so on begins at a multiple of 16 bytes
  bool scale_positive = true;
  bool tensor_maps = true;  // the driver makes them for these matrices
};

struct Bounds {
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t least = 0, most = kNone;
  constexpr bool contains(int64_t x) const { return least <= x && x <= most; }
};

inline constexpr uint32_t dtype_bit(DType dtype) {
  return 1u << static_cast<uint32_t>(dtype);
}

struct AttentionKernelRow {
  AttentionKernel kernel;
  const char* name;
  const char* description;
  DeviceKind device;
  bool forward, backward;
  uint32_t dtypes;  // dtype_bit of each
  Bounds head_dim;
  int64_t head_dim_step;  // head_dim is a multiple
  Bounds queries, keys;   // of the longest sequence
  bool dropout;           // also with dropout
  bool window = true;     // also with a window
  bool bias = false;      // also with biases of distances
  bool soft_cap = false;  // also with a soft cap of scores
  // Conditions that few rows have.
  bool causal = false;
  bool hopper = false;  // compute capability 9.0
  // The most bytes that a block of the kernel asks for. Its file asserts it.
  int64_t shared_memory = 0;
  bool aligned = false;  // rows begin at multiples of 16 bytes
  bool scale_positive = false;
  bool tensor_maps = false;
  bool inference_only = false;  // no backward follows

  constexpr bool takes(const AttentionCase& c) const {
    return device == c.device && (c.backward ? backward : forward) &&
           (dtypes & dtype_bit(c.dtype)) != 0 && head_dim.contains(c.head_dim) &&
           c.head_dim % head_dim_step == 0 && queries.contains(c.queries) &&
           keys.contains(c.keys) && (dropout || !c.dropout) && (window || !c.window) &&
           (bias || !c.bias) && (soft_cap || !c.soft_cap) && (!causal || c.causal) &&
           (!hopper || c.hopper) && shared_memory <= c.shared_memory && (!aligned || c.aligned) &&
           (!scale_positive || c.scale_positive) && (!tensor_maps || c.tensor_maps) &&
           (!inference_only || !c.saves_lse);
  }
};

// Bounds that kernels are compiled for.
inline constexpr int64_t kCudaHeadDim = 256, kMmaHeadDim = 128;
inline constexpr int64_t kShortRows = 64;  // queries and keys that one block of short_mma holds
inline constexpr int64_t kWgmmaShortRows = 128;  // that one of wgmma_short holds
inline constexpr int64_t kPipelineRows = 193;    // fewer do not fill the pipeline's tiles
inline constexpr int64_t kOrderedRows = 1024;    // below, two passes take less time

// cuda_cores holds tiles of that many rows in shared memory: of q, k or v in float32, and of
// scores. An odd number of float4s from row to row, so that eight threads reading one column of
// consecutive rows meet eight different banks.
constexpr int64_t cuda_cores_pitch(int64_t head_dim) {
  return 4 * ((head_dim + 3) / 4 | 1);
}
constexpr int64_t cuda_cores_score_pitch(int64_t rows) {
  return rows + 4;
}
constexpr int64_t cuda_cores_bytes(int64_t head_dim, bool backward, int64_t rows) {
  const int64_t tiles = backward ? 4 : 2, scores = backward ? 2 : 1;
  return 4 * rows * (tiles * cuda_cores_pitch(head_dim) + scores * cuda_cores_score_pitch(rows));
}
// Rows of a tile: the most that the registers and the shared memory have room for.
constexpr int64_t cuda_cores_rows(int64_t head_dim, bool backward, int64_t shared_memory) {
  int64_t rows = backward && head_dim > 64 ? 32 : 64;
  while (rows > 16 && cuda_cores_bytes(head_dim, backward, rows) > shared_memory) rows /= 2;
  return rows;
}

// The most parts in which kernels leave the gradient of biases of distances: cuda_cores has one for
// each tile of queries, the CPU one for each sequence.
constexpr int64_t attention_bias_parts(DeviceKind device, int64_t head_dim, int64_t sequences,
                                       int64_t max_queries) {
  if (device == DeviceKind::cpu) return sequences;
  const int64_t rows = cuda_cores_rows(head_dim, true, cuda::kLeastSharedMemory);
  return sequences * ((max_queries + rows - 1) / rows);
}

namespace attention_table {

inline constexpr auto kCuda = DeviceKind::cuda, kCpu = DeviceKind::cpu;
inline constexpr uint32_t kBf16 = dtype_bit(DType::bf16), kF32 = dtype_bit(DType::f32),
                          kF64 = dtype_bit(DType::f64);
inline constexpr Bounds kAny{}, kShort{0, kShortRows};
inline constexpr int64_t kOfEveryCard = cuda::kLeastSharedMemory,
                         kOfHopper = cuda::kHopperSharedMemory;
static_assert(cuda_cores_bytes(kCudaHeadDim, true, 16) <= kOfEveryCard &&
              cuda_cores_bytes(kCudaHeadDim, false, 16) <= kOfEveryCard);

}  // namespace attention_table

inline constexpr AttentionKernelRow kAttentionKernels[] = {
    // clang-format off
    {.kernel = AttentionKernel::decode, .name = "decode",
     .description = "one query a sequence; reads each key and value once",
     .device = attention_table::kCuda, .forward = true, .backward = false,
     .dtypes = attention_table::kF32 | attention_table::kBf16,
     .head_dim = {1, kCudaHeadDim}, .head_dim_step = 1,
     .queries = {1, 1}, .keys = attention_table::kAny, .dropout = false, .bias = true,
     .soft_cap = true,
     .shared_memory = attention_table::kOfEveryCard},

    {.kernel = AttentionKernel::short_mma, .name = "short_mma",
     .description = "a block holds a whole head of a sequence; backward in one pass",
     .device = attention_table::kCuda, .forward = true, .backward = true,
     .dtypes = attention_table::kBf16,
     .head_dim = {8, kMmaHeadDim}, .head_dim_step = 8,
     .queries = attention_table::kShort, .keys = attention_table::kShort, .dropout = true,
     .window = false,
     .shared_memory = attention_table::kOfEveryCard, .aligned = true},

    {.kernel = AttentionKernel::wgmma_pipeline, .name = "wgmma_pipeline",
     .description = "a producer warp loads tiles by TMA, two or three warpgroups multiply",
     .device = attention_table::kCuda, .forward = true, .backward = false,
     .dtypes = attention_table::kBf16,
     .head_dim = {40, kMmaHeadDim}, .head_dim_step = 8,
     .queries = {kPipelineRows}, .keys = {1}, .dropout = false,
     .hopper = true, .shared_memory = attention_table::kOfHopper,
     .aligned = true, .scale_positive = true, .tensor_maps = true},

    {.kernel = AttentionKernel::wgmma_pipeline, .name = "wgmma_pipeline",
     .description = "the same, in two passes: dq, then dk and dv",
     .device = attention_table::kCuda, .forward = false, .backward = true,
     .dtypes = attention_table::kBf16,
     .head_dim = {72, kMmaHeadDim}, .head_dim_step = 8,
     .queries = {kPipelineRows}, .keys = {kPipelineRows}, .dropout = false,
     .hopper = true, .shared_memory = attention_table::kOfHopper,
     .aligned = true, .tensor_maps = true},

    {.kernel = AttentionKernel::wgmma_ordered, .name = "wgmma_ordered",
     .description = "one pass by tiles of keys; dq in float32, added to in a fixed order",
     .device = attention_table::kCuda, .forward = false, .backward = true,
     .dtypes = attention_table::kBf16,
     .head_dim = {64, 64}, .head_dim_step = 1,
     .queries = {kOrderedRows}, .keys = {kOrderedRows}, .dropout = false,
     .causal = true, .hopper = true, .shared_memory = attention_table::kOfHopper,
     .aligned = true, .tensor_maps = true},

    {.kernel = AttentionKernel::wgmma_short, .name = "wgmma_short",
     .description = "one warpgroup a block, which holds a whole head of a sequence",
     .device = attention_table::kCuda, .forward = true, .backward = false,
     .dtypes = attention_table::kBf16,
     .head_dim = {40, 64}, .head_dim_step = 8,
     .queries = {kShortRows + 1, kWgmmaShortRows}, .keys = {1, kWgmmaShortRows}, .dropout = false,
     .window = false,
     .hopper = true, .shared_memory = attention_table::kOfHopper,
     .aligned = true, .scale_positive = true, .tensor_maps = true},

    {.kernel = AttentionKernel::wgmma, .name = "wgmma",
     .description = "warpgroup matrix instructions, tiles of 128 queries",
     .device = attention_table::kCuda, .forward = true, .backward = false,
     .dtypes = attention_table::kBf16,
     .head_dim = {40, kMmaHeadDim}, .head_dim_step = 8,
     .queries = {kShortRows + 1}, .keys = attention_table::kAny, .dropout = false,
     .hopper = true, .shared_memory = attention_table::kOfHopper,
     .aligned = true, .scale_positive = true},

    {.kernel = AttentionKernel::wgmma, .name = "wgmma",
     .description = "the same, in two passes: dq, then dk and dv",
     .device = attention_table::kCuda, .forward = false, .backward = true,
     .dtypes = attention_table::kBf16,
     .head_dim = {40, kMmaHeadDim}, .head_dim_step = 8,
     .queries = attention_table::kAny, .keys = attention_table::kAny, .dropout = false,
     .hopper = true, .shared_memory = attention_table::kOfHopper,
     .aligned = true},

    {.kernel = AttentionKernel::mma, .name = "mma",
     .description = "tensor cores by mma.sync, tiles as in FlashAttention-2",
     .device = attention_table::kCuda, .forward = true, .backward = true,
     .dtypes = attention_table::kBf16,
     .head_dim = {8, kMmaHeadDim}, .head_dim_step = 8,
     .queries = attention_table::kAny, .keys = attention_table::kAny, .dropout = true,
     .shared_memory = attention_table::kOfEveryCard, .aligned = true},

    {.kernel = AttentionKernel::cuda_cores, .name = "cuda_cores",
     .description = "float32 arithmetic, every shape up to head_dim 256",
     .device = attention_table::kCuda, .forward = true, .backward = true,
     .dtypes = attention_table::kF32 | attention_table::kBf16,
     .head_dim = {1, kCudaHeadDim}, .head_dim_step = 1,
     .queries = attention_table::kAny, .keys = attention_table::kAny, .dropout = true,
     .bias = true, .soft_cap = true,
     .shared_memory = attention_table::kOfEveryCard},

    // On the CPU the choice is made for each sequence, with its own number of queries.
    {.kernel = AttentionKernel::one_query, .name = "one_query",
     .description = "reads each key and value once, transposes nothing",
     .device = attention_table::kCpu, .forward = true, .backward = false,
     .dtypes = attention_table::kF32 | attention_table::kF64,
     .head_dim = {1}, .head_dim_step = 1,
     .queries = {1, 1}, .keys = attention_table::kAny, .dropout = false, .bias = true,
     .soft_cap = true,
     .inference_only = true},

    {.kernel = AttentionKernel::tiles, .name = "tiles",
     .description = "64 x 64 tiles of scores in the cache",
     .device = attention_table::kCpu, .forward = true, .backward = true,
     .dtypes = attention_table::kF32 | attention_table::kF64,
     .head_dim = {1}, .head_dim_step = 1,
     .queries = attention_table::kAny, .keys = attention_table::kAny, .dropout = true,
     .bias = true, .soft_cap = true},
    // clang-format on
};

// Null: no kernel takes the case.
constexpr const AttentionKernelRow* attention_kernel(const AttentionCase& c) {
  for (const AttentionKernelRow& row : kAttentionKernels)
    if (row.takes(c)) return &row;
  return nullptr;
}

constexpr const char* attention_kernel_name(AttentionKernel kernel) {
  for (const AttentionKernelRow& row : kAttentionKernels)
    if (row.kernel == kernel) return row.name;
  return "";
}

// Tells the launch's caller, if it asks, that a kernel runs.
template <class Params>
void note_kernel(const Params& p, AttentionKernel kernel) {
  if (p.kernels) *p.kernels |= 1u << static_cast<uint32_t>(kernel);
}

}  // namespace trafo
