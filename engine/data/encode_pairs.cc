#include "engine/data/encode_pairs.h"

#include <algorithm>
#include <exception>
#include <thread>

namespace trafo {

std::vector<EncodedPair> encode_pairs(const TextCorpus& corpus, const Tokenizer& tokenizer,
                                      int64_t count, const std::function<int64_t(int64_t)>& pair_of,
                                      const Encoder& encoder, int num_threads,
                                      const std::atomic<bool>* stop) {
  std::vector<EncodedPair> pairs(static_cast<size_t>(count));
  constexpr int64_t kChunk = 128;
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  const auto workers =
      static_cast<size_t>(std::clamp<int64_t>(num_threads, 1, std::max<int64_t>(chunks, 1)));
  std::atomic<int64_t> next_chunk{0};
  std::vector<std::exception_ptr> errors(workers);
  const auto encode_side = [&](std::string_view text, int side, int64_t i,
                               std::vector<int32_t>& ids) {
    if (encoder)
      encoder(text, side, i, ids);
    else
      tokenizer.encode(text, ids);
  };
  const auto work = [&](size_t worker) {
    try {
      PairBuffers buffers;
      for (int64_t chunk; (chunk = next_chunk.fetch_add(1)) < chunks;) {
        if (stop != nullptr && stop->load(std::memory_order_relaxed)) return;
        for (int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
          EncodedPair& pair = pairs[static_cast<size_t>(i)];
          const PairView text = corpus.view(pair_of(i), buffers);
          if (!corpus.monolingual()) encode_side(text.source, 0, i, pair.source);
          encode_side(text.target, 1, i, pair.target);
          pair.identical = text.source == text.target;
        }
      }
    } catch (...) {
      errors[worker] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t worker = 1; worker < workers; ++worker) threads.emplace_back(work, worker);
    work(0);
  }
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return pairs;
}

}  // namespace trafo
