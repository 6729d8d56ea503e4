#include "engine/data/batcher.h"

#include <algorithm>
#include <numeric>

#include "engine/core/argument_error.h"
#include "engine/core/library_thread.h"
#include "engine/core/numeric/shuffle.h"
#include "engine/core/status.h"
#include "engine/data/batch_packer.h"
#include "engine/data/long_text.h"

namespace trafo {
namespace {

constexpr std::string_view kBatcherOrigin = "batcher";
// Draws to read at a time when the end of a window depends on their lengths.
constexpr int64_t kReadAtATime = 1024;
// Long texts: the draws to read before anything is known of their lengths, and the tokens that a
// window of the batcher has at most, one text more or less: 256 MiB of ids.
constexpr int64_t kFirstTexts = 128, kMostTextTokens = int64_t{1} << 26;

// Makes a row of each answer.
void split_answers(PairBlock& block) {
  for (size_t i = 0, pairs = block.tokens.size(); i < pairs; ++i) {
    PairTokens& pair = block.tokens[i];
    if (pair.target.empty() || pair.rejected.empty()) continue;
    const PairTokens second{pair.source, {}, pair.rejected};
    pair.rejected = {};
    block.tokens.push_back(second);
    block.ids.push_back(block.ids[i]);
  }
}

}  // namespace

Batcher::Batcher(const PairSource& corpus, const BatcherOptions& options)
    : corpus_(&corpus), options_(options), state_{} {
  require_argument(options.sort_window >= 0, kBatcherOrigin, "sort_window", " is ",
                   options.sort_window,
                   ", it must be 0 (the whole corpus) or a number of sentences");
  require_argument(options.maxi_batch >= 0, kBatcherOrigin, "maxi_batch", " is ",
                   options.maxi_batch, ", it must be 0 (no such limit) or a number of batches");
  require(options.lanes >= 1 && options.own.begin >= 0 && options.own.end <= options.lanes,
          ErrorCode::invalid_argument, kBatcherOrigin, "lanes ", options.own.begin, " to ",
          options.own.end, " are not among ", options.lanes);
  open_epoch(options.seed, 0);
}

Batcher::~Batcher() {
  drop_ahead();
}

int64_t Batcher::batch_tokens() const noexcept {
  return options_.batch_tokens > 0 ? options_.batch_tokens : corpus_->options().batch_tokens;
}

double Batcher::epoch_fraction() const noexcept {
  const auto part = static_cast<double>(state_.next_in_window) /
                    static_cast<double>(std::max<int64_t>(1, window_.batches()));
  const auto draws = static_cast<double>(window_.end - window_.begin);
  return (static_cast<double>(window_.begin) + part * draws) / static_cast<double>(epoch_draws());
}

void Batcher::restart(int64_t batch_tokens) {
  drop_ahead();
  options_.batch_tokens = batch_tokens;
  open_epoch(options_.seed, 0);
}

int64_t Batcher::decoded(std::span<const int32_t> source, std::span<const int32_t> target) const {
  return stream_tokens(corpus_->options().form, std::ssize(source), std::ssize(target));
}

BatchExtent Batcher::extent(const PairTokens& pair) const {
  const bool has_encoder = corpus_->options().form == SequenceForm::encoder_decoder;
  const int64_t encoded = has_encoder ? std::ssize(pair.source) : 0;
  if (answers_apart()) {
    // Other answers make a sentence longer or shorter, but not the batch: each is there once.
    BatchExtent sum;
    for (const std::span<const int32_t> answer : {pair.target, pair.rejected}) {
      if (answer.empty()) continue;
      sum.sentences += 2;
      sum.source_tokens += 2 * encoded;
      sum.target_tokens += 2 * decoded(pair.source, answer);
      sum.longest_source = encoded;
      sum.longest_target = corpus_->options().max_length;
    }
    return sum;
  }
  const int64_t target = decoded(pair.source, pair.target);
  if (pair.rejected.empty()) return {1, encoded, target, encoded, target};
  const int64_t rejected = decoded(pair.source, pair.rejected);
  return {2, 2 * encoded, target + rejected, encoded, std::max(target, rejected)};
}

void Batcher::read(std::span<const uint32_t> draws, PairBlock& block,
                   const std::atomic<bool>* stop) const {
  const size_t before = block.tokens.size();
  corpus_->read(draws, draws_epoch_, block, stop);
  if (!options_.rejected)
    for (size_t i = before; i < block.tokens.size(); ++i) block.tokens[i].rejected = {};
}

template <class Batch>
void Batcher::divide(const Window& window, int64_t budget, Batch batch) const {
  BatchExtent sum;
  int64_t begin = 0;
  const auto size = static_cast<int64_t>(window.order.size());
  for (int64_t i = 0; i < size; ++i) {
    const BatchExtent next = extent(window.pairs.tokens[window.order[static_cast<size_t>(i)]]);
    if (i > begin && (sum.target_tokens + next.target_tokens > budget ||
                      sum.source_tokens + next.source_tokens > 2 * budget)) {
      batch(begin, i, sum);
      begin = i;
      sum = {};
    }
    sum.sentences += next.sentences;
    sum.source_tokens += next.source_tokens;
    sum.target_tokens += next.target_tokens;
    sum.longest_source = std::max(sum.longest_source, next.longest_source);
    sum.longest_target = std::max(sum.longest_target, next.longest_target);
  }
  batch(begin, size, sum);
}

std::vector<BatchExtent> Batcher::extents(int64_t batch_tokens) const {
  std::vector<BatchExtent> all;
  divide(window_, batch_tokens,
         [&](int64_t, int64_t, const BatchExtent& extent) { all.push_back(extent); });
  return all;
}

void Batcher::plan_epoch(uint64_t seed, int64_t epoch) {
  if (draws_epoch_ == epoch && draws_seed_ == seed) return;
  draws_.resize(static_cast<size_t>(corpus_->draws(epoch)));
  std::iota(draws_.begin(), draws_.end(), 0u);
  first_window_rng_ = ShuffleRng(seed, static_cast<uint64_t>(epoch));
  if (options_.shuffle) first_window_rng_.shuffle(draws_);
  draws_seed_ = seed;
  draws_epoch_ = epoch;
}

// The window of draws_ that begins at `begin`, and nothing of it if there is nothing to train on.
Batcher::Window Batcher::make_window(int64_t begin, const std::atomic<bool>* stop) const {
  Window window;
  window.epoch = draws_epoch_;
  window.begin = window.end = begin;
  const int64_t size = epoch_draws();
  const int64_t limit =
      options_.sort_window == 0 ? size : std::min(size, begin + options_.sort_window);
  const TokenizedCorpusOptions& lengths = corpus_->options();
  const bool cuts = lengths.window_stride > 0;
  // Rows of long texts count, and not the texts.
  const int64_t most_rows = options_.sort_window == 0 ? INT64_MAX : options_.sort_window;
  int64_t enough = options_.maxi_batch == 0 ? INT64_MAX : options_.maxi_batch * batch_tokens();
  if (cuts && options_.sort_window > 0) enough = std::min(enough, kMostTextTokens);
  int64_t tokens = 0, rows = 0;
  while (window.end < limit && tokens < enough && rows < most_rows) {
    int64_t count = limit - window.end;
    if (enough < INT64_MAX) {
      int64_t most = kReadAtATime;
      if (cuts && tokens <= 0) most = kFirstTexts;
      // As many texts like those so far as are missing.
      if (cuts && tokens > 0) {
        const int64_t texts = window.end - begin;
        most = std::clamp(std::min((enough - tokens) / (tokens / texts + 1),
                                   (most_rows - rows) / (rows / texts + 1)),
                          int64_t{1}, most);
      }
      count = std::min(count, most);
    }
    const size_t before = window.pairs.tokens.size(), stored = window.pairs.storage.size(),
                 marked = window.pairs.marks.size();
    const PairDrops drops = window.pairs.dropped;
    read(std::span(draws_).subspan(static_cast<size_t>(window.end), static_cast<size_t>(count)),
         window.pairs, stop);
    if (stop != nullptr && stop->load()) return window;
    size_t used = before;
    while (used < window.pairs.tokens.size() && tokens < enough && rows < most_rows) {
      const PairTokens& pair = window.pairs.tokens[used++];
      const int64_t windows = windows_of(lengths, std::ssize(pair.source), std::ssize(pair.target));
      rows += windows;
      // All windows but the first read tokens of the one before again.
      tokens +=
          extent(pair).target_tokens + (windows - 1) * (lengths.max_length - lengths.window_stride);
    }
    if (used < window.pairs.tokens.size()) {
      // Read too far. Pairs that were dropped after the end are counted in the next window, so read
      // this window again up to its end.
      window.pairs.tokens.resize(before);
      window.pairs.ids.resize(before);
      window.pairs.storage.resize(stored);
      window.pairs.marks.resize(marked);
      window.pairs.dropped = drops;
      read(std::span(draws_).subspan(static_cast<size_t>(window.end), used - before), window.pairs,
           stop);
    }
    window.end += static_cast<int64_t>(used - before);
  }
  if (cuts) cut_long_texts(lengths, window.pairs);
  if (answers_apart()) split_answers(window.pairs);
  std::vector<uint32_t>& order = window.order;
  for (size_t i = 0; i < window.pairs.tokens.size(); ++i)
    if (const PairTokens& pair = window.pairs.tokens[i];
        !pair.target.empty() || !pair.rejected.empty())
      order.push_back(static_cast<uint32_t>(i));
  if (order.empty()) return window;
  // So that windows of one text, which have the same length, do not share their batches.
  if (cuts && options_.shuffle)
    ShuffleRng(mix_bits(mix_bits(draws_seed_ + 1) ^ static_cast<uint64_t>(begin)),
               static_cast<uint64_t>(draws_epoch_))
        .shuffle(order);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return extent(window.pairs.tokens[a]).target_tokens <
           extent(window.pairs.tokens[b]).target_tokens;
  });
  window.begins.assign(1, 0);
  divide(window, batch_tokens(),
         [&](int64_t, int64_t past, const BatchExtent&) { window.begins.push_back(past); });
  window.batch_order.resize(window.begins.size() - 1);
  std::iota(window.batch_order.begin(), window.batch_order.end(), 0u);
  if (options_.shuffle) {
    // The first window continues the random stream of the epoch's shuffle. Others have a separate
    // stream, because they must not depend on the number of batches before them.
    ShuffleRng rng = begin == 0 ? first_window_rng_
                                : ShuffleRng(mix_bits(draws_seed_ ^ static_cast<uint64_t>(begin)),
                                             static_cast<uint64_t>(draws_epoch_));
    rng.shuffle(window.batch_order);
  }
  return window;
}

