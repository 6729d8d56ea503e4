// Appending to a KV cache: cache[slots[t], :] = x[t, :] for every new token t, on a window of
// columns.
//
// The cache is [rows * capacity, columns]. Row r of the batch owns `capacity` slots from r *
// capacity on, and its token number p goes to slot r * capacity + p. The list of slots serves one
// new token a row (a decode step), whole prompts (prefill) and rows of different lengths alike. Not
// recorded.
#pragma once

#include "engine/runtime/context.h"

namespace trafo {

struct KvCacheAppendParams {
  DType dtype;  // any
  int64_t tokens, columns;
  int64_t cache_rows;              // rows * capacity
  int64_t x_stride, cache_stride;  // elements from row to row
  const void* x;                   // first column to copy of token 0
  const int32_t* slots;            // [tokens], 0 .. cache_rows - 1, no two the same
  void* cache;                     // first column to write of slot 0
};

namespace ops {

// Copies columns column .. column + columns - 1 of x [T, width] to the columns from cache_column on
// of cache [slots, width of the cache], token t to row slots[t] (int32 [T]). With packed queries,
// keys and values one call copies keys and values together. x and cache have one dtype, any.
// Two tokens may not share a slot. A slot that is not a row of the cache is INVALID_ARGUMENT on the
// CPU; on CUDA, where kernels cannot report it, that token is not stored. UNSUPPORTED when a
// gradient of x is wanted.
void kv_cache_append(Context& context, const Tensor& x, int64_t column, int64_t columns,
                     const Tensor& slots, const Tensor& cache, int64_t cache_column);

}  // namespace ops
}  // namespace trafo
