// The files that all decoder-only models of transformers have beside the weights.
#pragma once

#include "engine/interop/directory.h"
#include "engine/interop/formats.h"

namespace trafo::interop {

// Sets bos_token_id, eos_token_id and pad_token_id. Tokens that the tokenizer lacks become eos.
void put_special_ids(const Tokenizer& tokenizer, Json& json);
// Writes generation_config.json: the longest translation, and the tokens that decoding here never
// generates as suppressed ones.
void write_generation(const Tokenizer& tokenizer, const ModelConfig& config,
                      const std::filesystem::path& directory);
// Writes tokenizer.model and, if there is a fast_tokenizer(), the files of AutoTokenizer.
void write_lm_tokenizer(const Tokenizer& tokenizer, const ModelConfig& config,
                        const std::filesystem::path& directory);
// Reads tokenizer.model, or notes that there is none.
void read_lm_tokenizer(const std::filesystem::path& directory, const ModelConfig& config,
                       Imported& imported);

}  // namespace trafo::interop
