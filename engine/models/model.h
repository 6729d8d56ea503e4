// A transformer that can be trained and decoded from.
//
// An architecture is a class that declares modules (engine/nn) in its constructor and says how they
// encode the source and decode the target. Training, prefill and decode steps run the same code.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/models/adapter_config.h"
#include "engine/models/batch.h"
#include "engine/models/spec.h"
#include "engine/nn/kv_cache.h"
#include "engine/nn/linear.h"
#include "engine/nn/parameter_store.h"
#include "engine/nn/transformer_block.h"
#include "engine/text/tokenizer/special_tokens.h"

namespace trafo {

// logits = hidden weight^T + bias, with the soft cap (ops::soft_cap) that the model has.
struct OutputProjection {
  Weight weight;        // [vocabulary, width]
  Tensor bias;          // [vocabulary]; undefined: none
  double soft_cap = 0;  // 0: none
};
// hidden [T, width] -> [T, vocabulary]
Tensor project_logits(Context& context, const Tensor& hidden, const OutputProjection& output);

// State of incremental decoding: rows (hypotheses), each with a separate past.
struct DecodeState {
  nn::KvCache cache;
  nn::EncoderKeysValues encoder;  // of the encoded source; undefined without an encoder
  // The source of each row on the host: the values of encoder.begin and encoder.end.
  std::vector<int32_t> source_begin, source_end;
  OutputProjection output;  // of the model, or restricted to some tokens
  // The caller vouches for token ids and positions: see ops::EmbeddingOptions.
  bool indices_validated = false;

  int64_t rows() const { return cache.rows(); }
};

// The cross-attention of one decoder layer. The probabilities of head h within a sentence are
// softmax(q k^T / sqrt(head_dim)), with the columns h * head_dim .. of its queries and keys.
struct CrossAttentionInputs {
  Tensor queries;  // [target tokens, heads * head_dim]
  Tensor keys;     // [source tokens, heads * head_dim]
};

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const { return config_; }  // the options that it was made from
  const ModelSpec& spec() const { return spec_; }
  ParameterStore& parameters() { return parameters_; }
  const ParameterStore& parameters() const { return parameters_; }

  // The hidden states of every target token, [Tt, width], normalised and ready for the output
  // projection.
  Tensor hidden(Context& context, const Batch& batch, const DropoutPass& dropout) const;
  // The encoder's output for every source token, [Ts, width], or without an encoder the hidden
  // states of every target token, before the head of an encoder alone. Normalised (pre-norm),
  // without dropout.
  Tensor states(Context& context, const Batch& batch) const;
  // What an encoder without head does not have.
  bool has_output() const { return spec_.output.rows > 0; }
  OutputProjection output_projection() const {
    return {output_.weight(), output_.bias(), spec_.output.soft_cap};
  }
  // The logits of every target token, [Tt, vocabulary], without dropout. Of an encoder with labels
  // [Tt, labels]; with a head for texts, the row of the first token of each text is its own.
  // UNSUPPORTED: it has no head.
  Tensor logits(Context& context, const Batch& batch) const;
  // Queries and keys of decoder layer `layer` (from 0) in a pass over `batch` without dropout.
  // Not recorded. UNSUPPORTED: the model has no encoder. INVALID_ARGUMENT: no such layer.
  CrossAttentionInputs cross_attention(Context& context, const Batch& batch, int64_t layer) const;

  // Encodes the source side of `batch`, where the model has an encoder, and gives every sentence an
  // empty row with room for `capacity` tokens, in `storage` if it is defined (nn::KvCache). Not
  // recorded, as all of decoding.
  DecodeState start_decoding(Context& context, const Batch& batch, int64_t capacity,
                             const Tensor& storage = {}) const;
  // Appends prompts[r] to row r in one pass; returns the logits of the tokens that follow the
  // prompts, [rows, vocabulary]. With an encoder, rows must be empty and in the order of the batch,
  // and no prompt is empty. Without one, a row may hold tokens already, which are not computed
  // again, and a row without new tokens is left out of the logits.
  Tensor prefill(Context& context, DecodeState& state,
                 std::span<const std::vector<int32_t>> prompts) const;
  // Appends one token to every row (ids [rows] int32) and returns the logits of the next, [rows,
  // vocabulary].
  Tensor decode_step(Context& context, DecodeState& state, const Tensor& ids) const;
  // The part of decode_step() between KvCache::begin_append and end_append. It uploads nothing, so
  // that a graph can repeat it.
  Tensor step_logits(Context& context, const DecodeState& state, const Tensor& ids) const;

