// tokenizer.json of the `tokenizers` library, read: what transformers saves in place of a
// SentencePiece model.
#pragma once

#include <filesystem>

#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo::interop {

// A tokenizer that gives the ids of the file, for content that a SentencePiece model can hold:
// unigram or BPE with all merges of a subword, spaces as U+2581. Ids of the configuration go before
// the names <s>, </s> and <pad>. UNSUPPORTED names the key that stands for something else
// (byte-level BPE, for example), CORRUPT_FILE what no such file has. Refusing the file takes its
// own size and limits::kRefusalBytes of memory.
Tokenizer read_tokenizer_json(const std::filesystem::path& file, const SpecialIds& ids);

}  // namespace trafo::interop
