// Scaled dot-product attention over packed sequences: softmax(scale Q K^T + mask) V for each
// sequence and head.
//
// All tokens of all sequences stand in one row dimension. Sequence b owns query rows
// cu_seqlens_q[b] .. cu_seqlens_q[b+1] and key rows cu_seqlens_k[b] .. cu_seqlens_k[b+1] (int32,
// [B+1]). q is heads * head_dim columns of a row-major matrix, k and v are kv_heads * head_dim
// columns. One packed projection [T, (heads + 2 kv_heads) head_dim] serves as all three without a
// copy, and their gradients land in its gradient.
// Query head h reads key and value head h / (heads / kv_heads): grouped-query attention (Ainslie et
// al., arXiv 2305.13245). Gradients of a key and value head are sums over the query heads that
// share it, in ascending order.
// causal: key j is masked for query i when j > i + keys - queries. A query without keys gives
// zeros.
// window (0: none): key j is masked for query i as well when j <= i + keys - queries - window, and
// without causal when j >= i + keys - queries + window. With causal a query sees at most `window`
// keys, the last one included (Jiang et al., arXiv 2310.06825), without it that many to each side,
// the one in line with it included (Beltagy et al., arXiv 2004.05150). Kernels skip tiles outside
// of the window.
// soft_cap (c > 0; 0: none): a scaled score s becomes c tanh(s / c) before the mask (Gemma 2,
// Riviere et al., arXiv 2408.00118, section 2). distance_bias [heads, 2 n - 1]: the element of head
// h in column n - 1 + j - (i + keys - queries) is added to the scaled score of query i and key j,
// as with relative position biases (Raffel et al., arXiv 1910.10683). n is at least the length of
// the longest sequence. Dropout acts on the probabilities; its element number is (query row * heads
// + head) * dropout_key_stride(max_keys) + key, where the key counts inside the sequence. Saved for
// backward: the output and the log-sum-exp of each row [Tq, heads]. Probabilities are recomputed
// (Dao et al., arXiv 2205.14135); nothing of size S x S is kept.
#pragma once

#include "engine/core/numeric/philox.h"
#include "engine/runtime/context.h"