void Batcher::drop_ahead() noexcept {
  if (!ahead_.valid()) return;
  stop_ahead_ = true;
  ahead_.wait();
  ahead_ = {};
  stop_ahead_ = false;
}

void Batcher::look_ahead() {
  if (!corpus_->is_slow() || window_.end >= epoch_draws()) return;
  ahead_ = start_task([this, begin = window_.end] { return make_window(begin, &stop_ahead_); });
}

bool Batcher::open_window(int64_t begin) {
  while (begin < epoch_draws()) {
    window_ = ahead_.valid() ? ahead_.get() : make_window(begin, nullptr);
    if (window_.batches() > 0) {
      look_ahead();
      return true;
    }
    state_.drops += window_.pairs.dropped;
    begin = window_.end;
  }
  return false;
}

void Batcher::open_epoch(uint64_t seed, int64_t epoch) {
  plan_epoch(seed, epoch);
  state_ = {};
  state_.seed = seed;
  state_.epoch = epoch;
  require(open_window(0), ErrorCode::invalid_argument, kBatcherOrigin,
          "no sentence pair is left to train on: of ", epoch_draws(), " of epoch ", epoch + 1, ", ",
          state_.drops.too_long, " are longer than ", corpus_->options().max_length,
          " tokens or than a batch, ", state_.drops.ratio, " differ too much in length, ",
          state_.drops.identical, " ", is_identical(corpus_->preferences()), " and ",
          state_.drops.empty, " have an empty side");
  state_.window = window_.begin;
}

