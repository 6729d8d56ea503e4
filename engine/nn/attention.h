// Self-attention and cross-attention with their projections (Vaswani et al., arXiv 1706.03762).
#pragma once

#include <string>

#include "engine/nn/kv_cache.h"
#include "engine/nn/linear.h"
#include "engine/nn/packed_sequences.h"
#include "engine/nn/stack_spec.h"
#include "engine/ops/attention/attention.h"

namespace trafo::nn {

class SelfAttention {
 public:
  SelfAttention() = default;
  // Declares `prefix`.qkv [query_width + 2 kv_width, width], queries first, and `prefix`.output
  // [width, query_width]; with norms of queries and keys also `prefix`.query_norm.weight and
  // `prefix`.key_norm.weight [head_dim]. `set` is the layer's set of parameters (LayerSharing).
  SelfAttention(ParameterStore& store, const std::string& prefix, const StackSpec& spec,
                int64_t set, const Place& place = {});

  // x [T, width]. Tokens attend inside their sequence. With a cache, which has been told about the
  // tokens (KvCache::begin_append), their keys and values go to `layer` of the cache, and the stack
  // must be causal; unless that is a prefill, tokens attend to what their row of the cache holds.
  // `sequences` is then the cache's. Dropout acts on the attention probabilities.
  // distance_bias: of the scores, or undefined (ops::AttentionOptions).
  PendingBias forward(Context& context, const Tensor& x, const PackedSequences& sequences,
                      const Dropout& dropout, const KvCache* cache = nullptr, int64_t layer = 0,
                      const Tensor& distance_bias = {}) const;

 private:
  Linear qkv_, output_;
  const ParameterStore* store_ = nullptr;
  ParamId query_norm_ = kNoParam, key_norm_ = kNoParam;
  double norm_epsilon_ = 0;
  AttentionSpec spec_;
  bool causal_ = false;
};

// Takes the queries of the cross-attention of one decoder layer. Fused attention does not store its
// probabilities; they can be computed again from queries and keys.
struct QueryCapture {
  int64_t layer = 0;
  Tensor queries = {};  // [T, query_width], set by the forward pass
};

// The rows of a projection that are keys, then those that are values.
std::vector<Part> key_value_parts(const AttentionSpec& spec, const Place& place);

// The keys and values that every decoder layer reads from the encoder's output. One GEMM makes
// them for all layers. Layers that share their parameters read the same part.
struct EncoderKeysValues {
  // [source tokens, parts * 2 * kv_width]: each part's keys, then values; or, in decoding on a CPU,
  // [parts, source tokens, 2 * kv_width], so that what attention reads lies together.
  Tensor values;
  PackedSequences sequences;  // of the source
  // Decoding: row r reads source tokens begin[r] .. end[r], [rows] int32. Undefined otherwise.
  Tensor begin, end;
  QueryCapture* capture = nullptr;  // borrowed for the forward pass; null: none

  ops::AttentionInput part_keys(int64_t part, int64_t kv_width) const;
  ops::AttentionInput part_values(int64_t part, int64_t kv_width) const;
  // Makes `values` the second of its forms.
  void set_parts_apart(Context& context, int64_t kv_width);
};

class CrossAttention {
 public:
  CrossAttention() = default;
  // Declares `prefix`.query [query_width, width] and `prefix`.output [width, query_width]. Keys and
  // values come ready (EncoderKeysValues).
  CrossAttention(ParameterStore& store, const std::string& prefix, const StackSpec& spec,
                 int64_t set, const Place& place = {});

  // x [T, width]. Sequence i of `sequences` reads source sequence i. decode_step: every token is a
  // separate row, which reads the source tokens that `encoder` gives for the row.
  PendingBias forward(Context& context, const Tensor& x, const PackedSequences& sequences,
                      const EncoderKeysValues& encoder, int64_t layer, const Dropout& dropout,
                      bool decode_step = false) const;

 private:
  Linear query_, output_;
  AttentionSpec spec_;
  int64_t set_ = 0;  // the part of EncoderKeysValues that it reads
};

}  // namespace trafo::nn
