// The encoder-decoder transformer (Vaswani et al., arXiv 1706.03762): sinusoidal positions,
// embeddings scaled by sqrt(width), pre- or post-norm. The keys and values of every decoder layer's
// cross-attention come from one product over the encoder's output.
#include <cmath>
#include <vector>

#include "engine/models/transformer.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"

namespace trafo {
namespace {

struct EncoderLayer {
  NormParams attention_norm, ffn_norm;
  SelfAttentionParams attention;
  FeedForwardParams ffn;
};

struct DecoderLayer {
  NormParams attention_norm, cross_norm, ffn_norm;
  SelfAttentionParams attention;
  CrossAttentionParams cross;
  FeedForwardParams ffn;
};

class EncoderDecoder final : public Transformer {
 public:
  EncoderDecoder(Context& context, const ModelConfig& config, uint64_t seed, DType dtype)
      : Transformer(config) {
    const int64_t width = config.width;
    LayerDeclarer::Form form;
    form.depth_scaled = config.depth_scaled_init;
    const LayerDeclarer declare(parameters_, width, form);
    const Init embedding = Init::normal(1 / std::sqrt(static_cast<double>(width)));
    target_embedding_ =
        parameters_.declare("embedding.weight", {config.vocabulary, width}, embedding);
    source_embedding_ =
        config.tied_embeddings
            ? target_embedding_
            : parameters_.declare("source_embedding.weight", {config.vocabulary, width}, embedding);
    for (int64_t i = 0; i < config.encoder_layers; ++i) {
      const std::string prefix = "encoder." + std::to_string(i);
      const LayerDeclarer layer = declare.at(i);
      encoder_.push_back({layer.norm(prefix + ".attention_norm"), layer.norm(prefix + ".ffn_norm"),
                          layer.self_attention(prefix + ".attention"),
                          layer.feed_forward(prefix + ".ffn", config.ffn_width)});
    }
    for (int64_t i = 0; i < config.decoder_layers; ++i) {
      const std::string prefix = "decoder." + std::to_string(i);
      const LayerDeclarer layer = declare.at(i);
      decoder_.push_back({layer.norm(prefix + ".attention_norm"),
                          layer.norm(prefix + ".cross_norm"), layer.norm(prefix + ".ffn_norm"),
                          layer.self_attention(prefix + ".attention"),
                          layer.cross_attention(prefix + ".cross"),
                          layer.feed_forward(prefix + ".ffn", config.ffn_width)});
    }
    if (config.pre_norm) {  // post-norm layers end normalised
      encoder_norm_ = declare.norm("encoder.norm");
      decoder_norm_ = declare.norm("decoder.norm");
    }
    cross_kv_ = declare.linear("decoder.cross_kv", config.decoder_layers * 2 * width, width, width,
                               config.decoder_layers);
    output_ = {config.tied_embeddings
                   ? target_embedding_
                   : parameters_.declare("output.weight", {config.vocabulary, width}, embedding),
               parameters_.declare("output.bias", {config.vocabulary}, Init::zeros())};
    parameters_.allocate(context, dtype, seed);
    positions_ = sinusoidal_positions(context, config.max_positions, width, dtype);
  }

  Tensor hidden(Context& context, const Batch& batch, const DropoutPass& pass) const override {
    const Layers run = layers(context, pass);
    const Tensor kv = run.linear(encode(run, batch), cross_kv_);
    Rows rows = run.start(embed(run, batch.target_in, batch.target_positions, target_embedding_, 1,
                                batch.indices_validated),
                          decoder_[0].attention_norm);
    const PackedSide source{batch.source_cu_seqlens, batch.longest_source};
    const PackedSide target{batch.target_cu_seqlens, batch.longest_target};
    for (size_t i = 0; i < decoder_.size(); ++i)
      rows = run.layer(rows, kv,
                       [this, run, target, source, i](const Rows& input, const Tensor& memory) {
                         return decoder_layer(run, i, input, memory, target, source);
                       });
    return rows.input;
  }

  DecodeState start_decoding(Context& context, const Batch& batch, int64_t beam,
                             int64_t capacity) const override {
    NoGrad no_grad(context);
    const Layers run = layers(context, {});
    DecodeState state = make_state(context, batch.sentences * beam, capacity);
    state.longest_source = batch.longest_source;
    state.cross_cache = run.linear(encode(run, batch), cross_kv_);
    const auto ends = context.values<int32_t>(batch.source_cu_seqlens);
    std::vector<int32_t> begin, end;
    for (int64_t r = 0; r < state.rows; ++r) {
      begin.push_back(ends[static_cast<size_t>(r / beam)]);
      end.push_back(ends[static_cast<size_t>(r / beam) + 1]);
    }
    state.cross_begin = context.from_values<int32_t>(begin, {state.rows});
    state.cross_end = context.from_values<int32_t>(end, {state.rows});
    return state;
  }