void Batcher::seek(const BatcherState& state) {
  require(state.epoch >= 0 && state.next_batch >= 0 && state.next_in_window >= 0,
          ErrorCode::invalid_argument, kBatcherOrigin, "epoch ", state.epoch, ", batch ",
          state.next_batch, " is no position: below 0");
  const BatcherState old = state_;
  const auto go = [this](const BatcherState& to) {
    if (to.seed != draws_seed_ || to.epoch != draws_epoch_ || to.window != window_.begin ||
        window_.epoch != to.epoch) {
      drop_ahead();
      plan_epoch(to.seed, to.epoch);
      state_ = to;
      require(to.window >= 0 && to.window < epoch_draws() && open_window(to.window) &&
                  window_.begin == to.window,
              ErrorCode::invalid_argument, kBatcherOrigin, "no batch begins at pair ", to.window,
              " of epoch ", to.epoch);
    }
    state_ = to;
    require(to.next_in_window < window_.batches(), ErrorCode::invalid_argument, kBatcherOrigin,
            "batch ", to.next_batch, " of epoch ", to.epoch, " does not exist, this corpus gives ",
            window_.batches(), " batches from pair ", to.window, " on");
  };
  require(state.next_batch >= state.next_in_window &&
              (state.window > 0 || state.next_batch == state.next_in_window),
          ErrorCode::invalid_argument, kBatcherOrigin, "batch ", state.next_batch, " of epoch ",
          state.epoch, " is not batch ", state.next_in_window, " from pair ", state.window, " on");
  try {
    go(state);
  } catch (...) {
    go(old);
    throw;
  }
}

