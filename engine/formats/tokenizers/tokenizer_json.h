// tokenizer.json of the `tokenizers` library, read: what transformers saves in place of a
// SentencePiece model.
#pragma once

#include <filesystem>
#include <vector>

#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo::interop {

// A tokenizer that gives the ids of the file: byte-level BPE with its companions, or content that a
// SentencePiece model can hold: unigram or BPE with all merges of a subword, spaces as U+2581. For
// that one, ids of the configuration go before the names <s>, </s> and <pad>. UNSUPPORTED names the
// key that stands for something else, CORRUPT_FILE what no such file has. Refusing the file takes
// its own size and limits::kRefusalBytes of memory.
Tokenizer read_tokenizer_json(const std::filesystem::path& file, const SpecialIds& ids,
                              std::vector<CompanionFile> companions);

}  // namespace trafo::interop
