// The blocks transformers are made of. A layer holds parameter numbers; forward functions run on
// packed rows [T, width].
//
// Between two blocks stands a seam: the block's output gets its bias, dropout and the residual
// added and is normalised for what comes next, in one op. `hidden` is what the next residual adds
// to, `input` what the next block reads: pre-norm keeps the sum and the normed rows apart,
// post-norm uses the normed rows for both.
#pragma once

#include <functional>
#include <string>

#include "engine/nn/parameter_store.h"
#include "engine/ops/activation/activation.h"
#include "engine/ops/attention/attention.h"

namespace trafo {

struct LinearParams {
  ParamId weight = kNoParam;  // [out, in]
  ParamId bias = kNoParam;    // [out], or none
};

struct NormParams {
  ParamId gamma = kNoParam;
  ParamId beta = kNoParam;  // none: RMS norm
};

struct SelfAttentionParams {
  LinearParams qkv;     // [3 width, width]: queries, keys, values; fewer rows with kv_heads
  LinearParams output;  // [width, width]; its bias is added at the seam
};

struct CrossAttentionParams {
  LinearParams query;
  LinearParams output;
};

struct FeedForwardParams {
  LinearParams up;    // [ffn, width], or [2 ffn, width]: the gate's rows, then those it acts on
  LinearParams down;  // [width, ffn]; its bias is added at the seam
};

// Declares parameters under `prefix` in the order they are used.
class LayerDeclarer {
 public:
  struct Form {
    bool rms_norm = false;
    bool biases = true;
    bool gated = false;     // the feed-forward blocks
    int64_t qkv_width = 0;  // 0: 3 width
    // Initial weights are divided by the root of the layer's depth (DS-Init of Zhang et al.,
    // arXiv 1908.11365, with alpha 1), which keeps the gradients of deep stacks in proportion.
    bool depth_scaled = false;
  };
  LayerDeclarer(ParameterStore& store, int64_t width, const Form& form)
      : store_(store), width_(width), form_(form) {}
  // Of layer `index`, counted from 0.
  LayerDeclarer at(int64_t index) const;
  // `layers`: `out` holds the rows of so many, of the first one first.
  LinearParams linear(const std::string& prefix, int64_t out, int64_t in, int64_t fan_out,
                      int64_t layers = 1) const;
  NormParams norm(const std::string& prefix) const;
  SelfAttentionParams self_attention(const std::string& prefix) const;
  CrossAttentionParams cross_attention(const std::string& prefix) const;
  FeedForwardParams feed_forward(const std::string& prefix, int64_t ffn_width) const;

 private:
  ParameterStore& store_;
  int64_t width_;
  Form form_;
  int64_t depth_ = 1;
};

// Numbers the dropouts of a forward pass: the same place in the model always has the same site.
struct DropoutIds {
  uint64_t seed = 0;
  uint32_t step = 0;
  bool training = false;

  static constexpr uint32_t kPerLayer = 8;
  Dropout at(uint32_t layer, uint32_t place, double p) const {
    return {training ? static_cast<float>(p) : 0.0f, seed, step, layer * kPerLayer + place};
  }
};

// One side of a packed batch: sentence i owns rows cu_seqlens[i] .. cu_seqlens[i+1].
struct PackedSide {
  Tensor cu_seqlens;      // [sentences + 1] int32
  int64_t longest = 0;    // rows of the longest sentence; 0: unknown
  Tensor positions = {};  // [T] int32, for rotary positions
};

struct Rows {
  Tensor hidden;  // residual stream
  Tensor input;   // what the next block reads
  // Computes `input` once more from `hidden`, where a checkpointed region ends with them; or null.
  std::function<Tensor(Context&)> recompute_input = nullptr;
};

class Layers {
 public:
  struct Settings {
    int64_t heads, head_dim;
    Activation activation;
    bool pre_norm;
    double dropout, attention_dropout, ffn_dropout, norm_epsilon;
    bool gated = false, rotary = false;
    int64_t kv_heads = 0;
    double rope_theta = 0;
  };
  Layers(Context& context, const ParameterStore& store, const Settings& settings,
         const DropoutIds& sites)
      : context_(context), store_(store), settings_(settings), sites_(sites) {}

  Tensor param(ParamId id) const { return id == kNoParam ? Tensor{} : store_.value(id); }
  Tensor linear(const Tensor& x, const LinearParams& p) const;
  Tensor norm(const Tensor& x, const NormParams& p) const;

  // Embedded rows as the first block needs them: pre-norm normalises with `first`, post-norm takes
  // them as they are.
  Rows start(const Tensor& embedded, const NormParams& first) const;
  // Adds a block's raw output to the stream. `norm`: the next block's (pre-norm) or this block's
  // own (post-norm).
  Rows seam(const Tensor& output, const LinearParams& projection, const Rows& rows,
            const NormParams& norm, const Dropout& dropout) const;

  // The packed product of queries, keys and values as attention reads it, [T, 3 width]: with rotary
  // positions turned, keys and values repeated for the queries that share them.
  Tensor queries_keys_values(const Tensor& x, const LinearParams& p, const Tensor& positions) const;
  // Raw block outputs, before the bias of the last product.
  Tensor self_attention(const Tensor& x, const SelfAttentionParams& p, const PackedSide& side,
                        bool causal, const Dropout& dropout) const;
  // kv [Ts, layers * 2 * width]: keys at `column`, values at `column + width`.
  Tensor cross_attention(const Tensor& x, const CrossAttentionParams& p, const Tensor& kv,
                         int64_t column, const PackedSide& queries, const PackedSide& keys,
                         const Dropout& dropout) const;
  Tensor feed_forward(const Tensor& x, const FeedForwardParams& p, const Dropout& dropout) const;

  // A whole layer: what Recompute::full keeps the inputs of and runs again in backward. `fn` owns
  // what it needs; `memory`: another input of every layer, or undefined.
  using LayerFn = std::function<Rows(const Rows& rows, const Tensor& memory)>;
  Rows layer(const Rows& rows, const Tensor& memory, LayerFn fn) const;

  const DropoutIds& sites() const { return sites_; }
  const Settings& settings() const { return settings_; }
  Context& context() const { return context_; }
  ops::AttentionOptions attention_options(bool causal, const Dropout& dropout) const;

 private:
  Context& context_;
  const ParameterStore& store_;
  Settings settings_;
  DropoutIds sites_;
};

}  // namespace trafo