namespace trafo {

// Dropout elements from one query and head to the next. Rounded up, so that a batch padded to a
// bucket (BatchBucket) drops the same elements as the batch alone.
constexpr int64_t dropout_key_stride(int64_t max_keys) {
  const int64_t step = max_keys <= 128 ? 32 : 128;
  return (max_keys + step - 1) / step * step;
}

struct AttentionForwardParams {
  DType dtype;
  Dropout dropout;
  double scale;
  bool causal;
  int64_t window;                                                      // 0: none
  int64_t sequences, heads, kv_heads, head_dim, query_rows, key_rows;  // kv_heads divides heads
  // The longest sequence of each side, on an accelerator or more. With less, results and gradients
  // of that sequence are undefined. No kernel reads or writes outside the tensors, or waits for
  // ever.
  int64_t max_queries, max_keys;
  const int32_t* query_begin;  // [sequences]; a packed batch passes cu_seqlens and cu_seqlens + 1
  const int32_t* query_end;
  const int32_t* key_begin;
  const int32_t* key_end;
  const void* q;
  const void* k;
  const void* v;
  int64_t q_stride, k_stride, v_stride;  // elements from row to row
  double soft_cap;                       // 0: none; not with a bias
  const void* bias;                      // distance_bias, contiguous, of `dtype`; null: none
  int64_t bias_columns;                  // of it
  void* out;                             // [query_rows, heads * head_dim]
  void* lse;  // [query_rows, heads], natural log, stat_dtype(dtype); null when nothing is recorded
  uint32_t*
      kernels;  // on the host: the launch sets bit 1 << AttentionKernel of what it ran, or null
};

struct AttentionBackwardParams {
  DType dtype;
  Dropout dropout;
  double scale;
  bool causal;
  int64_t window;                                                      // 0: none
  int64_t sequences, heads, kv_heads, head_dim, query_rows, key_rows;  // kv_heads divides heads
  int64_t max_queries, max_keys;                                       // as in forward
  const int32_t* query_begin;
  const int32_t* query_end;
  const int32_t* key_begin;
  const int32_t* key_end;
  const void* q;
  const void* k;
  const void* v;
  int64_t q_stride, k_stride, v_stride;
  double soft_cap;   // as in forward
  const void* bias;  // the same
  int64_t bias_columns;
  // The gradient of `bias` in parts, stat_dtype(dtype) [parts, heads, bias_columns], which are zero
  // and of which the kernels add to some: attention_bias_parts() of them. Null: not wanted.
  void* bias_parts;
  const void* out;
  const void* lse;
  const void* dout;
  void* dq;  // null where not wanted
  void* dk;
  void* dv;
  int64_t dq_stride, dk_stride, dv_stride;
  bool accumulate_dq, accumulate_dk, accumulate_dv;
  // Where kv_heads < heads, except on the CPU: workspace for the gradients that each query head
  // gives to its keys and values, [key_rows, heads * head_dim] each; null with dk or dv.
  void* dk_by_head;
  void* dv_by_head;
  // Place for the largest magnitude of all three gradients (Fp8Magnitudes), or null. Only with
  // kv_heads == heads and without accumulation. The kernels on CUDA cores leave none.
  uint32_t* largest;
  uint32_t* kernels;  // as in forward
};

namespace ops {

// The columns of q, k or v in `tensor` [rows, width], from number `column` on.
struct AttentionInput {
  Tensor tensor;
  int64_t column = 0;
};

struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 0;  // heads of keys and values, a divisor of `heads`; 0: as many as `heads`
  int64_t head_dim = 0;
  bool causal = false;
  // With `causal`, keys that a query sees at most: its last one and those before it. Without, keys
  // to each side. 0: all.
  int64_t window = 0;
  double scale = 0;     // 0: 1 / sqrt(head_dim)
  double soft_cap = 0;  // 0: none. Not with distance_bias
  Dropout dropout;
  // Longest sequence of each side; 0: unknown. INVALID_ARGUMENT on the CPU if it is not. With both
  // given, an accelerator does not copy cu_seqlens (or the key ranges) back to the host to validate
  // them, which would wait for the device. There they are upper bounds, and the caller answers for
  // them: BatchBucket takes them from the lengths on the host. For attention_decode both are upper
  // bounds on the CPU, too, and 0 queries are one.
  int64_t max_queries = 0, max_keys = 0;
  // [sequences, heads, queries, keys], each 1 or the number of sequences, heads, and the lengths of
  // the longest sequences; undefined: no mask. int32: what is not 0 is masked. Of the dtype of q:
  // added to the scaled scores, and it gets a gradient; -infinity masks. A query whose keys are all
  // masked gives zeros. With a mask the scores of all heads are stored, as for
  // attention_reference. Not for attention_decode.
  Tensor mask;
  // As above, of the dtype of q; it gets a gradient. Undefined: none.
  Tensor distance_bias;

  int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
};

// -> [Tq, heads * head_dim]
Tensor attention(Context& context, const AttentionInput& q, const AttentionInput& k,
                 const AttentionInput& v, const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                 const AttentionOptions& options);
Tensor attention_reference(Context& context, const AttentionInput& q, const AttentionInput& k,
                           const AttentionInput& v, const Tensor& cu_seqlens_q,
                           const Tensor& cu_seqlens_k, const AttentionOptions& options);

// Queries against key ranges anywhere in k and v: decoding with a KV cache. key_begin, key_end
// [sequences] int32; ranges may overlap (hypotheses of a beam share their source). cu_seqlens_q
// [sequences + 1] int32; if undefined, each sequence has one query, and the call uploads the
// numbers. With options.max_queries, a sequence has at most so many queries, otherwise it has one.
// Not recorded.
Tensor attention_decode(Context& context, const AttentionInput& q, const AttentionInput& k,
                        const AttentionInput& v, const Tensor& key_begin, const Tensor& key_end,
                        const AttentionOptions& options, const Tensor& cu_seqlens_q = {});

}  // namespace ops
}  // namespace trafo
