// The modules of engine/nn as ONNX nodes. Sequences are padded: x is [batch, length, width].
#pragma once

#include <functional>
#include <string>

#include "engine/formats/onnx/onnx_graph.h"
#include "engine/models/spec.h"

namespace trafo::interop {

// Keys and values of one layer, [batch, key heads, length, head_dim].
struct OnnxKeysValues {
  OnnxValue keys, values;
};

// Cosines and sines of the rotary positions of tokens, [batch, length, 1, head_dim / 2].
struct OnnxAngles {
  OnnxValue cosines, sines;
};

class OnnxLayers {
 public:
  // The layers of one of the model's stacks.
  OnnxLayers(OnnxGraph& graph, const ModelSpec& spec, const StackSpec& stack)
      : graph_(graph), spec_(spec), stack_(stack) {}

  // y = x weight^T + bias: the parameters `name`.weight [out, in] and, with a bias, `name`.bias.
  OnnxValue linear(OnnxValue x, const std::string& name, bool bias);
  // The columns of x, each part of the parameter `matrix`.weight alone.
  std::vector<OnnxValue> split_parts(OnnxValue x, const std::string& matrix);
  // The norm `name`.
  OnnxValue norm(OnnxValue x, const std::string& name);
  // The rows of the embedding `name` for ids [batch, length], times `scale`.
  OnnxValue embed(OnnxValue ids, const std::string& name, double scale);
  // x + sublayer(norm(x)), or norm(x + sublayer(x)) in a post-norm model.
  OnnxValue residual(OnnxValue x, const std::string& norm_name,
                     const std::function<OnnxValue(OnnxValue)>& sublayer);
  OnnxValue feed_forward(OnnxValue x, const std::string& name);
  // `past` may be undefined. Fills `present` with the keys and values of past and new tokens.
  // `bias` is added to the scores, [batch or 1, 1, length or 1, keys].
  OnnxValue self_attention(OnnxValue x, const std::string& name, OnnxValue bias,
                           const OnnxAngles& angles, const OnnxKeysValues& past,
                           OnnxKeysValues& present);
  OnnxValue cross_attention(OnnxValue x, const std::string& name, OnnxValue bias,
                            const OnnxKeysValues& encoder);
  // Hidden states to logits [batch, length, vocabulary]. `ids` has the batch and the length.
  OnnxValue logits(OnnxValue hidden, OnnxValue ids);
  // The final norm of a pre-norm stack.
  OnnxValue finish(OnnxValue x, const std::string& norm_name);

  // [batch, length, heads * head_dim] -> [batch, length, heads, head_dim]
  OnnxValue split_heads(OnnxValue x, int64_t heads);
  // And with heads before lengths, as caches have them.
  OnnxValue heads_first(OnnxValue x, int64_t heads);

  // Dimension `axis` of x, as a scalar.
  OnnxValue size_of(OnnxValue x, int64_t axis);
  // begin, .., end - 1 as int64.
  OnnxValue range(OnnxValue begin, OnnxValue end);
  // 0 where `visible` (bool) is true, elsewhere the lowest float32.
  OnnxValue bias_of(OnnxValue visible);
  // attention_mask [batch, keys] int64 -> bool [batch, 1, 1, keys]
  OnnxValue key_mask(OnnxValue attention_mask);
  // Query i may read the keys up to past + i: bool [queries, keys] for queries past .. total - 1.
  OnnxValue causal_mask(OnnxValue past, OnnxValue total);
  OnnxAngles rotary_angles(OnnxValue position_ids);

 private:
  // x / sqrt(mean(x^2) + epsilon) times the parameter `gamma`, over the last dimension.
  OnnxValue rms_norm(OnnxValue x, const std::string& gamma);
  // x times codes [in, out] with the scales of the parameter `matrix`.
  OnnxValue product_int8(OnnxValue x, OnnxValue codes, const std::string& matrix);
  OnnxValue to_float(OnnxValue codes);
  OnnxValue activate(OnnxValue x);
  // The columns of x, in runs of these widths.
  std::vector<OnnxValue> split(OnnxValue x, const std::vector<int64_t>& widths);
  OnnxValue rotate(OnnxValue heads, const OnnxAngles& angles);
  OnnxValue attend(OnnxValue queries, const OnnxKeysValues& kv, OnnxValue bias);

  OnnxGraph& graph_;
  const ModelSpec& spec_;
  const StackSpec& stack_;
};

}  // namespace trafo::interop
