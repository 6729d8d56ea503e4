#include "engine/data/train_tokenizer.h"

#include "engine/core/shuffle.h"

namespace trafo {

Tokenizer train_tokenizer(const TextCorpus& corpus, const TokenizerTrainOptions& options) {
  validate(options);
  const auto pairs = static_cast<size_t>(corpus.size());
  const size_t sides = corpus.monolingual() ? 1 : 2;
  std::vector<std::string> lines;
  PairBuffers buffers;
  for (const size_t index : sample_indices(sides * pairs, options.max_sentences, options.seed)) {
    const PairView pair = corpus.view(static_cast<int64_t>(index % pairs), buffers);
    lines.emplace_back(sides == 2 && index < pairs ? pair.source : pair.target);
  }
  return Tokenizer::train(std::span<const std::string>(lines), options);
}

}  // namespace trafo
