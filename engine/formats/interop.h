// Export to and import from the model directories of other programs.
//
// An exported directory appears whole or not at all. Before that it is read back, and the logits of
// the model that was read must equal those of the caller's model on a fixed batch.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "engine/formats/generated/export_enums.h"
#include "engine/models/model.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

// Writes the master weights to `directory`, which must be empty or not exist. Returns the largest
// difference of the logits, relative to the largest logit if that is above 1; it is 0 if the
// weights are copied without arithmetic. With weights in fewer bits than float32, every weight that
// is read back must be within the rounding of its type, and the difference is only told.
// UNSUPPORTED names the setting that the format cannot express. INVALID_ARGUMENT: the tokenizer
// does not fit the model, or the directory has files. NON_FINITE: weights are NaN or infinite, or
// logits of float32 weights differ by more than 1e-4.
// Without `weights`, the float32 formats have bfloat16 weights for a model whose values all are
// bfloat16 numbers, as after an import of such weights.
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
