// The encoder-decoder (models/encoder_decoder.cc) as three ONNX graphs.
//
// Sources of a batch are padded after their last token, and attention_mask is 0 there. Targets are
// not masked: what a decoder computes for a token depends on the tokens before it alone.
#include "engine/formats/onnx/onnx_layers.h"
#include "engine/formats/onnx/onnx_models.h"

namespace trafo::interop {
namespace {

constexpr const char* kBatch = "batch_size";
constexpr const char* kLength = "sequence_length";
constexpr const char* kSource = "encoder_sequence_length";
constexpr const char* kPast = "past_decoder_sequence_length";
constexpr const char* kTotal = "past_decoder_sequence_length + sequence_length";

class Builder {
 public:
  Builder(const HostModel& host, const char* name, Stack stack, OnnxWeights& weights)
      : host_(host),
        spec_(host.spec()),
        stack_(spec_.stack(stack)),
        graph_(name, weights),
        layers_(graph_, spec_, stack_) {}

  OnnxGraph encoder() &&;
  OnnxGraph decoder(bool with_past) &&;

 private:
  // Token embeddings at positions [length].
  OnnxValue embed(OnnxValue ids, OnnxValue positions, const std::string& name);
  std::vector<OnnxKeysValues> encoder_keys_values();
  OnnxKeysValues past_input(const std::string& which, const char* length);
  void present_output(const OnnxKeysValues& kv, const std::string& which, const char* length);

