// tokenizer.json of the `tokenizers` library, read: what transformers saves in place of a
// SentencePiece model.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo::interop {

// A tokenizer that gives the ids of the file: byte-level BPE or BPE with byte fallback, with its
// companions (is_byte_bpe()), or content that a SentencePiece model can hold: unigram or BPE with
// all merges of a subword, spaces as U+2581. For that one, ids of the configuration go before the
// names <s>, </s> and <pad>. UNSUPPORTED names the key that stands for something else, CORRUPT_FILE
// what no such file has. Refusing the file takes its own size and limits::kRefusalBytes of memory.
Tokenizer read_tokenizer_json(const std::filesystem::path& file, const SpecialIds& ids,
                              std::vector<CompanionFile> companions);

// A vocabulary of BPE with byte fallback as a SentencePiece model, for formats that have no other
// kind. None: it is of another kind. UNSUPPORTED names the key that stands for something else.
// SentencePiece may give other ids to a text with spaces at its ends.
std::optional<Tokenizer> sentencepiece_form(const Tokenizer& tokenizer);

}  // namespace trafo::interop
