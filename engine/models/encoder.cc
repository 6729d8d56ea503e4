// The bidirectional encoder of one text: BERT (Devlin et al., arXiv 1810.04805) and RoBERTa (Liu et
// al., arXiv 1907.11692), post-norm with learned positions, a norm of the embeddings and a row of a
// table of token types. With a head of masked tokens, logits = E norm(activation(W h)) + b; of
// texts, W tanh(P h) + b with the h of the first token; of tokens, W h + b. Heads are computed for
// all tokens, so that a batch of any head has a row of logits for each.
//
// ModernBERT (Warner et al., arXiv 2412.13663) is pre-norm with rotary positions and a norm at the
// end. Its heads for tokens and texts have the transform of the head of masked tokens, without a
// bias: W norm(activation(T h)) + b, of texts with the h of the first token or the mean of all.
#include "engine/models/model.h"
#include "engine/nn/embedding.h"
#include "engine/nn/transformer_stack.h"
#include "engine/ops/activation/activation.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/unary/unary.h"

namespace trafo {
namespace {

constexpr double kEncoderDeviation = 0.02;  // BERT
constexpr Place kWholeStack{Stack::decoder};

class Encoder final : public Model {
 public:
  Encoder(Context& context, const ModelConfig& config, std::optional<uint64_t> seed, DType dtype,
          bool int8_weights)
      : Model(config) {
    const Init init = Init::normal(kEncoderDeviation);
    const int64_t width = spec_.width();
    embedding_ = nn::Embedding(parameters_, "embedding", spec_.vocabulary, width, init,
                               spec_.embedding.scale, kWholeStack);
    if (spec_.embedding.positions == PositionTable::learned)
      embedding_.add_positions(parameters_, "positions", spec_.max_positions, width, init,
                               kWholeStack);
    if (spec_.embedding.token_types > 0)
      embedding_.add_token_types(parameters_, "token_types", spec_.embedding.token_types, width,
                                 init, kWholeStack);
    embedding_.add_norm(parameters_, "embedding_norm", spec_.decoder.norm, width, kWholeStack);
    stack_ = nn::TransformerStack(parameters_, "encoder", spec_.decoder, nn::kFirstBlockDropout);
    stack_.add_final_norm(parameters_);
    if (spec_.head.pooler) pooler_ = square("pooler", Role::pooler, init);
    if (spec_.head.has_transform()) {
      transform_ = square("head", Role::head, init);
      head_norm_ = nn::Norm(parameters_, "head_norm", spec_.decoder.norm, width, kWholeStack,
                            Role::head_norm);
    }
    if (has_output()) declare_output(embedding_.weight(), init);
    parameters_.allocate(context, dtype, seed, int8_weights);
  }

  void share_constants(const Model&) override {}

 protected:
  Tensor encoder_states(Context& context, const Batch& batch,
                        const DropoutPass& dropout) const override {
    nn::BlockInputs inputs;
    inputs.sequences = {batch.target_cu_seqlens, batch.longest_target, batch.target_positions};
    inputs.dropout = dropout;
    inputs.token_types = batch.target_types;
    return states_of(context, batch.target_in, inputs, batch.indices_validated);
  }

  Tensor decode(Context& context, const Tensor& ids, const nn::BlockInputs& inputs,
                bool indices_validated) const override {
    const Tensor states = states_of(context, ids, inputs, indices_validated);
    const auto drop = [&](const Tensor& x, uint32_t number) {
      return ops::dropout(context, x,
                          inputs.dropout.at(nn::kEmbeddingDropout, number, spec_.head.dropout));
    };
    switch (spec_.head.kind) {
      case EncoderHead::none:
        return states;
      case EncoderHead::token:
        return drop(transformed(context, states), kClassifierDropout);
      case EncoderHead::masked_lm:
        return transformed(context, states);
      case EncoderHead::sequence: {
        if (spec_.head.has_transform())
          return drop(transformed(context, text_vectors(context, states, inputs.sequences)),
                      kClassifierDropout);
        const bool is_bert = spec_.head.of_class == EncoderClass::bert;
        return drop(pooled(context, is_bert ? states : drop(states, kPoolerDropout)),
                    kClassifierDropout);
      }
    }
    fail(ErrorCode::internal, "encoder", "the head is unknown");
  }

 private:
  // Dropouts of the head, beside that of the embedding.
  static constexpr uint32_t kPoolerDropout = 1, kClassifierDropout = 2;

  // The other classes have GELU, whatever the layers have.
  Activation transform() const {
    return spec_.head.of_class == EncoderClass::bert ? spec_.decoder.feed_forward.activation
                                                     : Activation::gelu_erf;
  }

  // norm(activation(T h)) of every token, in a head that has a transform.
  Tensor transformed(Context& context, const Tensor& states) const {
    if (!spec_.head.has_transform()) return states;
    return head_norm_.forward(
        context, ops::activation(context, transform_.forward(context, states), transform()));
  }

  // The vector that the head for texts reads, in the row of each token; only the first one of a
  // text has a label. Attention whose scores are all 0 has the mean of the values.
  Tensor text_vectors(Context& context, const Tensor& states,
                      const nn::PackedSequences& sequences) const {
    if (spec_.head.pooling == Pooling::first) return states;
    ops::AttentionOptions options;
    options.heads = spec_.decoder.attention.heads;
    options.head_dim = spec_.width() / options.heads;
    options.max_queries = options.max_keys = sequences.longest;
    const Tensor zeros = context.zeros(states.shape(), states.dtype());
    return ops::attention(context, {zeros, 0}, {zeros, 0}, {states, 0}, sequences.cu_seqlens,
                          sequences.cu_seqlens, options);
  }

  // A linear layer [width, width] of a head, which stays in float and whole.
  nn::Linear square(const std::string& name, Role role, const Init& init) {
    const int64_t width = spec_.width();
    const std::vector<Part> rows{{role, kWholeStack, width}};
    const ParamId weight = parameters_.declare(name + ".weight", {width, width}, init);
    parameters_.set_parts(weight, Piece::weight, rows);
    if (!spec_.decoder.norm.bias) return nn::Linear(parameters_, weight, kNoParam);
    const ParamId bias = parameters_.declare(name + ".bias", {width}, Init::zeros());
    parameters_.set_parts(bias, Piece::bias, rows);
    return nn::Linear(parameters_, weight, bias);
  }

  Tensor states_of(Context& context, const Tensor& ids, const nn::BlockInputs& inputs,
                   bool indices_validated) const {
    const Dropout dropout = inputs.dropout.at(nn::kEmbeddingDropout, 0, spec_.embedding.dropout);
    return stack_.forward(context,
                          embedding_.forward(context, ids, inputs.sequences.positions, dropout,
                                             indices_validated, inputs.token_types),
                          inputs);
  }

  // tanh(P h) of every token: the first one of a text has its label.
  Tensor pooled(Context& context, const Tensor& states) const {
    const Tensor product = pooler_.forward(context, states);
    if (product.dtype() != DType::bf16) return ops::tanh(context, product);
    const Tensor wide = ops::tanh(context, ops::cast(context, product, DType::f32));
    return ops::cast(context, wide, DType::bf16);
  }

  nn::Embedding embedding_;
  nn::TransformerStack stack_;
  nn::Linear pooler_, transform_;
  nn::Norm head_norm_;
};

}  // namespace

std::unique_ptr<Model> make_encoder(Context& context, const ModelConfig& config,
                                    std::optional<uint64_t> seed, DType dtype, bool int8_weights) {
  return std::make_unique<Encoder>(context, config, seed, dtype, int8_weights);
}

}  // namespace trafo
