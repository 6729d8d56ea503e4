// The specification of a stack of transformer blocks: its sizes and the function that it computes.
// Modules read it. models/spec.h makes it from the options of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/core/generated/option_enums.h"
#include "engine/nn/parts.h"
#include "engine/ops/rotary/rotary.h"

namespace trafo {

// The layers of a stack, and which of them share their parameters. Numbers count from 0.
struct LayerSharing {
  std::vector<int64_t> owners;  // of each layer: the first one with the same parameters
  std::vector<int64_t> sets;    // of each layer: which set of parameters it uses
  int64_t set_count = 0;        // distinct layers
};
// tied: a number for each layer; layers with the same number share. Empty: none do.
LayerSharing layer_sharing(int64_t layers, const std::vector<int64_t>& tied = {});
// The layers that are their own owners, ascending.
std::vector<int64_t> distinct_layers(const LayerSharing& sharing);

// x + sublayer(norm(x)), norm(x + sublayer(x)), x + norm(sublayer(x)), or x +
// norm(sublayer(norm'(x))).
enum class NormPlacement : uint8_t { before, after, on_output, sandwich };

struct NormSpec {
  Norm kind = Norm::layer;  // an RMS norm has no bias
  NormPlacement placement = NormPlacement::before;
  bool bias = true;   // of a layer norm
  bool first = true;  // a stack with norms before its blocks has one before the first attention
  double epsilon = 1e-5;
};

// Relative position biases, see nn/relative_positions.h.
struct RelativeSpec {
  int64_t buckets = 0;
  int64_t most_distance = 0;  // which has the last bucket, as all larger ones have
};

struct AttentionSpec {
  int64_t heads = 1;
  int64_t key_heads = 1;  // of keys and of values; each serves heads / key_heads query heads
  int64_t head_dim = 0;
  bool qkv_bias = true, output_bias = true;
  bool full_first = false;                  // see full_interval
  double dropout = 0;                       // of attention probabilities
  std::optional<RotaryAngles> rotary = {};  // queries and keys of self-attention are rotated
  QkNorm qk_norm = QkNorm::none;            // of self-attention
  int64_t no_rope_interval = 0;  // every such layer of the stack is not rotated; 0: all are
  double scale = 0;              // of scores; 0: 1 / sqrt(head_dim)
  double soft_cap = 0;           // of scaled scores, see ops::AttentionOptions; 0: none
  // Keys that a query of self-attention sees at most, its own token included; as many to each side
  // in a stack that is not causal. 0: all.
  int64_t window = 0;
  // Every such layer of the stack has no window; with full_first the first one and every such one
  // after it. 0: all have it.
  int64_t full_interval = 0;
  std::optional<RotaryAngles> window_rotary = {};  // of layers with a window; none: as the others
  std::optional<RelativeSpec> relative = {};       // of self-attention

  int64_t query_width() const { return heads * head_dim; }
  int64_t kv_width() const { return key_heads * head_dim; }
  // layer: from 0
  bool rotates(int64_t layer) const {
    return rotary && (no_rope_interval == 0 || (layer + 1) % no_rope_interval != 0);
  }
  // 0: the layer has none
  int64_t window_of(int64_t layer) const {
    const int64_t number = full_first ? layer : layer + 1;
    return full_interval == 0 || number % full_interval != 0 ? window : 0;
  }
  // Of a layer that rotates().
  const RotaryAngles& angles_of(int64_t layer) const {
    return window_rotary && window_of(layer) > 0 ? *window_rotary : *rotary;
  }
};

struct FeedForwardSpec {
  int64_t width = 0;   // inside
  bool gated = false;  // `activation` is then silu (SwiGLU) or gelu (GEGLU)
  Activation activation = Activation::relu;
  bool bias = true;
  double dropout = 0;  // after the activation
};

struct StackSpec {
  Stack stack = Stack::none;
  int64_t width = 0;  // of the residual stream
  LayerSharing sharing = {};
  NormSpec norm = {};
  AttentionSpec attention = {};  // of self-attention and cross-attention
  FeedForwardSpec feed_forward = {};
  bool causal = false;
  bool cross_attention = false;
  double dropout = 0;              // of what every sublayer adds to the residual stream
  bool depth_scaled_init = false;  // see LinearOptions::depth
  double residual_scale = 1;       // of what every sublayer adds, where the norm is RMS norm

  int64_t layers() const { return static_cast<int64_t>(sharing.owners.size()); }
  // Blocks pass on the normalised input of the next one beside the residual stream.
  bool pre_norm() const {
    return norm.placement == NormPlacement::before || norm.placement == NormPlacement::sandwich;
  }
  bool ends_with_norm() const { return norm.placement != NormPlacement::after; }
  // LinearOptions::depth of the layers with this set of parameters.
  int64_t init_depth(int64_t set) const { return depth_scaled_init ? set + 1 : 0; }
};

}  // namespace trafo
