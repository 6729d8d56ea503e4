// Text as a file of token ids.
#pragma once

#include <cstdint>
#include <string>

#include "engine/core/cancel.h"
#include "engine/data/text_corpus.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

struct TokenFileSize {
  int64_t documents = 0, tokens = 0;
};

// Writes the ids of each text with the tokenizer's end after them, the rows that training on the
// text would have, in the order of the corpus. Texts without a token are left out. The number of
// threads changes only the speed. The type of an id depends on the vocabulary: uint16 for up to
// 65,536 tokens, otherwise uint32 (llm.c, with the magic of Llama 3); Megatron: uint16 below
// 65,500, otherwise int32. Megatron's path is NAME.bin, and NAME.idx is written after it.
// INVALID_ARGUMENT: the corpus has no text, pairs, preferences or conversations. UNSUPPORTED: a
// larger vocabulary than nanoGPT has, more than 2^31 - 1 tokens for llm.c. On errors, files that
// were there are as before.
TokenFileSize write_token_file(const TextCorpus& corpus, const Tokenizer& tokenizer,
                               CorpusFormat format, const std::string& path, int num_threads,
                               const CancelToken* cancel = nullptr);

}  // namespace trafo
