#include "engine/data/train_tokenizer.h"

#include <algorithm>

#include "engine/core/cancel.h"
#include "engine/core/limits.h"
#include "engine/core/shuffle.h"
#include "engine/core/status.h"
#include "engine/text/tokenizer/tokenizer_kinds.h"

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
  // Too long for training, a line still counts as one, so that a corpus of such lines is not empty.
  const auto keep = [&](std::string_view line) {
    lines.emplace_back(line.size() > limits::kTrainingSentenceBytes ? std::string_view() : line);
  };
  PairBuffers buffers;
  for (const size_t index : sample_indices(sides * pairs, options.max_sentences, options.seed)) {
    stop_if_cancelled(options.cancel, "tokenizer");
    const PairView pair = corpus.view(static_cast<int64_t>(index % pairs), buffers);
    if (!corpus.monolingual()) {
      keep(index < pairs ? pair.source : index < 2 * pairs ? pair.target : pair.rejected);
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
