// The vocabulary in a GGUF file, by the keys that llama.cpp reads.
#pragma once

#include "engine/formats/formats.h"
#include "engine/formats/gguf/gguf_file.h"

namespace trafo::interop {

// The pairs "tokenizer.ggml...." of SentencePiece BPE with byte tokens, of byte-level BPE or, of
// models with an encoder, of unigrams. These models' texts end with </s>.
// UNSUPPORTED names what llama.cpp would read otherwise: another kind, a pattern that it has no
// name for, added tokens that take white space. It does not normalise: of a vocabulary with NFC,
// texts in another form get other ids there.
GgufPairs tokenizer_pairs(const Tokenizer& tokenizer, const VocabularyTokens& tokens,
                          bool has_encoder);

}  // namespace trafo::interop
