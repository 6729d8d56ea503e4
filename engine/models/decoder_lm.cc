// The decoder-only language model: causal self-attention over `source <eos> target <eos>`. With
// learned positions and layer norm it is the project's first model and GPT-2, with rotary
// positions, RMS norm and SwiGLU it is Llama.
#include <cmath>
#include <vector>

#include "engine/models/transformer.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"

namespace trafo {
namespace {

constexpr double kInitDeviation = 0.02;  // GPT-2 (Radford et al., 2019)

struct LmLayer {
  NormParams attention_norm, ffn_norm;
  SelfAttentionParams attention;
  FeedForwardParams ffn;
};

class DecoderLm final : public Transformer {
 public:
  DecoderLm(Context& context, const ModelConfig& config, uint64_t seed, DType dtype)
      : Transformer(config) {
    const int64_t width = config.width;
    const LayerDeclarer declare(
        parameters_, width,
        {config.norm == Norm::rms, config.biases, config.ffn == FeedForward::swiglu,
         config.qkv_width(), config.depth_scaled_init});
    embedding_ = parameters_.declare("embedding.weight", {config.vocabulary, width},
                                     Init::normal(kInitDeviation));
    if (config.positions == Positions::standard)
      positions_ = parameters_.declare("positions.weight", {config.max_positions, width},
                                       Init::normal(kInitDeviation));
    for (int64_t i = 0; i < config.decoder_layers; ++i) {
      const std::string prefix = "decoder." + std::to_string(i);
      const LayerDeclarer layer = declare.at(i);
      layers_.push_back({layer.norm(prefix + ".attention_norm"), layer.norm(prefix + ".ffn_norm"),
                         layer.self_attention(prefix + ".attention"),
                         layer.feed_forward(prefix + ".ffn", config.ffn_width)});
    }
    if (config.pre_norm) final_norm_ = declare.norm("decoder.norm");
    output_ = {config.tied_embeddings
                   ? embedding_
                   : parameters_.declare("output.weight", {config.vocabulary, width},
                                         Init::xavier_uniform(width, config.vocabulary)),
               config.biases
                   ? parameters_.declare("output.bias", {config.vocabulary}, Init::zeros())
                   : kNoParam};
    parameters_.allocate(context, dtype, seed);
  }

  Tensor hidden(Context& context, const Batch& batch, const DropoutPass& pass) const override {
    const Layers run = layers(context, pass);
    Rows rows =
        run.start(embed(run, batch.target_in, batch.target_positions, batch.indices_validated),
                  layers_[0].attention_norm);
    const PackedSide side{batch.target_cu_seqlens, batch.longest_target, batch.target_positions};
    for (size_t i = 0; i < layers_.size(); ++i)
      rows = run.layer(rows, {}, [this, run, side, i](const Rows& input, const Tensor&) {
        return layer(run, i, input, side);
      });
    return rows.input;
  }

  DecodeState start_decoding(Context& context, const Batch& batch, int64_t beam,
                             int64_t capacity) const override {
    return make_state(context, batch.sentences * beam, capacity);
  }

 protected:
  Tensor decode_rows(Context& context, DecodeState& state, const Tensor& ids) const override {
    const Layers run = layers(context, {});
    Rows rows = run.start(embed(run, ids, constant_positions(context, state.rows, state.length),
                                state.indices_validated),
                          layers_[0].attention_norm);
    const SelfRanges ranges = self_ranges(context, state);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const LmLayer& layer = layers_[i];
      Tensor output = cached_self_attention(run, rows.input, layer.attention, state, ranges,
                                            static_cast<int64_t>(i));
      rows = run.seam(output, layer.attention.output, rows, after_attention(layer), {});
      output = run.feed_forward(rows.input, layer.ffn, {});
      rows = run.seam(output, layer.ffn.down, rows, after_ffn(i), {});
    }
    return step_logits(run.context(), rows.input, state);
  }

 private:
  Tensor embed(const Layers& run, const Tensor& ids, const Tensor& positions,
               bool indices_validated) const {
    ops::EmbeddingOptions options;
    options.indices_validated = indices_validated;
    if (positions_ != kNoParam) {
      options.positions = positions;
      options.position_table = parameters_.value(positions_);
    }
    options.dropout = run.sites().at(kEmbeddingDropout, 0, config_.dropout);
    return ops::embedding(run.context(), ids, parameters_.value(embedding_), options);
  }

  const NormParams& after_attention(const LmLayer& layer) const {
    return config_.pre_norm ? layer.ffn_norm : layer.attention_norm;
  }
  const NormParams& after_ffn(size_t i) const {
    if (!config_.pre_norm) return layers_[i].ffn_norm;
    return i + 1 < layers_.size() ? layers_[i + 1].attention_norm : final_norm_;
  }

  Rows layer(const Layers& run, size_t i, Rows rows, const PackedSide& side) const {
    const DropoutIds& sites = run.sites();
    const LmLayer& layer = layers_[i];
    const auto number = static_cast<uint32_t>(i + 1);
    Tensor output = run.self_attention(rows.input, layer.attention, side, true,
                                       sites.at(number, 0, config_.attention_dropout));
    rows = run.seam(output, layer.attention.output, rows, after_attention(layer),
                    sites.at(number, 1, config_.dropout));
    output = run.feed_forward(rows.input, layer.ffn, sites.at(number, 2, config_.ffn_dropout));
    return run.seam(output, layer.ffn.down, rows, after_ffn(i),
                    sites.at(number, 3, config_.dropout));
  }

  ParamId embedding_ = kNoParam, positions_ = kNoParam;
  std::vector<LmLayer> layers_;
  NormParams final_norm_;
};

}  // namespace

std::unique_ptr<Model> make_decoder_lm(Context& context, const ModelConfig& config, uint64_t seed,
                                       DType dtype) {
  return std::make_unique<DecoderLm>(context, config, seed, dtype);
}

}  // namespace trafo
