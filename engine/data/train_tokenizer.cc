#include "engine/data/train_tokenizer.h"

#include <algorithm>

#include "engine/core/cancel.h"
#include "engine/core/limits.h"
#include "engine/core/shuffle.h"
#include "engine/core/status.h"
#include "engine/text/tokenizer/tokenizer_kinds.h"
#include "engine/text/tokenizer/training_pieces.h"

namespace trafo {

Tokenizer train_tokenizer(const TextCorpus& corpus, const TokenizerTrainOptions& options) {
  validate(options);
  require(!corpus.has_ids(), ErrorCode::invalid_argument, "tokenizer",
          "a tokenizer is trained on text, and the corpus has token ids");
  if (!tokenizer_kind(options.kind).learns)
    return Tokenizer::train(std::span<const std::string_view>(), options);
  const auto pairs = static_cast<size_t>(corpus.size());
  const auto sides = static_cast<size_t>(corpus.form());
  std::vector<std::string> lines;
  const auto most = static_cast<size_t>(options.max_sentences);
  ShuffleRng rng(options.seed, 1);
  uint64_t pieces = 0;
  // Long documents may have many more pieces than max_sentences. A reservoir bounds their memory.
  const auto keep = [&](std::string_view line) {
    for_each_training_piece(line, [&](std::string_view piece) {
      ++pieces;
      if (piece.size() == line.size() || lines.size() < most)
        lines.emplace_back(piece);
      else if (const uint64_t slot = rng.below(pieces); slot < lines.size())
        lines[slot] = piece;
    });
  };
  PairBuffers buffers;
  for (const size_t index : sample_indices(sides * pairs, options.max_sentences, options.seed)) {
    stop_if_cancelled(options.cancel, "tokenizer");
    const PairView pair = corpus.view(static_cast<int64_t>(index % pairs), buffers);
    if (!corpus.monolingual() || corpus.format() == CorpusFormat::json_lines) {
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
  return Tokenizer::train(std::span<const std::string>(lines), options);
}

}  // namespace trafo
