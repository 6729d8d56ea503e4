// Export to and import from the model directories of other programs.
//
// An exported directory appears whole or not at all. Before that it is read back, and the logits of
// the model that was read must equal those of the caller's model on a fixed batch.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "engine/models/model.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

// Values are part of the C ABI: never renumber, only append.
enum class ExportFormat : int32_t {
  hf_marian = 0,      // transformers' MarianMTModel: a post-norm, tied encoder_decoder
  hf_gpt2 = 1,        // transformers' GPT2LMHeadModel: a pre-norm decoder_lm
  ctranslate2 = 2,    // a CTranslate2 model directory: every architecture
  hf_llama = 3,       // transformers' LlamaForCausalLM: a decoder_lm with rms, rotary and swiglu
  onnx = 4,           // ONNX graphs of opset 17 and their weights: every model
  gguf = 5,           // llama.cpp's file of a Llama model
  hf_compressed = 6,  // compressed-tensors for transformers and vLLM: a Llama model
  hf_pegasus = 7,     // transformers' PegasusForConditionalGeneration: hf_marian for pre-norm
};
const char* export_format_name(ExportFormat format);  // "hf-marian", ...
bool is_export_format(int32_t value);

// How an export stores matrices. Values are part of the C ABI: never renumber, only append.
enum class ExportWeights : int32_t {
  by_format = 0,  // float16 in gguf, int8 in hf-compressed, float32 in the others
  float32 = 1,
  float16 = 2,
  bfloat16 = 3,
  int16 = 4,  // CTranslate2: one scale for a matrix
  int8 = 5,   // CTranslate2, ONNX and compressed-tensors: a scale for each row
  q8_0 = 6,   // ggml: a scale for each block of 32
  q4_0 = 7,   // ggml: 4 bits, a scale for each block of 32
  int4 = 8,   // compressed-tensors: a scale for each 32 values of a row
};
const char* export_weights_name(ExportWeights weights);  // "float32", ...
bool is_export_weights(int32_t value);

// Writes the master weights to `directory`, which must be empty or not exist. Returns the largest
// difference of the logits, relative to the largest logit if that is above 1; it is 0 if the
// weights are copied without arithmetic. With weights in fewer bits than float32, every weight that
// is read back must be within the rounding of its type, and the difference is only told.
// UNSUPPORTED names the setting that the format cannot express. INVALID_ARGUMENT: the tokenizer
// does not fit the model, or the directory has files. NON_FINITE: weights are NaN or infinite, or
// logits of float32 weights differ by more than 1e-4.
// Without a tokenizer, hf-gpt2, hf-llama and hf-compressed are written without one, with the
// special tokens that the model knows; the other formats are INVALID_ARGUMENT.
double export_model(Context& context, const Model& model, const std::optional<Tokenizer>& tokenizer,
                    ExportFormat format, const std::filesystem::path& directory,
                    ExportWeights weights = ExportWeights::by_format);

struct ImportedModel {
  std::unique_ptr<Model> model;        // float32, in the caller's context; knows Model::tokens()
  std::optional<Tokenizer> tokenizer;  // none: the directory has none that can be read
  std::string note;                    // a remark for the user; may be empty
};

// Reads a MarianMTModel, PegasusForConditionalGeneration, GPT2LMHeadModel, LlamaForCausalLM,
// MistralForCausalLM or Qwen2ForCausalLM directory with safetensors weights in one file or several.
// Converts float16, bfloat16 and float64 weights to float32. CORRUPT_FILE, UNSUPPORTED and
// NOT_FOUND name the file and the reason.
ImportedModel import_model(Context& context, const std::filesystem::path& directory);

}  // namespace trafo
