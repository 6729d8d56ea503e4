// A corpus as token ids in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/core/cancel.h"
#include "engine/data/encode_pairs.h"
#include "engine/data/pair_source.h"
#include "engine/data/text_corpus.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

// The token ids of all pairs in two flat arrays. Sources and targets of text have the
// frame of their encoding.
class TokenizedCorpus final : public PairSource {
 public:
  // num_threads only changes the speed. INVALID_ARGUMENT: no pair is left after dropping; of
  // encode_pairs(). CANCELLED.
  TokenizedCorpus(const TextCorpus& corpus, const PairEncoding& encoding,
                  const TokenizedCorpusOptions& options, int num_threads = 1,
                  const CancelToken* cancel = nullptr);
  // From token ids without </s>, 0 to vocab_size - 1. The source of pair i is
  // source[source_offsets[i]] to source[source_offsets[i+1] - 1]; targets and the rejected answers
  // of preference pairs, if there are any, have the same form.
  TokenizedCorpus(std::span<const int32_t> source, std::span<const int64_t> source_offsets,
                  std::span<const int32_t> target, std::span<const int64_t> target_offsets,
                  int32_t vocab_size, int32_t eos_id, const TokenizedCorpusOptions& options,
                  std::span<const int32_t> rejected = {},
                  std::span<const int64_t> rejected_offsets = {});

  int64_t size() const noexcept { return static_cast<int64_t>(pair_.size()); }
  // With what comes around them.
  std::span<const int32_t> source(int64_t index) const { return source_.of(index); }
  std::span<const int32_t> target(int64_t index) const { return target_.of(index); }
  std::span<const int32_t> rejected(int64_t index) const {  // empty without preferences
    return preferences() ? rejected_.of(index) : std::span<const int32_t>();
  }
  // See PairTokens::learned.
  std::span<const uint8_t> learned(int64_t index) const;
  // The number of the pair before dropping.
  int64_t pair(int64_t index) const { return pair_[static_cast<size_t>(index)]; }
  int64_t target_tokens() const noexcept { return static_cast<int64_t>(target_.ids.size()); }

  int64_t draws(int64_t epoch) const override { return epochs_.draws(epoch); }
  void read(std::span<const uint32_t> draws, int64_t epoch, PairBlock& block,
            const std::atomic<bool>* stop) const override;

 private:
  void add(const PairTokens& subwords, const PairFrame& frame, bool identical);
  void finish();
  void hash_ids();

  EpochMix epochs_;
  // A text of each pair, one after the other.
  struct Side {
    std::vector<int32_t> ids;
    std::vector<int64_t> offsets{0};
    void add(std::span<const int32_t> subwords, std::optional<int32_t> end,
             std::optional<int32_t> begin = {});
    std::span<const int32_t> of(int64_t index) const;
  };
  Side source_, target_, rejected_;  // rejected_: of preference pairs
  std::vector<uint8_t> learned_;     // of conversations: as target_.ids
  std::vector<int64_t> pair_;
  std::vector<int32_t> index_;  // by number before dropping; -1: dropped
};

}  // namespace trafo
