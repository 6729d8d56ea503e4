// Padding-free batches of a fixed token budget over a tokenised parallel corpus, in a reproducible
// shuffled order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/text/corpus.h"
#include "engine/text/tokenizer.h"

namespace trafo {

// encoder_decoder: source </s> to the encoder; start target to the decoder, which predicts target
// </s>. decoder_only: one stream `source <eos> target <eos>`, loss on the target and its final
// <eos> only.
enum class SequenceForm { encoder_decoder, decoder_only };

struct TokenizedCorpusOptions {
  SequenceForm form = SequenceForm::encoder_decoder;
  // Longest source and longest target with their </s> (encoder_decoder), or longest input stream,
  // that is source + target + 1 (decoder_only); longer pairs are dropped and counted in
  // report().dropped_long.
  int32_t max_length = 256;
  int32_t batch_tokens =
      4096;  // pairs that fit no batch of this budget are dropped and counted as well
};

// Token ids of all pairs in two flat arrays. Source and target both end with </s>.
class TokenizedCorpus {
 public:
  // num_threads only changes the speed. INVALID_ARGUMENT when nothing is left after dropping.
  TokenizedCorpus(const ParallelCorpus& corpus, const Tokenizer& tokenizer,
                  const TokenizedCorpusOptions& options, int num_threads = 1);
  // From ids made elsewhere, without </s>: pair i is source[source_offsets[i] ..
  // source_offsets[i+1]), same for target. Ids must lie in [0, vocab_size).
  TokenizedCorpus(std::span<const int32_t> source, std::span<const int64_t> source_offsets,
                  std::span<const int32_t> target, std::span<const int64_t> target_offsets,
                  int32_t vocab_size, int32_t eos_id, const TokenizedCorpusOptions& options);

  int64_t size() const noexcept { return static_cast<int64_t>(pair_.size()); }
  std::span<const int32_t> source(int64_t index) const;  // with </s>
  std::span<const int32_t> target(int64_t index) const;  // with </s>
  int64_t pair(int64_t index) const {
    return pair_[static_cast<size_t>(index)];
  }  // index before dropping
  int64_t source_tokens() const noexcept { return static_cast<int64_t>(source_ids_.size()); }
  int64_t target_tokens() const noexcept { return static_cast<int64_t>(target_ids_.size()); }
  const CorpusReport& report() const noexcept { return report_; }
  const TokenizedCorpusOptions& options() const noexcept { return options_; }
  // Hash of ids, boundaries and form: a checkpoint keeps it, to notice that the corpus changed
  // before continuing.
  uint64_t fingerprint() const noexcept { return fingerprint_; }

 private:
  void add(std::span<const int32_t> source, std::span<const int32_t> target, int32_t eos_id,
           int64_t pair);
  void finish();

  TokenizedCorpusOptions options_;
  std::vector<int32_t> source_ids_, target_ids_;
  std::vector<int64_t> source_offsets_{0}, target_offsets_{0};
  std::vector<int64_t> pair_;
  CorpusReport report_;
  uint64_t fingerprint_ = 0;
};

// n sentences packed without padding; sentence i owns [cu_seqlens[i], cu_seqlens[i+1]).
// decoder_only leaves the source arrays empty (source_cu_seqlens too) and puts the input stream
// into target_in.
struct PackedBatchHost {
  std::vector<int32_t> source_ids, source_positions;  // [source tokens]
  std::vector<int32_t> source_cu_seqlens;             // [n + 1]
  std::vector<int32_t> target_in;                     // [target tokens]: what the decoder reads
  std::vector<int32_t> target_out;                    // [target tokens]: what it has to predict
  std::vector<int32_t> target_positions;              // [target tokens]
  std::vector<int32_t> target_cu_seqlens;             // [n + 1]
  std::vector<float> target_weights;  // [target tokens], 0 or 1; empty (encoder_decoder): all 1
  std::vector<int64_t> sentence_ids;  // [n]: index in the TokenizedCorpus
  int32_t max_source_len = 0;
  int32_t max_target_len = 0;
  int64_t label_count = 0;  // predictions that count: the sum of the weights
  int64_t epoch = 0;        // counted from 0
  int64_t index = 0;        // of the batch in its epoch
  bool last_in_epoch = false;

