// A part of a model as a separate model: some of its layers, heads and feed-forward columns.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/models/model.h"

namespace trafo {

// Parts that a layer keeps, by number, ascending.
struct LayerSlice {
  int64_t layer = 0;                 // its number in the model
  std::vector<int64_t> heads;        // of self-attention; with grouped queries: key heads
  std::vector<int64_t> cross_heads;  // of cross-attention, where the layer has one
  std::vector<int64_t> ffn_columns;
};

// Every layer of a stack keeps as many heads and columns as the others. Of layers that share their
// parameters, the first alone is here; such a stack keeps all of its layers.
struct ModelSlice {
  std::vector<LayerSlice> encoder, decoder;
};

// The slice that is the whole model.
ModelSlice whole_model(const ModelSpec& spec);

// The configuration of the part.
ModelConfig sliced_config(const ModelConfig& config, const ModelSlice& slice);

// The part as a model in the dtype of the masters, with everything trainable. `model` has neither
// an adapter nor int8 weights. A model with factorized matrices has the whole as its only part.
std::unique_ptr<Model> sliced_model(Context& context, const Model& model, const ModelSlice& slice);

}  // namespace trafo
