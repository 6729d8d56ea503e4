// The updates of a trainer that were submitted and not yet awaited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/optim/update.h"
#include "engine/runtime/context.h"

namespace trafo {

struct StepResult {
  int64_t update = 0;        // updates applied so far, this one included unless it was skipped
  double loss = 0;           // mean per unit: of a label, with label smoothing
  double nll = 0;            // mean per label, without
  double grad_norm = 0;      // global norm of the mean loss's gradient, before clipping
  double learning_rate = 0;  // of this update
  double labels = 0;         // the sum of the target weights
  double units = 0;          // what the loss is divided by (Objective::units)
  int64_t source_tokens = 0, target_tokens = 0;  // read by the encoder and by the decoder
  int64_t sentences = 0;
  bool skipped = false;  // loss or gradient was not finite: weights, moments and schedule untouched
  bool stop_wanted = false;     // a rank of the group has voted for a stop
  std::vector<double> metrics;  // of the objective, means per unit
};

// The device writes the record of an update, the metrics of the objective and with peers the votes
// of all ranks to a slot in host memory: pinned memory on an accelerator, where the slot has an
// event as well.
class StepQueue {
 public:
  static constexpr size_t kMost = StreamDevice::kEvents / 2;
  // Bytes of a slot's metrics and votes, which may be 0. The context must outlive it.
  StepQueue(Context& context, size_t metric_bytes, size_t vote_bytes);
  // Waits for the device.
  ~StepQueue();
  StepQueue(const StepQueue&) = delete;
  StepQueue& operator=(const StepQueue&) = delete;

  size_t size() const { return updates_.size(); }
  bool empty() const { return updates_.empty(); }
  void clear() { updates_.clear(); }

  // `totals`: of the update's batches. passes_before: forward passes before it.
  void push(const StepResult& totals, uint64_t passes_before);
  // The newest update is complete once the device has come so far. `waits`: this waits for it.
  void copy_back(const void* record, const void* metrics, const Tensor& votes, bool waits);
  // Forgets updates beyond the first `size`, which were not copied back.
  void shrink(size_t size);

  struct Done {
    StepResult totals;
    uint64_t passes_before;
    const UpdateRecord& record;
    const std::byte* metrics;
    const std::byte* votes;
  };
  // Waits for the oldest update and removes it. It is removed even if the device fails, so that
  // awaiting all of them ends.
  Done pop();
  // Waits for the newest update.
  const UpdateRecord& newest();

 private:
  struct InFlight {
    StepResult totals;
    uint64_t passes_before;
    size_t slot;
  };
  // Memory of the host that `stream` has pinned.
  struct PinnedRelease {
    StreamDevice* stream;
    void operator()(void* block) const noexcept { stream->release_pinned(block); }
  };
  using PinnedBlock = std::unique_ptr<void, PinnedRelease>;
  // Events of the device: the first half belongs to DeviceStepMemory.
  static int event(size_t slot) { return StreamDevice::kEvents / 2 + static_cast<int>(slot); }
  void wait(size_t slot);
  std::byte* slots(size_t bytes, PinnedBlock& pinned, std::vector<std::byte>& pageable);

  Context& context_;
  StreamDevice* stream_;  // null on the CPU
  size_t metric_bytes_, vote_bytes_;
  PinnedBlock pinned_records_, pinned_metrics_, pinned_votes_;
  std::vector<std::byte> host_records_, host_metrics_, host_votes_;
  UpdateRecord* records_;
  std::byte* metrics_;
  std::byte* votes_;
  std::deque<InFlight> updates_;
  size_t next_slot_ = 0;
};

}  // namespace trafo
