#include "engine/train/run/update_batches.h"

namespace trafo {

UpdateBatches::UpdateBatches(std::unique_ptr<Batcher> batcher, size_t most_batches)
    : batcher_(std::move(batcher)), first_position_(batcher_.state()), batches_(most_batches) {}

std::span<const PackedBatchHost> UpdateBatches::pack(const BatcherState& run, uint64_t first) {
  seek_after_newest(run);
  ahead_ = true;
  size_t count = 0;
  int64_t labels = 0;
  do {
    PackedBatchHost& batch = batches_[count];
    // The number of a micro-batch in the run is that of its forward pass, which checkpoints store.
    if (function_)
      function_(static_cast<int64_t>(first + count), batch);
    else
      batcher_.next(batch);
    labels += batch.label_count;
    ++count;
  } while (count < batches_.size() && !batches_[count - 1].last_in_epoch);
  packed_.push_back(
      {batcher_.state(), batcher_.epoch_fraction(), labels, batches_[count - 1].epoch_drops});
  return std::span<const PackedBatchHost>(batches_).first(count);
}

void UpdateBatches::accept() {
  ++in_flight_;
  ahead_ = false;
}

void UpdateBatches::reject() {
  while (packed_.size() > in_flight_) packed_.pop_back();
}

void UpdateBatches::complete_oldest(BatcherState& position) {
  const Packed& oldest = packed_.front();
  if (oldest.position.epoch > position.epoch) dropped_ = oldest.dropped;
  position = oldest.position;
  epoch_fraction_ = oldest.epoch_fraction;
  packed_.pop_front();
  --in_flight_;
}

void UpdateBatches::abandon() {
  packed_.clear();
  in_flight_ = 0;
  ahead_ = true;
}

Progress UpdateBatches::expected(Progress run) const {
  run.updates += static_cast<int64_t>(in_flight_);
  for (const Packed& update : packed_) run.tokens += update.labels;
  if (!packed_.empty()) run.epochs = packed_.back().position.epoch;
  return run;
}

void UpdateBatches::seek(RunState& state) {
  if (state.begins_phase) state.position = first_position_;
  state.begins_phase = false;
  batcher_.seek(state.position);
}

void UpdateBatches::restored() {
  ahead_ = false;
  epoch_fraction_ = batcher_.epoch_fraction();
}

// A failed update does not do this itself, because seeking allocates and memory may have run out;
// the next update does.
void UpdateBatches::seek_after_newest(const BatcherState& run) {
  if (!ahead_) return;
  batcher_.seek(packed_.empty() ? run : packed_.back().position);
  ahead_ = false;
}

}  // namespace trafo