void Batcher::next(PackedBatchHost& batch) {
  const auto b =
      static_cast<size_t>(window_.batch_order[static_cast<size_t>(state_.next_in_window)]);
  const auto begin = static_cast<size_t>(window_.begins[b]);
  const auto end = static_cast<size_t>(window_.begins[b + 1]);
  const BatcherState before = state_;
  const auto places = std::span(window_.order).subspan(begin, end - begin);
  if (options_.own.contains(state_.next_batch % options_.lanes))
    pack(window_, places, batch);
  else
    count(window_, places, batch);
  batch.epoch = state_.epoch;
  batch.index = state_.next_batch;
  batch.last_in_epoch = false;
  batch.epoch_drops = {};
  ++state_.next_batch;
  if (++state_.next_in_window < window_.batches()) return;
  try {
    state_.drops += window_.pairs.dropped;
    if (window_.end < epoch_draws() && open_window(window_.end)) {
      state_.window = window_.begin;
      state_.next_in_window = 0;
      return;
    }
    batch.last_in_epoch = true;
    batch.epoch_drops = state_.drops;
    open_epoch(state_.seed, state_.epoch + 1);
  } catch (...) {
    state_ = before;
    throw;
  }
}

std::vector<Batcher::LabelledRow> Batcher::labelled_rows(const Window& window,
                                                         std::span<const uint32_t> places) const {
  std::vector<LabelledRow> rows;
  for (const bool desirable : {true, false})
    for (const uint32_t place : places) {
      const PairTokens& pair = window.pairs.tokens[place];
      const auto answer = desirable ? pair.target : pair.rejected;
      if (!answer.empty())
        rows.push_back({pair.source, answer, {}, desirable, window.pairs.ids[place]});
    }
  std::span<const int32_t> other = rows.back().answer;
  if (rows.size() == 1 && window.order.size() > 1) {
    const uint32_t* const place = places.data();
    const PairTokens& beside =
        window.pairs.tokens[place == window.order.data() ? place[1] : place[-1]];
    other = beside.target.empty() ? beside.rejected : beside.target;
  }
  const auto most = static_cast<size_t>(corpus_->options().max_length);
  for (LabelledRow& row : rows) {
    const auto more = static_cast<size_t>(decoded(row.source, {}));  // in front of the answer
    row.other = other.first(std::min(other.size(), most - more));
    other = row.answer;
  }
  return rows;
}

