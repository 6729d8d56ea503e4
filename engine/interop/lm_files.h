// What the directories of decoder-only models of transformers share beside the weights.
#pragma once

#include "engine/interop/directory.h"
#include "engine/interop/formats.h"

namespace trafo::interop {

// bos_token_id, eos_token_id, pad_token_id; what the tokenizer lacks is eos.
void put_special_ids(const Tokenizer& tokenizer, Json& json);
// generation_config.json: what is never generated here is not generated there.
void write_generation(const Tokenizer& tokenizer, const std::filesystem::path& directory);
// tokenizer.model and, for unigram vocabularies without byte pieces, what AutoTokenizer reads.
void write_lm_tokenizer(const Tokenizer& tokenizer, const ModelConfig& config,
                        const std::filesystem::path& directory);
// tokenizer.model, or a note that there is none.
void read_lm_tokenizer(const std::filesystem::path& directory, const ModelConfig& config,
                       Imported& imported);

}  // namespace trafo::interop
