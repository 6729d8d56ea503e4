// Models in the directories of other programs: written for them, and read from them.
//
// A written directory appears whole or not at all, and only after it has been read back and the
// logits of what was read equal ours on a fixed batch.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "engine/models/model.h"
#include "engine/tokenizer/tokenizer.h"

namespace trafo {

// Values are part of the C ABI: never renumber, only append.
enum class ExportFormat : int32_t {
  hf_marian = 0,    // transformers' MarianMTModel: a post-norm, tied encoder_decoder
  hf_gpt2 = 1,      // transformers' GPT2LMHeadModel: a pre-norm decoder_lm
  ctranslate2 = 2,  // a CTranslate2 model directory: every architecture
  hf_llama = 3,     // transformers' LlamaForCausalLM: a decoder_lm with rms, rotary and swiglu
};
const char* export_format_name(ExportFormat format);  // "hf-marian", ...

// Writes `directory`, which must not exist or be empty, and returns the largest difference of the
// logits, relative to the largest of them if that is above 1 (0 where weights are only moved). The
// file holds the float32 (master) weights. UNSUPPORTED names the setting that the format cannot
// express; INVALID_ARGUMENT: a tokenizer that does not fit the model, a directory with files in it;
// NON_FINITE: weights that are not numbers, or logits that differ by more than 1e-4.
double export_model(Context& context, const Model& model, const Tokenizer& tokenizer,
                    ExportFormat format, const std::filesystem::path& directory);

struct ImportedModel {
  std::unique_ptr<Model> model;        // float32, in the caller's context
  std::optional<Tokenizer> tokenizer;  // none: the directory has no SentencePiece model
  std::string note;                    // what the user should know; may be empty
};

// Reads a MarianMTModel, GPT2LMHeadModel or LlamaForCausalLM directory with model.safetensors.
// Weights that are float16, bfloat16 or float64 become float32. CORRUPT_FILE, UNSUPPORTED,
// NOT_FOUND name the file and what is wrong or what models here cannot do.
ImportedModel import_model(Context& context, const std::filesystem::path& directory);

}  // namespace trafo
