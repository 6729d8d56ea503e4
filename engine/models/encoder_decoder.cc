// The encoder-decoder transformer (Vaswani et al., arXiv 1706.03762): sinusoidal positions,
// embeddings scaled by sqrt(width), pre- or post-norm. With learned positions and a norm of the
// embeddings it is mBART (Liu et al., arXiv 2001.08210), with relative position biases and RMS norm
// it is T5 (Raffel et al., arXiv 1910.10683). One GEMM over the encoder's output makes
// the keys and values of every decoder layer's cross-attention.
#include <cmath>

#include "engine/models/model.h"
#include "engine/nn/embedding.h"
#include "engine/nn/transformer_stack.h"
#include "engine/ops/unary/unary.h"

namespace trafo {
namespace {

class EncoderDecoder final : public Model {
 public:
  EncoderDecoder(Context& context, const ModelConfig& config, std::optional<uint64_t> seed,
                 DType dtype, bool int8_weights)
      : Model(config) {
    const ModelSpec& spec = spec_;
    const StackSpec& decoder = spec.decoder;
    const int64_t width = decoder.width;
    const Init init = Init::normal(1 / std::sqrt(static_cast<double>(width)));
    const auto embedding = [&](const char* name, int64_t rows, Stack stack) {
      return nn::Embedding(parameters_, name, rows, width, init, spec.embedding.scale, {stack});
    };
    target_embedding_ = embedding("embedding", spec.vocabulary, Stack::decoder);
    source_embedding_ = spec.embedding.shared ? target_embedding_
                                              : embedding("source_embedding",
                                                          spec.source_vocabulary(), Stack::encoder);
    const auto complete = [&](nn::Embedding& side, const std::string& prefix, Stack stack) {
      if (spec.embedding.positions == PositionTable::learned)
        side.add_positions(parameters_, prefix + "positions", spec.max_positions, width,
                           Init::normal(spec.embedding.scale / std::sqrt(width)), {stack});
      if (spec.embedding.norm)
        side.add_norm(parameters_, prefix + "embedding_norm", decoder.norm, width, {stack});
    };
    complete(source_embedding_, "source_", Stack::encoder);
    complete(target_embedding_, "", Stack::decoder);
    encoder_ = nn::TransformerStack(parameters_, "encoder", *spec.encoder, nn::kFirstBlockDropout);
    decoder_ = nn::TransformerStack(
        parameters_, "decoder", decoder,
        nn::kFirstBlockDropout + static_cast<uint32_t>(spec.encoder->layers()));
    encoder_.add_final_norm(parameters_);
    decoder_.add_final_norm(parameters_);
    encoder_.add_relative_positions(parameters_, spec.max_positions);
    decoder_.add_relative_positions(parameters_, spec.max_positions);
    const int64_t sets = decoder.sharing.set_count;
    std::vector<Part> keys_values;
    for (const int64_t layer : distinct_layers(decoder.sharing)) {
      const Place place{Stack::decoder, layer, Sublayer::cross_attention};
      for (const Part& part : nn::key_value_parts(decoder.attention, place))
        keys_values.push_back(part);
    }
    cross_keys_values_ = nn::Linear(parameters_, "decoder.cross_kv",
                                    {.in = width,
                                     .out = sets * 2 * decoder.attention.kv_width(),
                                     .bias = decoder.attention.qkv_bias,
                                     .fan_out = width,
                                     .stacked_layers = decoder.depth_scaled_init ? sets : 0,
                                     .parts = keys_values});
    declare_output(target_embedding_.weight(), init);
    parameters_.allocate(context, dtype, seed, int8_weights);
    encoder_.upload_constants(context);
    decoder_.upload_constants(context);
    if (!spec.embedding.has_fixed_positions()) return;
    const Tensor positions = fixed_positions(context, spec, dtype);
    source_embedding_.add_positions(positions);
    target_embedding_.add_positions(positions);
  }

  void share_constants(const Model& base) override {
    const auto& from = dynamic_cast<const EncoderDecoder&>(base);
    source_embedding_.share_constants(from.source_embedding_);
    target_embedding_.share_constants(from.target_embedding_);
    encoder_.share_constants(from.encoder_);
    decoder_.share_constants(from.decoder_);
  }

 protected:
  Tensor encoder_states(Context& context, const Batch& batch,
                        const DropoutPass& dropout) const override {
    nn::BlockInputs inputs;
    inputs.sequences = source_sequences(batch);
    inputs.dropout = dropout;
    const Tensor embedded = source_embedding_.forward(
        context, batch.source_ids, batch.source_positions,
        dropout.at(nn::kEmbeddingDropout, 0, spec_.embedding.dropout), batch.indices_validated);
    return encoder_.forward(context, embedded, inputs);
  }

  nn::EncoderKeysValues encode(Context& context, const Batch& batch,
                               const DropoutPass& dropout) const override {
    const Tensor states = encoder_states(context, batch, dropout);
    return {cross_keys_values_.forward(context, states), source_sequences(batch), {}, {}};
  }

  Tensor decode(Context& context, const Tensor& ids, const nn::BlockInputs& inputs,
                bool indices_validated) const override {
    const Dropout dropout = inputs.dropout.at(nn::kEmbeddingDropout, 1, spec_.embedding.dropout);
    const Tensor embedded = target_embedding_.forward(context, ids, inputs.sequences.positions,
                                                      dropout, indices_validated);
    const Tensor hidden = decoder_.forward(context, embedded, inputs);
    const double divisor = spec_.output.divisor;
    return divisor == 1 ? hidden : ops::scale(context, hidden, 1 / divisor);
  }

 private:
  static nn::PackedSequences source_sequences(const Batch& batch) {
    return {batch.source_cu_seqlens, batch.longest_source, batch.source_positions};
  }

  nn::Embedding source_embedding_, target_embedding_;
  nn::TransformerStack encoder_, decoder_;
  // [distinct layers * 2 * kv_width, width]: each layer's keys, then values
  nn::Linear cross_keys_values_;
};

}  // namespace

std::unique_ptr<Model> make_encoder_decoder(Context& context, const ModelConfig& config,
                                            std::optional<uint64_t> seed, DType dtype,
                                            bool int8_weights) {
  return std::make_unique<EncoderDecoder>(context, config, seed, dtype, int8_weights);
}

}  // namespace trafo
