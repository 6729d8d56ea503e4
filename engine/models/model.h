// A transformer that can be trained and decoded from.
#pragma once

#include <memory>
#include <vector>

#include "engine/models/batch.h"
#include "engine/models/model_config.h"
#include "engine/nn/parameter_store.h"

namespace trafo {

// State of incremental decoding: R rows (hypotheses), each with its own past.
struct DecodeState {
  int64_t rows = 0;
  int64_t length = 0;    // tokens every row has seen
  int64_t capacity = 0;  // tokens the cache has room for
  Tensor self_cache;     // [rows * capacity, layers * 2 * kv_width]: keys then values of each layer
  Tensor cross_cache;    // [Ts, layers * 2 * width]; undefined for decoder_lm
  Tensor cross_begin, cross_end;  // [rows] int32: each row's source tokens in cross_cache
  int64_t longest_source = 0;     // tokens of the longest source at the start; 0: unknown
  // Of restrict_output: the rows of the output layer that logits are computed of; undefined: all.
  Tensor output_weight, output_bias;
  bool indices_validated = false;  // the ids that are fed are tokens, and positions suffice: see
                                   // EmbeddingOptions
};

// logits = hidden weight^T + bias.
struct OutputProjection {
  Tensor weight;  // [vocabulary, width]
  Tensor bias;    // [vocabulary]; undefined: none
};

class Model {
 public:
  virtual ~Model() = default;

  const ModelConfig& config() const { return config_; }
  ParameterStore& parameters() { return parameters_; }
  const ParameterStore& parameters() const { return parameters_; }

  // The hidden states of every target token, [Tt, width], normalised and ready for the output
  // projection.
  virtual Tensor hidden(Context& context, const Batch& batch, const DropoutPass& dropout) const = 0;
  virtual OutputProjection output_projection() const = 0;
  // The logits of every target token, [Tt, vocabulary], without dropout.
  Tensor logits(Context& context, const Batch& batch) const;

  // Starts decoding for the sentences of `batch` (encoder_decoder: its source side is encoded;
  // decoder_lm: nothing is read) with `beam` rows a sentence, row r belonging to sentence r / beam,
  // and room for `capacity` tokens a row. Not recorded.
  virtual DecodeState start_decoding(Context& context, const Batch& batch, int64_t beam,
                                     int64_t capacity) const = 0;
  // Feeds one token to every row (ids [rows] int32) and returns the logits of the next, [rows, V].
  Tensor decode_step(Context& context, DecodeState& state, const Tensor& ids) const;
  // Makes row i continue what row parents[i] has seen ([new rows] int32, host values): beam
  // reordering and shrinking.
  static void reorder(Context& context, DecodeState& state, const std::vector<int32_t>& parents);

 protected:
  explicit Model(const ModelConfig& config) : config_(config) {}
  virtual Tensor decode_rows(Context& context, DecodeState& state, const Tensor& ids) const = 0;

  ModelConfig config_;
  ParameterStore parameters_;
};

// Validates the configuration, declares, allocates and initialises parameters: float32; bfloat16
// with float32 masters on CUDA; float64 for gradient checks on the CPU. UNSUPPORTED for a dtype
// that the device does not compute with.
std::unique_ptr<Model> make_model(Context& context, const ModelConfig& config, uint64_t seed,
                                  DType dtype = DType::f32);

}  // namespace trafo