 protected:
  Tensor decode_rows(Context& context, DecodeState& state, const Tensor& ids) const override {
    const Layers run = layers(context, {});
    Rows rows = run.start(embed(run, ids, constant_positions(context, state.rows, state.length),
                                target_embedding_, 1, state.indices_validated),
                          decoder_[0].attention_norm);
    const SelfRanges ranges = self_ranges(context, state);
    ops::AttentionOptions cross = run.attention_options(false, {});
    cross.max_keys = state.longest_source;
    const int64_t width = config_.width;
    for (size_t i = 0; i < decoder_.size(); ++i) {
      const DecoderLayer& layer = decoder_[i];
      const auto number = static_cast<int64_t>(i);
      Tensor output =
          cached_self_attention(run, rows.input, layer.attention, state, ranges, number);
      rows = run.seam(output, layer.attention.output, rows, after_attention(layer), {});
      const Tensor query = run.linear(rows.input, layer.cross.query);
      const int64_t column = number * 2 * width;
      const Tensor mixed = ops::attention_decode(context, {query, 0}, {state.cross_cache, column},
                                                 {state.cross_cache, column + width},
                                                 state.cross_begin, state.cross_end, cross);
      output = ops::linear(context, mixed, run.param(layer.cross.output.weight));
      rows = run.seam(output, layer.cross.output, rows, after_cross(layer), {});
      output = run.feed_forward(rows.input, layer.ffn, {});
      rows = run.seam(output, layer.ffn.down, rows, after_decoder_ffn(i), {});
    }
    return step_logits(run.context(), rows.input, state);
  }

 private:
  Tensor embed(const Layers& run, const Tensor& ids, const Tensor& positions, ParamId table,
               uint32_t place, bool indices_validated) const {
    ops::EmbeddingOptions options;
    options.indices_validated = indices_validated;
    options.scale = std::sqrt(static_cast<double>(config_.width));
    options.positions = positions;
    options.position_table = positions_;
    options.dropout = run.sites().at(kEmbeddingDropout, place, config_.dropout);
    return ops::embedding(run.context(), ids, parameters_.value(table), options);
  }

  // The norm a seam applies: of the block that follows (pre-norm) or of the block that ends
  // (post-norm).
  const NormParams& pick(const NormParams& following, const NormParams& own) const {
    return config_.pre_norm ? following : own;
  }
  const NormParams& after_attention(const DecoderLayer& layer) const {
    return pick(layer.cross_norm, layer.attention_norm);
  }
  const NormParams& after_cross(const DecoderLayer& layer) const {
    return pick(layer.ffn_norm, layer.cross_norm);
  }
  const NormParams& after_decoder_ffn(size_t i) const {
    return pick(i + 1 < decoder_.size() ? decoder_[i + 1].attention_norm : decoder_norm_,
                decoder_[i].ffn_norm);
  }
  const NormParams& after_encoder_ffn(size_t i) const {
    return pick(i + 1 < encoder_.size() ? encoder_[i + 1].attention_norm : encoder_norm_,
                encoder_[i].ffn_norm);
  }

  Rows encoder_layer(const Layers& run, size_t i, Rows rows, const PackedSide& source) const {
    const DropoutIds& sites = run.sites();
    const EncoderLayer& layer = encoder_[i];
    const auto number = static_cast<uint32_t>(i + 1);
    Tensor output = run.self_attention(rows.input, layer.attention, source, false,
                                       sites.at(number, 0, config_.attention_dropout));
    rows =
        run.seam(output, layer.attention.output, rows, pick(layer.ffn_norm, layer.attention_norm),
                 sites.at(number, 1, config_.dropout));
    output = run.feed_forward(rows.input, layer.ffn, sites.at(number, 2, config_.ffn_dropout));
    return run.seam(output, layer.ffn.down, rows, after_encoder_ffn(i),
                    sites.at(number, 3, config_.dropout));
  }

  Rows decoder_layer(const Layers& run, size_t i, Rows rows, const Tensor& kv,
                     const PackedSide& target, const PackedSide& source) const {
    const DropoutIds& sites = run.sites();
    const DecoderLayer& layer = decoder_[i];
    const auto number = static_cast<uint32_t>(encoder_.size() + i + 1);
    Tensor output = run.self_attention(rows.input, layer.attention, target, true,
                                       sites.at(number, 0, config_.attention_dropout));
    rows = run.seam(output, layer.attention.output, rows, after_attention(layer),
                    sites.at(number, 1, config_.dropout));
    output = run.cross_attention(rows.input, layer.cross, kv,
                                 static_cast<int64_t>(i) * 2 * config_.width, target, source,
                                 sites.at(number, 2, config_.attention_dropout));
    rows = run.seam(output, layer.cross.output, rows, after_cross(layer),
                    sites.at(number, 3, config_.dropout));
    output = run.feed_forward(rows.input, layer.ffn, sites.at(number, 4, config_.ffn_dropout));
    return run.seam(output, layer.ffn.down, rows, after_decoder_ffn(i),
                    sites.at(number, 5, config_.dropout));
  }

  // -> [Ts, width], normalised
  Tensor encode(const Layers& run, const Batch& batch) const {
    Rows rows = run.start(embed(run, batch.source_ids, batch.source_positions, source_embedding_, 0,
                                batch.indices_validated),
                          encoder_[0].attention_norm);
    const PackedSide source{batch.source_cu_seqlens, batch.longest_source};
    for (size_t i = 0; i < encoder_.size(); ++i)
      rows = run.layer(rows, {}, [this, run, source, i](const Rows& input, const Tensor&) {
        return encoder_layer(run, i, input, source);
      });
    return rows.input;
  }

  ParamId source_embedding_ = kNoParam, target_embedding_ = kNoParam;
  std::vector<EncoderLayer> encoder_;
  std::vector<DecoderLayer> decoder_;
  NormParams encoder_norm_, decoder_norm_;
  LinearParams cross_kv_;  // [layers * 2 * width, width]: keys then values of each layer
  Tensor positions_;       // [max_positions, width]
};

}  // namespace

std::unique_ptr<Model> make_encoder_decoder(Context& context, const ModelConfig& config,
                                            uint64_t seed, DType dtype) {
  return std::make_unique<EncoderDecoder>(context, config, seed, dtype);
}

}  // namespace trafo
