// Where a batcher takes its pairs of token sequences from.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/data/corpus.h"

namespace trafo {

// encoder_decoder: source </s> to the encoder; start target to the decoder, which predicts target
// </s>. decoder_only: one stream `source <eos> target <eos>`, loss on the target and its final
// <eos> only; of monolingual text `<eos> text <eos>`, loss on all that follows the first.
enum class SequenceForm { encoder_decoder, decoder_only };

struct TokenizedCorpusOptions {
  SequenceForm form = SequenceForm::encoder_decoder;
  // Longest source and longest target with their </s> (encoder_decoder), or longest input stream,
  // that is source + target + 1 (decoder_only); longer pairs are dropped and counted.
  int32_t max_length = 256;
  int32_t batch_tokens =
      4096;  // pairs that fit no batch of this budget are dropped and counted as well
  // Pairs with a side of more than so many times the pieces of the other are dropped; 0: any.
  double max_length_ratio = 0;
  bool drop_identical = false;  // pairs whose sides are the same
};
// Throws INVALID_ARGUMENT naming the field.
void check_options(const TokenizedCorpusOptions& options);

// Pairs that were left out when they were cut into pieces.
struct PairDrops {
  int64_t empty = 0, too_long = 0, ratio = 0, identical = 0;
  int64_t total() const noexcept { return empty + too_long + ratio + identical; }
  PairDrops& operator+=(const PairDrops& other) noexcept;
  bool operator==(const PairDrops&) const = default;
};

// Whether a pair of so many pieces, without </s>, is trained on; if not, counts it.
bool keep_pair(const TokenizedCorpusOptions& options, bool monolingual, size_t source_pieces,
               size_t target_pieces, bool identical, PairDrops& drops);

// With </s>; both empty: left out.
struct PairTokens {
  std::span<const int32_t> source, target;
};

struct PairBlock {
  std::vector<int64_t> ids;  // of pairs, before any is dropped
  std::vector<PairTokens> tokens;
  std::vector<std::vector<int32_t>> storage;  // what tokens point into, unless into the source
  // Of this block; those known from the beginning are in report() instead.
  PairDrops dropped;
};

// Immutable; read() may be called by several threads at once.
class PairSource {
 public:
  virtual ~PairSource() = default;
  // How many draws epoch `epoch` (from 0) is a permutation of.
  virtual int64_t draws(int64_t epoch) const = 0;
  // Appends these draws of an epoch, in their order. A function of source, epoch and draws; `stop`,
  // if not null, abandons the work when it becomes true.
  virtual void read(std::span<const uint32_t> draws, int64_t epoch, PairBlock& block,
                    const std::atomic<bool>* stop) const = 0;
  // Whether read() works so long that it is worth doing ahead.
  virtual bool is_slow() const noexcept { return false; }
  // Whether the pairs' pieces differ from epoch to epoch.
  virtual bool varies() const noexcept { return false; }

  // Its pairs are those kept, as far as that is known before they are read.
  const CorpusReport& report() const noexcept { return report_; }
  const TokenizedCorpusOptions& options() const noexcept { return options_; }
  // A checkpoint keeps it, to notice that the corpus changed before continuing.
  uint64_t fingerprint() const noexcept { return fingerprint_; }

 protected:
  TokenizedCorpusOptions options_;
  CorpusReport report_;
  uint64_t fingerprint_ = 0;
};

}  // namespace trafo
