#include "engine/train/step/host_step_memory.h"

#include <algorithm>

#include "engine/models/upload.h"
#include "engine/ops/op_kernel.h"

namespace trafo {
namespace {

// Plans that are kept. A corpus in batches of one token budget has a few dozen.
constexpr size_t kMaxPlans = 256;

}  // namespace

HostStepMemory::HostStepMemory(Context& context, Model& model, const Objective& objective,
                               const TrainOptions& options)
    : StepMemory(context, model, objective, options),
      meta_backend_(make_meta_backend(context.device(), kOpKernelCount)),
      meta_context_(meta_backend_) {
  // A context makes this constant on first use, which must not be inside an arena.
  const DType sums_dtype = stat_dtype(model.parameters().dtype());
  context.one(sums_dtype);
  meta_context_.one(sums_dtype);
}

HostStepMemory::~HostStepMemory() {
  // Another trainer that uses the arena allocates it again.
  Backend& backend = context_.backend();
  if (memory_ && memory_ == backend.arena_memory()) backend.set_arena_memory(0);
}

void HostStepMemory::reserve(std::span<const BatchBucket> buckets) {
  size_t bytes = 0;
  for (const BatchBucket& bucket : buckets) bytes = std::max(bytes, plan(bucket, {}).bytes);
  prepare_memory(bytes);
  model_.parameters().zero_grad();
}

MicroBatch HostStepMemory::upload(const PackedBatchHost& batch, uint32_t pass, double units,
                                  bool first) {
  validate(batch);
  const BatchBucket exact = exact_bucket(batch, first);
  const DropoutPass dropout = training_pass(pass);
  // Reference ops read values, which a dry run does not have. A tensor of an earlier step that is
  // still alive must not be overwritten.
  if (context_.fused_kernels() && arena_.living() == 0) {
    const ArenaPlan& planned = plan(exact, dropout.skipped);
    prepare_memory(planned.bytes);
    arena_.begin(context_.backend().arena_memory(), planned);
    in_arena_.emplace(context_.backend(), arena_);
  }
  const BatchLayout layout(exact, model_.parameters().dtype());
  return {trafo::upload(context_, batch, layout), dropout, 1 / units, first};
}

void HostStepMemory::end(bool) noexcept {
  in_arena_.reset();
}

// The plan of the bucket that a batch of these sizes would be padded to, from a dry run on the meta
// device that skips the same layers.
const ArenaPlan& HostStepMemory::plan(const BatchBucket& exact, const std::vector<bool>& skipped) {
  const BatchBucket padded = padded_bucket(exact);
  const auto found = plans_.find({padded, skipped});
  if (found != plans_.end()) return found->second;
  if (plans_.size() >= kMaxPlans) plans_.clear();
  const StepSums sums(meta_context_, model_.parameters().dtype(), objective_.metrics().size());
  const BatchLayout layout(padded, model_.parameters().dtype());
  meta_backend_->take_trace();
  {
    const MicroBatch micro{
        dry_run_batch(meta_context_, layout), {options_.seed, 0, true, skipped}, 1, padded.first};
    dry_run(meta_context_, micro, sums);
  }
  return plans_[{padded, skipped}] = plan_arena(meta_backend_->take_trace());
}

void HostStepMemory::prepare_memory(size_t bytes) {
  Backend& backend = context_.backend();
  if (backend.arena_bytes() < bytes) backend.set_arena_memory(bytes);
  memory_ = backend.arena_memory();
}

}  // namespace trafo
