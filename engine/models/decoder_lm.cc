// The decoder-only language model: causal self-attention over `source <eos> target <eos>`. With
// learned positions and layer norm it is GPT-2 (Radford et al., 2019), with rotary positions, RMS
// norm and SwiGLU it is Llama (Touvron et al., arXiv 2302.13971).
#include "engine/models/model.h"
#include "engine/nn/embedding.h"
#include "engine/nn/transformer_stack.h"
#include "engine/ops/unary/unary.h"

namespace trafo {
namespace {

constexpr double kInitDeviation = 0.02;  // GPT-2

class DecoderLm final : public Model {
 public:
  DecoderLm(Context& context, const ModelConfig& config, std::optional<uint64_t> seed, DType dtype,
            bool int8_weights)
      : Model(config) {
    const Init init = Init::normal(kInitDeviation);
    const int64_t width = spec_.width();
    embedding_ = nn::Embedding(parameters_, "embedding", spec_.vocabulary, width, init,
                               spec_.embedding.scale, {Stack::decoder});
    if (spec_.embedding.positions == PositionTable::learned)
      embedding_.add_positions(parameters_, "positions", spec_.max_positions, width, init,
                               {Stack::decoder});
    decoder_ = nn::TransformerStack(parameters_, "decoder", spec_.decoder, nn::kFirstBlockDropout);
    decoder_.add_final_norm(parameters_);
    declare_output(embedding_.weight(), Init::xavier_uniform(width, spec_.vocabulary));
    parameters_.allocate(context, dtype, seed, int8_weights);
  }

  void share_constants(const Model&) override {}

 protected:
  Tensor decode(Context& context, const Tensor& ids, const nn::BlockInputs& inputs,
                bool indices_validated) const override {
    const Dropout dropout = inputs.dropout.at(nn::kEmbeddingDropout, 0, spec_.embedding.dropout);
    const Tensor embedded =
        embedding_.forward(context, ids, inputs.sequences.positions, dropout, indices_validated);
    const Tensor hidden = decoder_.forward(context, embedded, inputs);
    const double divisor = spec_.output.divisor;
    return divisor == 1 ? hidden : ops::scale(context, hidden, 1 / divisor);
  }

 private:
  nn::Embedding embedding_;
  nn::TransformerStack decoder_;
};

}  // namespace

std::unique_ptr<Model> make_decoder_lm(Context& context, const ModelConfig& config,
                                       std::optional<uint64_t> seed, DType dtype,
                                       bool int8_weights) {
  return std::make_unique<DecoderLm>(context, config, seed, dtype, int8_weights);
}

}  // namespace trafo
