// What both architectures share: configuration of the layers, embeddings, the output projection,
// the decoding cache.
#pragma once

#include "engine/models/model.h"
#include "engine/nn/layers.h"

namespace trafo {

class Transformer : public Model {
 protected:
  explicit Transformer(const ModelConfig& config) : Model(config) {}

  Layers layers(Context& context, const DropoutPass& pass) const;
  // The layer of DropoutIds that belongs to embeddings; blocks count from 1.
  static constexpr uint32_t kEmbeddingDropout = 0;

  // Key ranges of every row in the cache, the token being decoded included.
  struct SelfRanges {
    Tensor begin, end;
    Tensor slots;      // [rows], of the token being decoded
    Tensor positions;  // [rows], of the token being decoded; with rotary positions
  };
  // Appends the new keys and values to the cache, after rotation where positions are rotary, and
  // attends over every token of a row.
  Tensor cached_self_attention(const Layers& layers, const Tensor& x, const SelfAttentionParams& p,
                               DecodeState& state, const SelfRanges& ranges, int64_t layer) const;
  OutputProjection output_projection() const override;
  // The logits of a decode step: of the whole vocabulary, or of the tokens that the state restricts
  // them to.
  Tensor step_logits(Context& context, const Tensor& hidden, const DecodeState& state) const;
  DecodeState make_state(Context& context, int64_t rows, int64_t capacity) const;
  SelfRanges self_ranges(Context& context, const DecodeState& state) const;
  static Tensor constant_positions(Context& context, int64_t rows, int64_t position);

  LinearParams output_;  // the output projection
};

std::unique_ptr<Model> make_encoder_decoder(Context& context, const ModelConfig& config,
                                            uint64_t seed, DType dtype);
std::unique_ptr<Model> make_decoder_lm(Context& context, const ModelConfig& config, uint64_t seed,
                                       DType dtype);

}  // namespace trafo
