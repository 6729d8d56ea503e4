#include "engine/data/train_tokenizer.h"

#include <algorithm>
#include <iterator>

#include "engine/core/cancel.h"
#include "engine/core/limits.h"
#include "engine/core/numeric/shuffle.h"
#include "engine/core/progress.h"
#include "engine/core/status.h"
#include "engine/text/tokenizer/tokenizer_kinds.h"
#include "engine/text/tokenizer/training_pieces.h"

namespace trafo {

Tokenizer train_tokenizer(const TextCorpus& corpus, const TokenizerTrainOptions& options) {
  validate(options);
  require(!corpus.has_ids(), ErrorCode::invalid_argument, "tokenizer",
          "a tokenizer is trained on text, and the corpus has token ids");
  require(!corpus.has_chats() || !tokenizer_kind(options.kind).learns, ErrorCode::invalid_argument,
          "tokenizer", "a tokenizer is trained on text, and the corpus has conversations");
  if (!tokenizer_kind(options.kind).learns)
    return Tokenizer::train(std::span<const std::string_view>(), options);
  const auto pairs = static_cast<size_t>(corpus.size());
  const auto sides = static_cast<size_t>(corpus.form());
  std::vector<std::string> lines, pieces;
  // Training takes 27 bytes of memory for each byte of text. Texts longer than a sentence may be of
  // any length, so a reservoir keeps as many of their bytes as max_sentences sentences of
  // kSentenceBytes have.
  constexpr size_t kLongestSentence = 1024;
  constexpr int64_t kSentenceBytes = 32;
  const auto most = static_cast<size_t>(std::max<int64_t>(
      1, options.max_sentences / (limits::kTrainingSentenceBytes / kSentenceBytes)));
  ShuffleRng rng(options.seed, 1);
  uint64_t seen = 0;
  const auto keep = [&](std::string_view line) {
    if (line.size() <= kLongestSentence) {
      lines.emplace_back(line);
      return;
    }
    for_each_training_piece(line, [&](std::string_view piece) {
      ++seen;
      if (pieces.size() < most)
        pieces.emplace_back(piece);
      else if (const uint64_t slot = rng.below(seen); slot < most)
        pieces[slot] = piece;
    });
  };
  PairBuffers buffers;
  const auto sampled = sample_indices(sides * pairs, options.max_sentences, options.seed);
  WorkProgress progress(Work::gather_text, std::ssize(sampled));
  for (const size_t index : sampled) {
    stop_if_cancelled(options.cancel, "tokenizer");
    progress.add(1);
    const PairView pair = corpus.view(static_cast<int64_t>(index % pairs), buffers);
    if (!corpus.monolingual() || corpus.format() != CorpusFormat::text) {
      const size_t text = corpus.monolingual() ? 1 : index / pairs;
      keep(text == 0 ? pair.source : text == 1 ? pair.target : pair.rejected);
      continue;
    }
    const std::string_view text = pair.target;
    // The sides of a line of TSV are sentences.
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('\t', begin), text.size());
      if (end > begin) keep(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  progress.finish();
  std::ranges::move(pieces, std::back_inserter(lines));
  return Tokenizer::train(std::span<const std::string>(lines), options);
}

}  // namespace trafo
