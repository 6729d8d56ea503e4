// Self-attention and cross-attention with their projections (Vaswani et al., arXiv 1706.03762).
#pragma once

#include <string>

#include "engine/nn/kv_cache.h"
#include "engine/nn/linear.h"
#include "engine/nn/packed_sequences.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/rotary/rotary.h"

namespace trafo::nn {

struct AttentionOptions {
  int64_t width = 0, heads = 1;
  int64_t kv_heads =
      0;  // key and value heads, each shared by heads / kv_heads query heads; 0: heads
  int64_t head_width = 0;  // 0: width / heads
  bool causal = false;
  bool biases = true;       // of queries, keys and values
  bool output_bias = true;  // of the output
  bool defer_bias = true;   // see LinearOptions
  // Its theta is above 0: queries and keys are rotated by their positions (RoFormer).
  RotaryAngles rotary{.theta = 0};
  int64_t depth = 0;       // see LinearOptions
  int64_t cross_part = 0;  // of cross-attention: which part of EncoderKeysValues it reads

  int64_t head_dim() const { return head_width > 0 ? head_width : width / heads; }
  int64_t query_width() const { return heads * head_dim(); }
  int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t kv_width() const { return key_heads() * head_dim(); }
};

class SelfAttention {
 public:
  SelfAttention() = default;
  // Declares `prefix`.qkv [query_width + 2 kv_width, width], queries first, and `prefix`.output
  // [width, query_width].
  SelfAttention(ParameterStore& store, const std::string& prefix, const AttentionOptions& options,
                const Place& place = {});

  // x [T, width]. Tokens attend inside their sequence. With a cache, which has been told about the
  // tokens (KvCache::begin_append), their keys and values go to `layer` of the cache, and `causal`
  // must be on; in a decode step, tokens attend to what their row of the cache holds. `sequences`
  // is then the cache's. Dropout acts on the attention probabilities.
  PendingBias forward(Context& context, const Tensor& x, const PackedSequences& sequences,
                      const Dropout& dropout, const KvCache* cache = nullptr,
                      int64_t layer = 0) const;

 private:
  Linear qkv_, output_;
  AttentionOptions options_;
};

// Takes the queries of the cross-attention of one decoder layer. Fused attention does not store its
// probabilities; they can be computed again from queries and keys.
struct QueryCapture {
  int64_t layer = 0;
  Tensor queries = {};  // [T, query_width], set by the forward pass
};

// The rows of a projection that are keys, then those that are values.
std::vector<Part> key_value_parts(const AttentionOptions& options, const Place& place);

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
  CrossAttention(ParameterStore& store, const std::string& prefix, const AttentionOptions& options,
                 const Place& place = {});

  // x [T, width]. Sequence i of `sequences` reads source sequence i. decode_step: every token is a
  // separate row, which reads the source tokens that `encoder` gives for the row.
  PendingBias forward(Context& context, const Tensor& x, const PackedSequences& sequences,
                      const EncoderKeysValues& encoder, int64_t layer, const Dropout& dropout,
                      bool decode_step = false) const;

 private:
  Linear query_, output_;
  AttentionOptions options_;
};

}  // namespace trafo::nn
