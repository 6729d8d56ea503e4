// Text to token ids on several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/core/generated/option_enums.h"
#include "engine/data/label_encoding.h"
#include "engine/data/pair_source.h"
#include "engine/data/text_corpus.h"
#include "engine/text/chat_template/chat_template.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

// How the pairs of a corpus become token ids.
struct PairEncoding {
  // With a tokenizer, of text or of ids.
  PairEncoding(Tokenizer text_tokenizer)  // NOLINT(google-explicit-constructor): its vocabulary
      : tokenizer(std::move(text_tokenizer)),
        tokens(tokenizer->tokens()),
        vocabulary(tokenizer->vocab_size()),
        source_vocabulary(tokenizer->source_vocab_size()) {}
  // Of ids alone.
  PairEncoding(VocabularyTokens special_tokens, int64_t ids)
      : tokens(std::move(special_tokens)), vocabulary(ids), source_vocabulary(ids) {}

  // The template of conversations, read once. INVALID_ARGUMENT: the tokenizer has none.
  const ChatTemplate& chat_template() const;

  std::optional<Tokenizer> tokenizer;
  VocabularyTokens tokens;
  int64_t vocabulary, source_vocabulary;  // ids of targets and of sources are below them
  ChatLoss chat_loss = ChatLoss::answers;
  LabelNames labels = {};  // targets are labels if there are any

 private:
  mutable std::shared_ptr<const ChatTemplate> chat_template_;
};

// The tokens around the texts of a corpus; none around ids and labelled texts.
PairFrame frame_of(const TextCorpus& corpus, const PairEncoding& encoding);

// Of the text and how it becomes ids, the vocabulary apart.
uint64_t tokenized_fingerprint(const TextCorpus& corpus, const PairEncoding& encoding,
                               SequenceForm form);

struct EncodedPair {
  // Of text without special tokens around it. Of a corpus of ids and of text with labels the rows
  // as a trainer reads them.
  std::vector<int32_t> source, target, rejected;
  // Source and target are the same text; of a preference pair, both answers.
  bool identical = false;
  std::vector<uint8_t> learned = {};  // of conversations and labels, see PairTokens

  PairTokens subwords() const { return {source, target, rejected, learned}; }
};

// Encodes a text of pair `i`, side 0 (source), 1 (target) or 2 (rejected); used instead of
// Tokenizer::encode.
using Encoder =
    std::function<void(std::string_view text, int side, int64_t i, std::vector<int32_t>& ids)>;

// Encodes the pairs pair_of(0) to pair_of(count - 1) of the corpus. The result does not depend on
// num_threads. None if `stop` became true before all were encoded. INVALID_ARGUMENT: text without a
// tokenizer; an id that is not in the vocabulary.
std::optional<std::vector<EncodedPair>> encode_pairs(const TextCorpus& corpus,
                                                     const PairEncoding& encoding, int64_t count,
                                                     const std::function<int64_t(int64_t)>& pair_of,
                                                     const Encoder& encoder, int num_threads,
                                                     const std::atomic<bool>* stop = nullptr);

}  // namespace trafo
