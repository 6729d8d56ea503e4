// The micro-batches of the updates of a run.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/data/batcher.h"
#include "engine/train/checkpoint/state.h"
#include "engine/train/run/period.h"

namespace trafo {

// Fills micro-batch `index` of the run, counted from 0.
using BatchFunction = std::function<void(int64_t index, PackedBatchHost& batch)>;

// Packs updates ahead of the run, and knows the position in the data after each of them. The
// position of a run is that after its newest complete update.
class UpdateBatches {
 public:
  UpdateBatches(std::unique_ptr<Batcher> batcher, size_t most_batches);

  // Replaces the corpus; empty: the corpus again.
  void set_function(BatchFunction batches) { function_ = std::move(batches); }
  bool has_function() const { return function_ != nullptr; }

  // The batches of the update after those in flight, until the next call. An update never reaches
  // into the next epoch, so that N epochs are exactly N passes. `run`: the position of the run.
  // `first`: the number of the first micro-batch.
  std::span<const PackedBatchHost> pack(const BatcherState& run, uint64_t first);
  // The packed update is in flight, or it has failed and its batches come again.
  void accept();
  void reject();
  // The oldest update in flight is complete: moves `position` to after it.
  void complete_oldest(BatcherState& position);
  // Forgets all updates in flight.
  void abandon();

  size_t in_flight() const { return in_flight_; }
  // `run` when all updates in flight are complete, if none is skipped.
  Progress expected(Progress run) const;

  // To the position of a state that is restored. The data of a new phase begins anew.
  void seek(RunState& state);
  // Before a restore that may fail: the next pack() seeks back, unless restored() is called.
  void will_restore() { ahead_ = true; }
  void restored();

  BatcherState position() const { return batcher_.state(); }
  // Of the epoch that the run is in: the complete part.
  double epoch_fraction() const { return epoch_fraction_; }
  const PairDrops& dropped() const { return dropped_; }  // in the epoch that ended last

 private:
  struct Packed {
    BatcherState position;  // after its batches
    double epoch_fraction;
    int64_t labels;
    PairDrops dropped;  // in the epoch that it ended
  };
  void seek_after_newest(const BatcherState& run);

  PrefetchingBatcher batcher_;
  bool ahead_ = false;  // its position is not that after the newest update in flight
  BatcherState first_position_;
  BatchFunction function_;  // empty: batcher_
  std::vector<PackedBatchHost> batches_;
  std::deque<Packed> packed_;  // oldest first; the first in_flight_ of them are in flight
  size_t in_flight_ = 0;
  double epoch_fraction_ = 0;
  PairDrops dropped_;
};

}  // namespace trafo