  // The file that the weights came from, and the vocabulary that they were trained with.
  struct Origin {
    std::string file;        // empty: none
    std::string vocabulary;  // of vocabulary_checksum(); empty: not known
  };
  const Origin& origin() const { return origin_; }
  void set_origin(Origin origin) { origin_ = std::move(origin); }

  // The special tokens of its vocabulary, for work on token ids without a tokenizer. None: it does
  // not know them. INVALID_ARGUMENT names the token that the model cannot have.
  const std::optional<VocabularyTokens>& tokens() const { return tokens_; }
  void set_tokens(std::optional<VocabularyTokens> tokens);

  // The names of the labels of an encoder's head, one for each; unless they are set, LABEL_0,
  // LABEL_1, ..., as in transformers. INVALID_ARGUMENT: another number of names, or an empty one.
  const std::vector<std::string>& labels() const { return labels_; }
  void set_labels(std::vector<std::string> labels);

  // The adapter that the model computes with; models/adapter.h adds and merges it.
  const std::optional<AdapterConfig>& adapter() const { return adapter_.config; }
  bool merged_adapter() const { return adapter_.merged.has_value(); }
  AdapterState& adapter_state() { return adapter_; }
  const AdapterState& adapter_state() const { return adapter_; }
  // Has the tensors of `base`, a model of the same configuration, that are no parameters, such as
  // a table of positions.
  virtual void share_constants(const Model& base) = 0;

 protected:
  explicit Model(const ModelConfig& config);

  // The output projection over the embedding where they are tied, or else over output.weight, which
  // it declares with `init`; declares output.bias where the model has one.
  void declare_output(ParamId embedding, const Init& init);

  // The encoder on the source side: [Ts, width]; undefined without an encoder. An architecture of
  // an encoder alone reads the target side.
  virtual Tensor encoder_states(Context& context, const Batch& batch,
                                const DropoutPass& dropout) const;
  // Keys and values for the cross-attention of the decoder; none without an encoder.
  virtual nn::EncoderKeysValues encode(Context& context, const Batch& batch,
                                       const DropoutPass& dropout) const;
  // The decoder on target tokens: ids [T] -> hidden states [T, width], ready for the output
  // projection. inputs.sequences.positions are the positions of the tokens.
  virtual Tensor decode(Context& context, const Tensor& ids, const nn::BlockInputs& inputs,
                        bool indices_validated) const = 0;

  ModelConfig config_;
  ModelSpec spec_;
  ParameterStore parameters_;
  nn::Linear output_;

 private:
  // The hidden states of the packed `ids`, whose keys and values go to the cache. It is between
  // begin_append and end_append.
  Tensor appended(Context& context, const DecodeState& state, const Tensor& ids) const;

  Origin origin_;
  std::optional<VocabularyTokens> tokens_;
  std::vector<std::string> labels_;
  AdapterState adapter_;
};

// Row i continues what row parents[i] holds: a beam search reorders, copies and drops rows. A row
// whose parent is -1 is empty and has the source of the first row. No prefill is possible
// afterwards.
void reorder(Context& context, DecodeState& state, std::span<const int32_t> parents);
// The logits of the steps to come cover these tokens alone, in their order: [rows, tokens].
void restrict_output(Context& context, DecodeState& state, std::span<const int32_t> tokens);

// Validates the configuration, declares, allocates and initialises parameters: float32; bfloat16
// with float32 masters on CUDA; float64 for gradient checks on the CPU. UNSUPPORTED for a dtype
// that the device does not compute with. No seed and int8_weights: for load_model, which sets the
// values or codes before anybody else sees the model; codes for float32 on the CPU.
std::unique_ptr<Model> make_model(Context& context, const ModelConfig& config,
                                  std::optional<uint64_t> seed, DType dtype = DType::f32,
                                  bool int8_weights = false);

// The factory of each architecture; make_model calls them.
#define TRAFO_ARCHITECTURE(name, ...)                                             \
  std::unique_ptr<Model> make_##name(Context& context, const ModelConfig& config, \
                                     std::optional<uint64_t> seed, DType dtype,   \
                                     bool int8_weights);
#include "engine/models/generated/architectures.def"
#undef TRAFO_ARCHITECTURE

}  // namespace trafo
