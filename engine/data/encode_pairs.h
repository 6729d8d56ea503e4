// Text to token ids on several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/data/pair_source.h"
#include "engine/data/text_corpus.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

struct EncodedPair {
  std::vector<int32_t> source, target, rejected;  // without </s>
  // Source and target are the same text; of a preference pair, both answers.
  bool identical = false;

  PairTokens subwords() const { return {source, target, rejected}; }
};

// Encodes a text of pair `i`, side 0 (source), 1 (target) or 2 (rejected); used instead of
// Tokenizer::encode.
using Encoder =
    std::function<void(std::string_view text, int side, int64_t i, std::vector<int32_t>& ids)>;

// Encodes the pairs pair_of(0) to pair_of(count - 1) of the corpus. The result does not depend on
// num_threads. When `stop` becomes true, the remaining pairs stay empty.
std::vector<EncodedPair> encode_pairs(const TextCorpus& corpus, const Tokenizer& tokenizer,
                                      int64_t count, const std::function<int64_t(int64_t)>& pair_of,
                                      const Encoder& encoder, int num_threads,
                                      const std::atomic<bool>* stop = nullptr);

}  // namespace trafo
