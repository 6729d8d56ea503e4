// Scaled dot-product attention over packed sequences: softmax(scale Q K^T + mask) V for each
// sequence and head.
//
// All tokens of all sequences stand in one row dimension; sequence b owns query rows
// cu_seqlens_q[b] .. cu_seqlens_q[b+1] and key rows cu_seqlens_k[b] .. cu_seqlens_k[b+1] (int32,
// [B+1]). q, k, v are heads * head_dim columns of row-major matrices, so one packed projection [T,
// 3C] serves as all three without a copy, and their gradients land in its gradient. causal: key j
// is hidden from query i when j > i + keys - queries. Dropout acts on the probabilities; element
// number (query row * heads + head) * dropout_key_stride(max_keys) + key, key counted inside the
// sequence. A query without keys gives zeros. Saved for backward: the output and the log-sum-exp of
// each row [Tq, heads]; probabilities are recomputed (Dao et al., arXiv 2205.14135), nothing of
// size S x S is kept.
#pragma once

#include "engine/core/philox.h"
#include "engine/runtime/context.h"

namespace trafo {

// Dropout elements from one query and head to the next. Of nearly equal longest sequences the same,
// and of its own results: a batch that is filled up (BatchBucket) drops what it drops alone.
constexpr int64_t dropout_key_stride(int64_t max_keys) {
  const int64_t step = max_keys <= 128 ? 32 : 128;
  return (max_keys + step - 1) / step * step;
}

struct AttentionForwardParams {
  DType dtype;
  Dropout dropout;
  double scale;
  bool causal;
  int64_t sequences, heads, head_dim, query_rows, key_rows;
  int64_t max_queries, max_keys;  // longest sequence of each side
  const int32_t* query_begin;  // [sequences]; a packed batch passes cu_seqlens and cu_seqlens + 1
  const int32_t* query_end;
  const int32_t* key_begin;
  const int32_t* key_end;
  const void* q;
  const void* k;
  const void* v;
  int64_t q_stride, k_stride, v_stride;  // elements from row to row
  void* out;                             // [query_rows, heads * head_dim]
  void* lse;  // [query_rows, heads], natural log, stat_dtype(dtype); null when nothing is recorded
};

struct AttentionBackwardParams {
  DType dtype;
  Dropout dropout;
  double scale;
  bool causal;
  int64_t sequences, heads, head_dim, query_rows, key_rows;
  int64_t max_queries, max_keys;
  const int32_t* query_begin;
  const int32_t* query_end;
  const int32_t* key_begin;
  const int32_t* key_end;
  const void* q;
  const void* k;
  const void* v;
  int64_t q_stride, k_stride, v_stride;
  const void* out;
  const void* lse;
  const void* dout;
  void* dq;  // same columns and row strides as q, k, v in the gradient matrices; null where not
             // wanted
  void* dk;
  void* dv;
  int64_t dq_stride, dk_stride, dv_stride;
  bool accumulate_dq, accumulate_dk, accumulate_dv;
};

namespace ops {

// heads * head_dim columns of `tensor` [rows, width], from `column`.
struct AttentionInput {
  Tensor tensor;
  int64_t column = 0;
};

struct AttentionOptions {
  int64_t heads = 1;
  int64_t head_dim = 0;
  bool causal = false;
  double scale = 0;  // 0: 1 / sqrt(head_dim)
  Dropout dropout;
  // Longest sequence of each side, where the caller knows them (he then vouches for cu_seqlens, or
  // the key ranges, too): an accelerator, which would have to be waited for, does not read them
  // back. 0: unknown. attention_decode uses max_keys only.
  int64_t max_queries = 0, max_keys = 0;
};

// -> [Tq, heads * head_dim]
Tensor attention(Context& context, const AttentionInput& q, const AttentionInput& k,
                 const AttentionInput& v, const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                 const AttentionOptions& options);
Tensor attention_reference(Context& context, const AttentionInput& q, const AttentionInput& k,
                           const AttentionInput& v, const Tensor& cu_seqlens_q,
                           const Tensor& cu_seqlens_k, const AttentionOptions& options);

// One query row per sequence against key ranges anywhere in k and v: decoding with a KV cache.
// key_begin, key_end [rows] int32; ranges may overlap (hypotheses of a beam share their source).
// Not recorded.
Tensor attention_decode(Context& context, const AttentionInput& q, const AttentionInput& k,
                        const AttentionInput& v, const Tensor& key_begin, const Tensor& key_end,
                        const AttentionOptions& options);

}  // namespace ops
}  // namespace trafo
