// Maps the tensors of other programs' model files to parameters.
//
// Every such tensor is a range of rows of one parameter, possibly transposed. One table for each
// format serves both directions: writing gathers, reading scatters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/models/model_config.h"
#include "engine/nn/parameter_store.h"

namespace trafo::interop {

struct MappedTensor {
  std::string name;            // in the other file
  std::vector<int64_t> shape;  // there
  std::string parameter;       // ours, [n] or [n, columns]
  int64_t first_row = 0;       // of n
  int64_t rows = 0;
  bool transposed = false;  // there [columns, rows]
  // Rows after these that the other file has and the parameter has not: a vocabulary that was
  // padded. Not of transposed tensors.
  int64_t spare_rows = 0;
  int64_t front_rows = 0;        // such rows before these, which no token has: positions of fairseq
  bool rows_are_tokens = false;  // of the vocabulary
  bool of_sources = false;       // of the vocabulary that sources have alone
  float less = 0;  // an element there is ours less this: Gemma's norms multiply by 1 + w

  int64_t elements() const;  // of the parameter
  size_t front_elements() const { return static_cast<size_t>(front_rows * elements() / rows); }
  std::vector<int64_t> stored_shape() const;  // `shape`, front and spare rows
};

// Hugging Face MarianMTModel and its relatives: separate projections [out, in], final_logits_bias
// [1, V], and where the embeddings have a norm, learned positions from row 2 on.
std::vector<MappedTensor> marian_tensors(const ModelConfig& config);
// Hugging Face T5ForConditionalGeneration. The embedding is the first tensor.
std::vector<MappedTensor> t5_tensors(const ModelConfig& config);
// Hugging Face GPT2LMHeadModel: Conv1D weights [in, out], queries, keys and values side by side.
// Its output projection has no bias, so the bias here is in no tensor.
std::vector<MappedTensor> gpt2_tensors(const ModelConfig& config);
// Hugging Face LlamaForCausalLM and its relatives: separate projections [out, in], with the biases
// and the norms of queries and keys that the model has. Blocks with norms of inputs and outputs are
// Gemma's, whose norms are stored less 1. joined: one matrix of queries, keys and
// values and one of the gate and what it acts on, as in Phi3ForCausalLM.
std::vector<MappedTensor> llama_tensors(const ModelConfig& config, bool joined = false);
// Hugging Face BertModel, RobertaModel, XLMRobertaModel and their heads: separate projections
// [out, in]; RoBERTa's positions from row 2 on. ModernBertModel and its heads: joint projections.
std::vector<MappedTensor> bert_tensors(const ModelConfig& config);
// CTranslate2 TransformerSpec and TransformerDecoderModelSpec: packed projections [out, in].
std::vector<MappedTensor> ctranslate2_tensors(const ModelConfig& config);

// Gives the tensors whose rows are tokens (embeddings, output matrix and bias) as many spare rows
// as the stored vocabulary has tokens more than the model's. `sources`: the stored one of sources
// alone.
void set_stored_vocabulary(std::vector<MappedTensor>& tensors, const ModelConfig& config,
                           int64_t stored, int64_t sources = 0);

// Whether a tensor of the other file has the bytes of the parameter's rows and no others.
bool is_as_stored(const MappedTensor& tensor);
// These rows of the parameter where they are, for a tensor that is not transposed.
std::span<const float> stored_values(const ParameterStore& parameters, const MappedTensor& tensor);
// Between the host memory of float32 parameters and a tensor of the other file.
std::vector<float> gather(const ParameterStore& parameters, const MappedTensor& tensor);
void scatter(ParameterStore& parameters, const MappedTensor& tensor,
             const std::vector<float>& values);

}  // namespace trafo::interop
