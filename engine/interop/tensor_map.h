// Maps the tensors of other programs' model files to parameters.
//
// Every such tensor is a range of rows of one parameter, possibly transposed. One table for each
// format serves both directions: writing gathers, reading scatters.
#pragma once

#include <cstdint>
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

  int64_t elements() const;
};

// Hugging Face MarianMTModel: separate projections [out, in], final_logits_bias [1, V].
std::vector<MappedTensor> marian_tensors(const ModelConfig& config);
// Hugging Face GPT2LMHeadModel: Conv1D weights [in, out], queries, keys and values side by side.
// Its output projection has no bias, so the bias here is in no tensor.
std::vector<MappedTensor> gpt2_tensors(const ModelConfig& config);
// Hugging Face LlamaForCausalLM: separate projections [out, in] without biases.
std::vector<MappedTensor> llama_tensors(const ModelConfig& config);
// CTranslate2 TransformerSpec and TransformerDecoderModelSpec: packed projections [out, in].
std::vector<MappedTensor> ctranslate2_tensors(const ModelConfig& config);

// Between the host memory of float32 parameters and a tensor of the other file.
std::vector<float> gather(const ParameterStore& parameters, const MappedTensor& tensor);
void scatter(ParameterStore& parameters, const MappedTensor& tensor,
             const std::vector<float>& values);

}  // namespace trafo::interop
