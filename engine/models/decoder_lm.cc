// The decoder-only language model: causal self-attention over `source <eos> target <eos>`. With
// learned positions and layer norm it is GPT-2 (Radford et al., 2019), with rotary positions, RMS
// norm and SwiGLU it is Llama (Touvron et al., arXiv 2302.13971).
#include "engine/models/model.h"
#include "engine/nn/embedding.h"
#include "engine/nn/transformer_stack.h"

namespace trafo {
namespace {

constexpr double kInitDeviation = 0.02;  // GPT-2

class DecoderLm final : public Model {
 public:
  DecoderLm(Context& context, const ModelConfig& config, uint64_t seed, DType dtype,
            bool int8_weights)
      : Model(config) {
    const Init init = Init::normal(kInitDeviation);
    embedding_ = nn::Embedding(parameters_, "embedding", config.vocabulary, config.width, init, 1,
                               {Stack::decoder});
    if (config.positions == Positions::standard)
      embedding_.add_positions(parameters_, "positions", config.max_positions, config.width, init);
    decoder_ = nn::TransformerStack(parameters_, "decoder", config.decoder_layers,
                                    block_options(true), nn::kFirstBlockDropout,
                                    config.depth_scaled_init, config.decoder_sharing().owners);
    decoder_.add_final_norm(parameters_);
    const ParamId weight =
        config.tied_embeddings
            ? embedding_.weight()
            : parameters_.declare("output.weight", {config.vocabulary, config.width},
                                  Init::xavier_uniform(config.width, config.vocabulary));
    declare_output(weight);
    parameters_.allocate(context, dtype, seed, int8_weights);
  }

 protected:
  Tensor decode(Context& context, const Tensor& ids, const nn::BlockInputs& inputs,
                bool indices_validated) const override {
    const Dropout dropout = inputs.dropout.at(nn::kEmbeddingDropout, 0, config_.dropout);
    const Tensor embedded =
        embedding_.forward(context, ids, inputs.sequences.positions, dropout, indices_validated);
    return decoder_.forward(context, embedded, inputs);
  }

 private:
  nn::Embedding embedding_;
  nn::TransformerStack decoder_;
};

}  // namespace

std::unique_ptr<Model> make_decoder_lm(Context& context, const ModelConfig& config, uint64_t seed,
                                       DType dtype, bool int8_weights) {
  return std::make_unique<DecoderLm>(context, config, seed, dtype, int8_weights);
}

}  // namespace trafo
