#include "engine/train/step/step_queue.h"

namespace trafo {

StepQueue::StepQueue(Context& context, size_t metric_bytes, size_t vote_bytes)
    : context_(context),
      stream_(context.backend().stream_device()),
      metric_bytes_(metric_bytes),
      vote_bytes_(vote_bytes),
      records_(reinterpret_cast<UpdateRecord*>(
          slots(sizeof(UpdateRecord), pinned_records_, host_records_))),
      metrics_(slots(metric_bytes, pinned_metrics_, host_metrics_)),
      votes_(slots(vote_bytes, pinned_votes_, host_votes_)) {}

StepQueue::~StepQueue() {
  if (!stream_) return;
  try {
    context_.backend().synchronize();
  } catch (const Error&) {  // the device is lost: nothing will be written any more
  }
}

std::byte* StepQueue::slots(size_t bytes, PinnedBlock& pinned, std::vector<std::byte>& pageable) {
  if (bytes == 0) return nullptr;
  if (stream_) {
    pinned = {stream_->allocate_pinned(kMost * bytes), PinnedRelease{stream_}};
    return static_cast<std::byte*>(pinned.get());
  }
  pageable.resize(kMost * bytes);
  return pageable.data();
}

void StepQueue::push(const StepResult& totals, uint64_t passes_before) {
  updates_.push_back({totals, passes_before, next_slot_});
}

// From here on only a device or a peer that is lost can fail.
void StepQueue::copy_back(const void* record, const void* metrics, const Tensor& votes,
                          bool waits) {
  const size_t slot = next_slot_;
  const auto copy = [&](void* to, const void* from, size_t bytes) {
    if (waits)
      context_.backend().copy_to_host(to, from, bytes);
    else
      stream_->copy_async(to, from, bytes);
  };
  copy(&records_[slot], record, sizeof *records_);
  if (metric_bytes_ > 0) copy(metrics_ + slot * metric_bytes_, metrics, metric_bytes_);
  if (vote_bytes_ > 0) copy(votes_ + slot * vote_bytes_, votes.raw(), vote_bytes_);
  if (!waits) stream_->record(event(slot));
  next_slot_ = (next_slot_ + 1) % kMost;
}

void StepQueue::shrink(size_t size) {
  while (updates_.size() > size) updates_.pop_back();
}

// Returns at once where copy_to_host() has waited already.
void StepQueue::wait(size_t slot) {
  if (stream_) stream_->wait(event(slot));
}

StepQueue::Done StepQueue::pop() {
  const InFlight oldest = updates_.front();
  updates_.pop_front();
  wait(oldest.slot);
  return {oldest.totals, oldest.passes_before, records_[oldest.slot],
          metrics_ + oldest.slot * metric_bytes_, votes_ + oldest.slot * vote_bytes_};
}

const UpdateRecord& StepQueue::newest() {
  const size_t slot = updates_.back().slot;
  wait(slot);
  return records_[slot];
}

}  // namespace trafo
