// Packed batches of a fixed token budget from a tokenised corpus, in a reproducible shuffled order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/core/element_range.h"
#include "engine/core/numeric/shuffle.h"
#include "engine/data/packed_batch.h"
#include "engine/data/pair_source.h"
#include "engine/data/tokenized_corpus.h"

namespace trafo {

struct BatcherOptions {
  uint64_t seed = 1;
  int32_t start_id = 1;  // first decoder input of encoder_decoder (bos, or eos as Marian has it)
  bool shuffle = true;   // false: sorted by length, the same in every epoch (validation, scoring)
  // Number of shuffled sentences in a window. A window is sorted by length (ties in random order)
  // and cut into batches, whose order is random. 0: the whole corpus is one window.
  int64_t sort_window = 0;
  // A window also ends when it fills this many batches; 0: no such limit. Of long texts
  // (long_text.h) the rows count, and a window ends with the text that fills it or, with a
  // sort_window, that makes it 2^26 tokens.
  int64_t maxi_batch = 0;
  int64_t batch_tokens = 0;  // 0: the corpus's; otherwise at least the longest pair
  // Of preference pairs: false leaves the rejected answers out.
  bool rejected = true;
  // Batch i of an epoch is in lane i mod `lanes`. Batches outside lanes `own` are not packed but
  // only counted (PackedBatchHost::elsewhere).
  int64_t lanes = 1;
  ElementRange own{0, 1};
};

// Tokens that the encoder and the decoder read.
struct BatchExtent {
  int64_t sentences = 0;
  int64_t source_tokens = 0, target_tokens = 0;
  int64_t longest_source = 0, longest_target = 0;
};

// Position in the endless sequence of batches. Checkpoints store it.
struct BatcherState {
  uint64_t seed = 1;
  int64_t epoch = 0;
  int64_t next_batch = 0;  // index in the epoch
  // First draw of the current window, and the next batch in it.
  int64_t window = 0;
  int64_t next_in_window = 0;
  PairDrops drops{};  // of the epoch's windows before this one
  bool operator==(const BatcherState&) const = default;
};

// An endless sequence of batches. It depends on corpus, options and state alone. A batch has at
// most options().batch_tokens target tokens and at most twice as many source tokens. A preference
// pair is two sentences of a batch, one after the other: the prompt with the chosen answer, then
// with the rejected one. With TokenizedCorpusOptions::answers_apart, each answer is a row of two
// sentences (BatchPacker::add_labelled): a batch has its chosen answers first, then the rejected
// ones, and the other answer of a row is the one of the row before it, of the first row the last
// one's, cut to max_length. A row alone in its batch has the answer of the row beside it in the
// window. The corpus must outlive the batcher.
class Batcher {
 public:
  Batcher(const PairSource& corpus, const BatcherOptions& options);
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  void next(PackedBatchHost& batch);  // reuses the batch's storage
  BatcherState state() const noexcept { return state_; }
  // Continues with the batches that followed when state() returned this. INVALID_ARGUMENT if out of
  // range.
  void seek(const BatcherState& state);
  // The completed fraction of epoch state().epoch, 0 to 1.
  double epoch_fraction() const noexcept;
  // The sizes of the batches of this window with a given budget.
  std::vector<BatchExtent> extents(int64_t batch_tokens) const;
  int64_t batch_tokens() const noexcept;
  // Starts from the beginning with another budget.
  void restart(int64_t batch_tokens);
  const PairSource& corpus() const noexcept { return *corpus_; }
  bool one_window() const noexcept { return window_.begin == 0 && window_.end == epoch_draws(); }

 private:
  // Consecutive draws of an epoch, sorted and cut into batches.
  struct Window {
    int64_t epoch = 0;
    int64_t begin = 0, end = 0;  // draws
    PairBlock pairs;
    std::vector<uint32_t> order;  // indices in pairs, without the dropped ones
    std::vector<int64_t> begins;  // batch b is order[begins[b] .. begins[b+1])
    std::vector<uint32_t> batch_order;
    int64_t batches() const noexcept { return static_cast<int64_t>(batch_order.size()); }
  };
  int64_t epoch_draws() const noexcept { return static_cast<int64_t>(draws_.size()); }
  void plan_epoch(uint64_t seed, int64_t epoch);
  void open_epoch(uint64_t seed, int64_t epoch);
  bool open_window(int64_t begin);  // of the planned epoch; false: no pair is left from there on
  Window make_window(int64_t begin, const std::atomic<bool>* stop) const;
  void look_ahead();
  void drop_ahead() noexcept;
  void read(std::span<const uint32_t> draws, PairBlock& block, const std::atomic<bool>* stop) const;
  BatchExtent extent(const PairTokens& pair) const;
  template <class Batch>  // batch(first, past, extent): positions in window.order
  void divide(const Window& window, int64_t budget, Batch batch) const;
  bool answers_apart() const noexcept {
    return options_.rejected && corpus_->preferences() && corpus_->options().answers_apart;
  }
  // A labelled answer and an answer to another prompt.
  struct LabelledRow {
    std::span<const int32_t> source, answer, other;
    bool desirable;
    int64_t pair;
  };
  std::vector<LabelledRow> labelled_rows(const Window& window,
                                         std::span<const uint32_t> places) const;
  int64_t decoded(std::span<const int32_t> source, std::span<const int32_t> target) const;
  void pack(const Window& window, std::span<const uint32_t> places, PackedBatchHost& batch) const;
  void count(const Window& window, std::span<const uint32_t> places, PackedBatchHost& batch) const;

  const PairSource* corpus_;
  BatcherOptions options_;
  BatcherState state_;
  std::vector<uint32_t> draws_;  // of the planned epoch, shuffled
  uint64_t draws_seed_ = 0;
  int64_t draws_epoch_ = -1;
  ShuffleRng first_window_rng_{0, 0};  // its state after the shuffle of draws_
  Window window_;
  std::future<Window> ahead_;  // the next window of this epoch, if the corpus is slow
  std::atomic<bool> stop_ahead_{false};
};

// The same sequence, prepared ahead on a thread that starts with the first next(). One consumer
// thread.
class PrefetchingBatcher {
 public:
  PrefetchingBatcher(const PairSource& corpus, const BatcherOptions& options,
                     size_t queue_depth = 4);
  explicit PrefetchingBatcher(std::unique_ptr<Batcher> batcher, size_t queue_depth = 4);
  ~PrefetchingBatcher();
  PrefetchingBatcher(const PrefetchingBatcher&) = delete;
  PrefetchingBatcher& operator=(const PrefetchingBatcher&) = delete;

  // Rethrows an exception of the preparing thread.
  void next(PackedBatchHost& batch);
  BatcherState state() const noexcept {
    return state_;
  }  // after the last batch that next() returned
  void seek(const BatcherState& state);
  double epoch_fraction() const noexcept { return epoch_fraction_; }

 private:
  struct Slot {
    PackedBatchHost batch;
    BatcherState state_after;
    double epoch_fraction_after = 0;
  };
  void run();
  void stop() noexcept;

  std::unique_ptr<Batcher> batcher_;  // owned by the preparing thread while it runs
  std::vector<Slot> slots_;
  BatcherState state_;
  double epoch_fraction_;

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t head_ = 0;    // first full slot
  size_t filled_ = 0;  // full slots
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace trafo
