// Shared by gemm.cc and the files that compile the kernels for each element type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/backend/backend.h"
#include "engine/backend/cpu/thread_pool.h"

namespace trafo {

// One GEMM (batch 1, m, n, k > 0) of a known type, run by the best instruction set of this
// machine.
void gemm_f32(ThreadPool& pool, const GemmParams& params);
void gemm_f64(ThreadPool& pool, const GemmParams& params);

// Instructions that multiply bfloat16, each with its order of sums and its roundings.
enum class Bf16Instructions { avx512, amx, arm };
// Those of this processor, the fastest first; none if it does not multiply bfloat16.
std::span<const Bf16Instructions> bf16_instructions();
// gemm_f32 with A and B rounded to bfloat16, but for few rows (gemm_kernels.h). Only with one of
// bf16_instructions().
void gemm_bf16(ThreadPool& pool, const GemmParams& params, Bf16Instructions instructions);

// A weight B^T [n, k] laid out once for many GEMMs, padded to whole panels: packed_size_f32
// elements, which belong to the instruction set that runs.
int64_t packed_size_f32(int64_t n, int64_t k);
void pack_weight_f32(ThreadPool& pool, const float* weight, int64_t n, int64_t k, float* to);
// gemm_f32 with such a B. Rows of C do not depend on how many there are.
void gemm_packed_f32(ThreadPool& pool, const GemmParams& params, const float* packed_b);

// Packing memory of the calling thread. `local` is for one block of work; `shared` is filled by all
// threads for all.
void* gemm_local_scratch(int64_t bytes);
void* gemm_shared_scratch(int64_t bytes);

// [0, count) cut into the fewest parts of at most `limit`, whose sizes differ by at most one: the
// last part of 128 rows in panels of 14 has 12 rows rather than 2, which would leave the
// multipliers idle.
class EvenSplit {
 public:
  EvenSplit(int64_t count, int64_t limit)
      : parts_((count + limit - 1) / limit),
        base_(parts_ > 0 ? count / parts_ : 0),
        extra_(parts_ > 0 ? count % parts_ : 0) {}

  int64_t parts() const { return parts_; }
  int64_t begin(int64_t part) const { return part * base_ + std::min(part, extra_); }
  int64_t size(int64_t part) const { return base_ + (part < extra_ ? 1 : 0); }

 private:
  int64_t parts_;
  int64_t base_;
  int64_t extra_;
};

}  // namespace trafo
