// The decoder-only model (models/decoder_lm.cc) as one ONNX graph, for the first tokens and for
// those that follow. attention_mask covers past and new tokens, position_ids the new ones, so that
// sequences of a batch may be padded on either side.
#include "engine/formats/onnx/onnx_layers.h"
#include "engine/formats/onnx/onnx_models.h"

namespace trafo::interop {

std::vector<OnnxFile> decoder_lm_graphs(const HostModel& host, OnnxWeights& weights) {
  constexpr const char* kBatch = "batch_size";
  constexpr const char* kLength = "sequence_length";
  constexpr const char* kPast = "past_sequence_length";
  constexpr const char* kTotal = "past_sequence_length + sequence_length";
  const ModelSpec& spec = host.spec();
  const AttentionSpec& attention = spec.decoder.attention;
  OnnxGraph graph("decoder", weights);
  OnnxLayers layers(graph, spec, spec.decoder);
  const std::vector<OnnxDim> past_shape{kBatch, attention.key_heads, kPast, attention.head_dim};
  const std::vector<OnnxDim> present_shape{kBatch, attention.key_heads, kTotal, attention.head_dim};

  const OnnxValue ids = graph.input("input_ids", OnnxType::i64, {kBatch, kLength});
  const OnnxValue mask = graph.input("attention_mask", OnnxType::i64, {kBatch, kTotal});
  const OnnxValue positions = graph.input("position_ids", OnnxType::i64, {kBatch, kLength});
  const auto layer_count = static_cast<size_t>(spec.decoder.layers());
  std::vector<OnnxKeysValues> past(layer_count), present(layer_count);
  for (size_t i = 0; i < layer_count; ++i) {
    const std::string name = concat("past_key_values.", i);
    past[i].keys = graph.input(name + ".key", OnnxType::f32, past_shape);
    past[i].values = graph.input(name + ".value", OnnxType::f32, past_shape);
  }

  graph.set_scope("decoder");
  const OnnxValue before = layers.size_of(past.front().keys, 2);
  const OnnxValue total = graph.node("Add", {before, layers.size_of(ids, 1)});
  const OnnxValue visible =
      graph.node("And", {layers.causal_mask(before, total), layers.key_mask(mask)});
  const OnnxValue bias = layers.bias_of(visible);
  OnnxAngles angles;
  if (attention.rotary) angles = layers.rotary_angles(positions);
  OnnxValue x = layers.embed(ids, "embedding", spec.embedding.scale);
  if (spec.embedding.positions == PositionTable::learned)
    x = graph.node("Add", {x, layers.embed(positions, "positions", 1)});
  for (size_t i = 0; i < layer_count; ++i) {
    const std::string name = concat("decoder.", i);
    x = layers.residual(x, name + ".attention_norm", [&](OnnxValue input) {
      return layers.self_attention(input, name + ".attention", bias, angles, past[i], present[i]);
    });
    x = layers.residual(x, name + ".ffn_norm",
                        [&](OnnxValue input) { return layers.feed_forward(input, name + ".ffn"); });
  }
  x = layers.finish(x, "decoder.norm");
  graph.output(layers.logits(x, ids), "logits", OnnxType::f32, {kBatch, kLength, spec.vocabulary});
  for (size_t i = 0; i < layer_count; ++i) {
    const std::string name = concat("present.", i);
    graph.output(present[i].keys, name + ".key", OnnxType::f32, present_shape);
    graph.output(present[i].values, name + ".value", OnnxType::f32, present_shape);
  }
  std::vector<OnnxFile> files;
  files.push_back({"model.onnx", std::move(graph)});
  return files;
}

}  // namespace trafo::interop
