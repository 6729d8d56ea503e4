#include "engine/data/encode_pairs.h"

#include "engine/core/parallel_chunks.h"

namespace trafo {

std::vector<EncodedPair> encode_pairs(const TextCorpus& corpus, const Tokenizer& tokenizer,
                                      int64_t count, const std::function<int64_t(int64_t)>& pair_of,
                                      const Encoder& encoder, int num_threads,
                                      const std::atomic<bool>* stop) {
  std::vector<EncodedPair> pairs(static_cast<size_t>(count));
  constexpr int64_t kChunk = 128;
  const auto encode_side = [&](std::string_view text, int side, int64_t i,
                               std::vector<int32_t>& ids) {
    if (encoder)
      encoder(text, side, i, ids);
    else
      tokenizer.encode(text, ids);
  };
  const auto work = [&](int64_t begin, int64_t end) {
    PairBuffers buffers;
    for (int64_t i = begin; i < end; ++i) {
      EncodedPair& pair = pairs[static_cast<size_t>(i)];
      const PairView text = corpus.view(pair_of(i), buffers);
      if (!corpus.monolingual()) encode_side(text.source, 0, i, pair.source);
      encode_side(text.target, 1, i, pair.target);
      const bool preferences = corpus.form() == CorpusForm::preferences;
      if (preferences) encode_side(text.rejected, 2, i, pair.rejected);
      pair.identical = text.target == (preferences ? text.rejected : text.source);
    }
  };
  parallel_chunks(count, kChunk, num_threads, work, stop);
  return pairs;
}

}  // namespace trafo