void Batcher::pack(const Window& window, std::span<const uint32_t> places,
                   PackedBatchHost& batch) const {
  const TokenizedCorpusOptions& corpus = corpus_->options();
  BatchPacker packer(batch, corpus.form, options_.start_id);
  if (answers_apart()) {
    for (const LabelledRow& row : labelled_rows(window, places))
      packer.add_labelled(row.source, row.answer, row.other, row.desirable, row.pair);
    return;
  }
  for (const uint32_t place : places) {
    const auto [source, target, rejected, learned] = window.pairs.tokens[place];
    const int64_t pair = window.pairs.ids[place];
    if (corpus.form == SequenceForm::masked)
      packer.add_masked(source, target, pair, corpus.masking,
                        mix_bits(state_.seed + static_cast<uint64_t>(pair)),
                        static_cast<uint64_t>(window.epoch));
    else if (rejected.empty())
      packer.add(source, target, pair, learned);
    else
      packer.add_answers(source, target, rejected, pair);
  }
}

void Batcher::count(const Window& window, std::span<const uint32_t> places,
                    PackedBatchHost& batch) const {
  const BatchPacker packer(batch, corpus_->options().form, options_.start_id);  // empties it
  BatchCounts counts;
  if (answers_apart()) {
    for (const LabelledRow& row : labelled_rows(window, places)) {
      counts.sentences += 2;
      if (corpus_->options().form == SequenceForm::encoder_decoder)
        counts.source_tokens += 2 * std::ssize(row.source);
      counts.target_tokens += decoded(row.source, row.answer) + decoded(row.source, row.other);
      batch.label_count += std::ssize(row.answer);
    }
    batch.elsewhere = counts;
    return;
  }
  for (const uint32_t place : places) {
    const PairTokens& pair = window.pairs.tokens[place];
    const BatchExtent size = extent(pair);
    counts.sentences += size.sentences;
    counts.source_tokens += size.source_tokens;
    counts.target_tokens += size.target_tokens;
    const TokenizedCorpusOptions& corpus = corpus_->options();
    batch.label_count += corpus.form == SequenceForm::masked
                             ? masked_count(corpus.masking, pair.target)
                             : pair.labels();
  }
  batch.elsewhere = counts;
}

PrefetchingBatcher::PrefetchingBatcher(const PairSource& corpus, const BatcherOptions& options,
                                       size_t queue_depth)
    : PrefetchingBatcher(std::make_unique<Batcher>(corpus, options), queue_depth) {}

PrefetchingBatcher::PrefetchingBatcher(std::unique_ptr<Batcher> batcher, size_t queue_depth)
    : batcher_(std::move(batcher)),
      slots_(queue_depth),
      state_(batcher_->state()),
      epoch_fraction_(batcher_->epoch_fraction()) {
  require_argument(queue_depth >= 1 && queue_depth <= 1024, kBatcherOrigin, "queue_depth", " is ",
                   queue_depth, ", it must lie between 1 and 1024");
}

PrefetchingBatcher::~PrefetchingBatcher() {
  stop();
}

void PrefetchingBatcher::stop() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  stopping_ = false;
  head_ = filled_ = 0;
  error_ = nullptr;
}

void PrefetchingBatcher::run() {
  try {
    while (true) {
      Slot* slot = nullptr;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stopping_ || filled_ < slots_.size(); });
        if (stopping_) return;
        slot = &slots_[(head_ + filled_) % slots_.size()];
      }
      batcher_->next(slot->batch);
      slot->state_after = batcher_->state();
      slot->epoch_fraction_after = batcher_->epoch_fraction();
      {
        const std::lock_guard lock(mutex_);
        ++filled_;
      }
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

void PrefetchingBatcher::next(PackedBatchHost& batch) {
  if (!thread_.joinable()) thread_ = start_thread([this] { run(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return filled_ > 0 || error_ != nullptr; });
  if (filled_ == 0) std::rethrow_exception(error_);
  Slot& slot = slots_[head_];
  std::swap(batch, slot.batch);  // the caller's storage is reused for a later batch
  state_ = slot.state_after;
  epoch_fraction_ = slot.epoch_fraction_after;
  head_ = (head_ + 1) % slots_.size();
  --filled_;
  lock.unlock();
  changed_.notify_all();
}

void PrefetchingBatcher::seek(const BatcherState& state) {
  stop();
  try {
    batcher_->seek(state);
  } catch (...) {
    batcher_->seek(state_);  // the thread has moved it ahead
    throw;
  }
  state_ = batcher_->state();
  epoch_fraction_ = batcher_->epoch_fraction();
}

}  // namespace trafo