  const HostModel& host_;
  const ModelSpec& spec_;
  const StackSpec& stack_;
  OnnxGraph graph_;
  OnnxLayers layers_;
};

OnnxValue Builder::embed(OnnxValue ids, OnnxValue positions, const std::string& name) {
  const OnnxValue embedded = layers_.embed(ids, name, spec_.embedding.scale);
  const int64_t rows = spec_.max_positions, columns = spec_.width();
  const OnnxValue table =
      graph_.table("positions", {rows, columns}, [context = host_.context.get(), spec = spec_] {
        return context->values<float>(fixed_positions(*context, spec, DType::f32));
      });
  const OnnxValue at = graph_.node("Gather", {table, positions}, {{"axis", int64_t{0}}});
  return graph_.node("Add", {embedded, at});
}

OnnxGraph Builder::encoder() && {
  const OnnxValue ids = graph_.input("input_ids", OnnxType::i64, {kBatch, kSource});
  const OnnxValue mask = graph_.input("attention_mask", OnnxType::i64, {kBatch, kSource});
  graph_.set_scope("encoder");
  const OnnxValue bias = layers_.bias_of(layers_.key_mask(mask));
  const OnnxValue positions = layers_.range(graph_.integer(0), layers_.size_of(ids, 1));
  OnnxValue x = embed(ids, positions, spec_.embedding.shared ? "embedding" : "source_embedding");
  for (int64_t i = 0; i < stack_.layers(); ++i) {
    const std::string name = concat("encoder.", i);
    x = layers_.residual(x, name + ".attention_norm", [&](OnnxValue input) {
      OnnxKeysValues ignored;
      return layers_.self_attention(input, name + ".attention", bias, {}, {}, ignored);
    });
    x = layers_.residual(x, name + ".ffn_norm", [&](OnnxValue input) {
      return layers_.feed_forward(input, name + ".ffn");
    });
  }
  x = layers_.finish(x, "encoder.norm");
  graph_.output(x, "last_hidden_state", OnnxType::f32, {kBatch, kSource, spec_.width()});
  return std::move(graph_);
}

// The keys and values of all layers in one product, as the model makes them.
std::vector<OnnxKeysValues> Builder::encoder_keys_values() {
  const OnnxValue hidden =
      graph_.input("encoder_hidden_states", OnnxType::f32, {kBatch, kSource, spec_.width()});
  const OnnxValue all = layers_.linear(hidden, "decoder.cross_kv", stack_.attention.qkv_bias);
  const std::vector<OnnxValue> parts = layers_.split_parts(all, "decoder.cross_kv");
  std::vector<OnnxKeysValues> layers;
  for (size_t i = 0; i < parts.size(); i += 2)
    layers.push_back({layers_.heads_first(parts[i], stack_.attention.heads),
                      layers_.heads_first(parts[i + 1], stack_.attention.heads)});
  return layers;
}

OnnxKeysValues Builder::past_input(const std::string& which, const char* length) {
  const std::vector<OnnxDim> shape{kBatch, stack_.attention.heads, length,
                                   stack_.attention.head_dim};
  const OnnxValue keys = graph_.input("past_key_values." + which + ".key", OnnxType::f32, shape);
  return {keys, graph_.input("past_key_values." + which + ".value", OnnxType::f32, shape)};
}

void Builder::present_output(const OnnxKeysValues& kv, const std::string& which,
                             const char* length) {
  const std::vector<OnnxDim> shape{kBatch, stack_.attention.heads, length,
                                   stack_.attention.head_dim};
  graph_.output(kv.keys, "present." + which + ".key", OnnxType::f32, shape);
  graph_.output(kv.values, "present." + which + ".value", OnnxType::f32, shape);
}

OnnxGraph Builder::decoder(bool with_past) && {
  const OnnxValue source_mask =
      graph_.input("encoder_attention_mask", OnnxType::i64, {kBatch, kSource});
  const OnnxValue ids = graph_.input("input_ids", OnnxType::i64, {kBatch, kLength});
  const auto layer_count = static_cast<size_t>(stack_.layers());
  std::vector<OnnxKeysValues> past(layer_count), present(layer_count), encoder;
  if (with_past) {
    for (size_t i = 0; i < layer_count; ++i) {
      past[i] = past_input(concat(i, ".decoder"), kPast);
      encoder.push_back(past_input(concat(i, ".encoder"), kSource));
    }
  } else {
    encoder = encoder_keys_values();
  }
  graph_.set_scope("decoder");
  const OnnxValue before = with_past ? layers_.size_of(past.front().keys, 2) : graph_.integer(0);
  const OnnxValue total = graph_.node("Add", {before, layers_.size_of(ids, 1)});
  const OnnxValue bias = layers_.bias_of(layers_.causal_mask(before, total));
  const OnnxValue source_bias = layers_.bias_of(layers_.key_mask(source_mask));
  OnnxValue x = embed(ids, layers_.range(before, total), "embedding");
  for (size_t i = 0; i < layer_count; ++i) {
    const std::string name = concat("decoder.", i);
    x = layers_.residual(x, name + ".attention_norm", [&](OnnxValue input) {
      return layers_.self_attention(input, name + ".attention", bias, {}, past[i], present[i]);
    });
    x = layers_.residual(x, name + ".cross_norm", [&](OnnxValue input) {
      return layers_.cross_attention(input, name + ".cross", source_bias, encoder[i]);
    });
    x = layers_.residual(x, name + ".ffn_norm", [&](OnnxValue input) {
      return layers_.feed_forward(input, name + ".ffn");
    });
  }
  x = layers_.finish(x, "decoder.norm");
  graph_.output(layers_.logits(x, ids), "logits", OnnxType::f32,
                {kBatch, kLength, spec_.vocabulary});
  for (size_t i = 0; i < layer_count; ++i) {
    present_output(present[i], concat(i, ".decoder"), with_past ? kTotal : kLength);
    if (!with_past) present_output(encoder[i], concat(i, ".encoder"), kSource);
  }
  return std::move(graph_);
}

}  // namespace

std::vector<OnnxFile> encoder_decoder_graphs(const HostModel& host, OnnxWeights& weights) {
  std::vector<OnnxFile> files;
  files.push_back(
      {"encoder_model.onnx", Builder(host, "encoder", Stack::encoder, weights).encoder()});
  files.push_back(
      {"decoder_model.onnx", Builder(host, "decoder", Stack::decoder, weights).decoder(false)});
  files.push_back({"decoder_with_past_model.onnx",
                   Builder(host, "decoder_with_past", Stack::decoder, weights).decoder(true)});
  return files;
}

}  // namespace trafo::interop