  int64_t sentences() const noexcept { return static_cast<int64_t>(sentence_ids.size()); }
};

struct BatcherOptions {
  uint64_t seed = 1;
  int32_t start_id = 1;  // first decoder input of encoder_decoder (bos, or eos as Marian has it)
  bool shuffle = true;   // false: sorted by length, the same in every epoch (validation, scoring)
  // Sentences sorted by length together: 0 is the whole corpus (ties in random order), else windows
  // of so many shuffled sentences.
  int64_t sort_window = 0;
  int64_t batch_tokens = 0;  // 0: the corpus's; else at least the longest pair
};

// Tokens that the encoder and the decoder read.
struct BatchExtent {
  int64_t sentences = 0;
  int64_t source_tokens = 0, target_tokens = 0;
  int64_t longest_source = 0, longest_target = 0;
};

// Position in the endless sequence of batches. Saved in checkpoints.
struct BatcherState {
  uint64_t seed = 1;
  int64_t epoch = 0;
  int64_t next_batch = 0;  // index in the epoch
  bool operator==(const BatcherState&) const = default;
};

// Endless sequence of batches, a pure function of corpus, options and state. A batch has at most
// options().batch_tokens target tokens and at most twice as many source tokens. The corpus must
// outlive the batcher.
class Batcher {
 public:
  Batcher(const TokenizedCorpus& corpus, const BatcherOptions& options);

  void next(PackedBatchHost& batch);  // reuses the batch's storage
  BatcherState state() const noexcept { return state_; }
  // The following batches are those that followed when state() returned this. INVALID_ARGUMENT if
  // out of range.
  void seek(const BatcherState& state);
  int64_t batches_in_epoch() const noexcept;  // of the epoch state().epoch
  // The sizes that the batches of this epoch would have with another budget, or have.
  std::vector<BatchExtent> extents(int64_t batch_tokens) const;
  int64_t batch_tokens() const noexcept;

 private:
  void plan_epoch();
  BatchExtent extent(int64_t sentence) const;
  template <class Batch>  // batch(first, past, extent): positions in order_
  void divide(int64_t budget, Batch batch) const;
  void pack(std::span<const int64_t> sentences, PackedBatchHost& batch) const;

  const TokenizedCorpus* corpus_;
  BatcherOptions options_;
  BatcherState state_;
  std::vector<int64_t> order_;   // sentences of the planned epoch
  std::vector<int64_t> begins_;  // batch b is order_[begins_[b] .. begins_[b+1])
  std::vector<int64_t> batch_order_;
};

// The same sequence, prepared ahead on one own thread, which starts with the first next(). One
// consumer thread.
class PrefetchingBatcher {
 public:
  PrefetchingBatcher(const TokenizedCorpus& corpus, const BatcherOptions& options,
                     size_t queue_depth = 4);
  ~PrefetchingBatcher();
  PrefetchingBatcher(const PrefetchingBatcher&) = delete;
  PrefetchingBatcher& operator=(const PrefetchingBatcher&) = delete;

  // Rethrows what the preparing thread met.
  void next(PackedBatchHost& batch);
  BatcherState state() const noexcept { return state_; }  // behind the last batch handed out
  void seek(const BatcherState& state);
  int64_t batches_in_epoch() const noexcept { return batches_in_epoch_; }  // of state().epoch

 private:
  struct Slot {
    PackedBatchHost batch;
    BatcherState state_after;
    int64_t batches_in_epoch_after = 0;
  };
  void run();
  void stop() noexcept;

  Batcher batcher_;  // the preparing thread's while it runs
  std::vector<Slot> slots_;
  BatcherState state_;
  int64_t batches_in_epoch_;

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t head_ = 0;    // first full slot
  size_t filled_ = 0;  // full slots
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace trafo
