#include "engine/text/batcher.h"

#include <algorithm>
#include <numeric>

#include "engine/core/status.h"
#include "engine/text/shuffle.h"

namespace trafo {
namespace {

constexpr std::string_view kOrigin = "batcher";

void append(std::span<const int32_t> from, std::vector<int32_t>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

// Ends a sequence of `length` tokens: its positions 0, 1, ... and its boundary.
void end_sequence(size_t length, std::vector<int32_t>& positions, std::vector<int32_t>& cu_seqlens,
                  int32_t& longest) {
  const auto tokens = static_cast<int32_t>(length);
  for (int32_t i = 0; i < tokens; ++i) positions.push_back(i);
  cu_seqlens.push_back(cu_seqlens.back() + tokens);
  longest = std::max(longest, tokens);
}

}  // namespace

Batcher::Batcher(const TokenizedCorpus& corpus, const BatcherOptions& options)
    : corpus_(&corpus), options_(options), state_{options.seed, 0, 0} {
  require(options.sort_window >= 0, ErrorCode::invalid_argument, kOrigin, "sort_window is ",
          options.sort_window, ", it must be 0 (the whole corpus) or a number of sentences");
  plan_epoch();
}

int64_t Batcher::batches_in_epoch() const noexcept {
  return static_cast<int64_t>(begins_.size()) - 1;
}

int64_t Batcher::batch_tokens() const noexcept {
  return options_.batch_tokens > 0 ? options_.batch_tokens : corpus_->options().batch_tokens;
}

BatchExtent Batcher::extent(int64_t sentence) const {
  const auto source = static_cast<int64_t>(corpus_->source(sentence).size());
  const auto target = static_cast<int64_t>(corpus_->target(sentence).size());
  if (corpus_->options().form == SequenceForm::decoder_only)
    return {1, 0, source + target - 1, 0, source + target - 1};
  return {1, source, target, source, target};
}

template <class Batch>
void Batcher::divide(int64_t budget, Batch batch) const {
  BatchExtent sum;
  int64_t begin = 0;
  const auto size = static_cast<int64_t>(order_.size());
  for (int64_t i = 0; i < size; ++i) {
    const BatchExtent next = extent(order_[static_cast<size_t>(i)]);
    if (i > begin && (sum.target_tokens + next.target_tokens > budget ||
                      sum.source_tokens + next.source_tokens > 2 * budget)) {
      batch(begin, i, sum);
      begin = i;
      sum = {};
    }
    ++sum.sentences;
    sum.source_tokens += next.source_tokens;
    sum.target_tokens += next.target_tokens;
    sum.longest_source = std::max(sum.longest_source, next.longest_source);
    sum.longest_target = std::max(sum.longest_target, next.longest_target);
  }
  batch(begin, size, sum);
}

std::vector<BatchExtent> Batcher::extents(int64_t batch_tokens) const {
  std::vector<BatchExtent> all;
  divide(batch_tokens, [&](int64_t, int64_t, const BatchExtent& extent) { all.push_back(extent); });
  return all;
}

void Batcher::plan_epoch() {
  const int64_t size = corpus_->size();
  order_.resize(static_cast<size_t>(size));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  ShuffleRng rng(state_.seed, static_cast<uint64_t>(state_.epoch));
  if (options_.shuffle) rng.shuffle(order_);
  const int64_t window = options_.sort_window == 0 ? size : options_.sort_window;
  for (int64_t begin = 0; begin < size; begin += window)
    std::stable_sort(
        order_.begin() + begin, order_.begin() + std::min(size, begin + window),
        [&](int64_t a, int64_t b) { return extent(a).target_tokens < extent(b).target_tokens; });

  begins_.assign(1, 0);
  divide(batch_tokens(),
         [&](int64_t, int64_t past, const BatchExtent&) { begins_.push_back(past); });
  batch_order_.resize(begins_.size() - 1);
  std::iota(batch_order_.begin(), batch_order_.end(), int64_t{0});
  if (options_.shuffle) rng.shuffle(batch_order_);
}

void Batcher::seek(const BatcherState& state) {
  const BatcherState old = state_;
  require(state.epoch >= 0 && state.next_batch >= 0, ErrorCode::invalid_argument, kOrigin, "epoch ",
          state.epoch, ", batch ", state.next_batch, " is no position: below 0");
  if (state.seed != old.seed || state.epoch != old.epoch) {
    state_ = state;
    plan_epoch();
  }
  const int64_t count = batches_in_epoch();
  if (state.next_batch >= count) {
    state_ = old;
    if (state.seed != old.seed || state.epoch != old.epoch) plan_epoch();
    fail(ErrorCode::invalid_argument, kOrigin, "batch ", state.next_batch, " of epoch ",
         state.epoch, " does not exist, this corpus gives ", count, " batches");
  }
  state_ = state;
}

void Batcher::next(PackedBatchHost& batch) {
  const auto b = static_cast<size_t>(batch_order_[static_cast<size_t>(state_.next_batch)]);
  const auto begin = static_cast<size_t>(begins_[b]);
  const auto end = static_cast<size_t>(begins_[b + 1]);
  pack(std::span(order_).subspan(begin, end - begin), batch);
  batch.epoch = state_.epoch;
  batch.index = state_.next_batch;
  batch.last_in_epoch = state_.next_batch + 1 == batches_in_epoch();
  if (batch.last_in_epoch) {
    state_ = {state_.seed, state_.epoch + 1, 0};
    if (options_.shuffle) plan_epoch();
  } else {
    ++state_.next_batch;
  }
}

void Batcher::pack(std::span<const int64_t> sentences, PackedBatchHost& batch) const {
  for (auto* list :
       {&batch.source_ids, &batch.source_positions, &batch.source_cu_seqlens, &batch.target_in,
        &batch.target_out, &batch.target_positions, &batch.target_cu_seqlens})
    list->clear();
  batch.target_weights.clear();
  batch.sentence_ids.assign(sentences.begin(), sentences.end());
  batch.max_source_len = batch.max_target_len = 0;
  batch.label_count = 0;
  batch.target_cu_seqlens.push_back(0);
  const bool decoder_only = corpus_->options().form == SequenceForm::decoder_only;
  if (!decoder_only) batch.source_cu_seqlens.push_back(0);

  for (const int64_t sentence : sentences) {
    const auto source = corpus_->source(sentence);
    const auto target = corpus_->target(sentence);
    size_t length = target.size();
    if (decoder_only) {
      // Stream s1 .. sn </s> t1 .. tm </s>: read all but the last, predict all but the first; t1 is
      // predicted from the </s> between the two.
      length = source.size() + target.size() - 1;
      append(source, batch.target_in);
      append(target.first(target.size() - 1), batch.target_in);
      append(source.subspan(1), batch.target_out);
      append(target, batch.target_out);
      batch.target_weights.insert(batch.target_weights.end(), source.size() - 1, 0.0f);
      batch.target_weights.insert(batch.target_weights.end(), target.size(), 1.0f);
    } else {
      append(source, batch.source_ids);
      end_sequence(source.size(), batch.source_positions, batch.source_cu_seqlens,
                   batch.max_source_len);
      batch.target_in.push_back(options_.start_id);
      append(target.first(target.size() - 1), batch.target_in);
      append(target, batch.target_out);
    }
    end_sequence(length, batch.target_positions, batch.target_cu_seqlens, batch.max_target_len);
    batch.label_count += static_cast<int64_t>(target.size());
  }
}

PrefetchingBatcher::PrefetchingBatcher(const TokenizedCorpus& corpus, const BatcherOptions& options,
                                       size_t queue_depth)
    : batcher_(corpus, options),
      slots_(queue_depth),
      state_(batcher_.state()),
      batches_in_epoch_(batcher_.batches_in_epoch()) {
  require(queue_depth >= 1 && queue_depth <= 1024, ErrorCode::invalid_argument, kOrigin,
          "queue_depth is ", queue_depth, ", it must lie between 1 and 1024");
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
      batcher_.next(slot->batch);
      slot->state_after = batcher_.state();
      slot->batches_in_epoch_after = batcher_.batches_in_epoch();
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
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return filled_ > 0 || error_ != nullptr; });
  if (filled_ == 0) std::rethrow_exception(error_);
  Slot& slot = slots_[head_];
  std::swap(batch, slot.batch);  // the caller's storage serves a later batch
  state_ = slot.state_after;
  batches_in_epoch_ = slot.batches_in_epoch_after;
  head_ = (head_ + 1) % slots_.size();
  --filled_;
  lock.unlock();
  changed_.notify_all();
}

void PrefetchingBatcher::seek(const BatcherState& state) {
  stop();
  try {
    batcher_.seek(state);
  } catch (...) {
    batcher_.seek(state_);  // it had run ahead
    throw;
  }
  state_ = batcher_.state();
  batches_in_epoch_ = batcher_.batches_in_epoch();
}

}  // namespace trafo
