#include "engine/train/step/host_step.h"

#include <algorithm>

#include "engine/ops/op_kernel.h"

namespace trafo {
namespace {

// Plans that are kept. A corpus in batches of one token budget has a few dozen.
constexpr size_t kMaxPlans = 256;

}  // namespace

HostStep::HostStep(Context& context, Model& model, const Objective& objective,
                   const TrainOptions& options, const LossSums& sums)
    : context_(context),
      model_(model),
      objective_(objective),
      options_(options),
      sums_(sums),
      meta_backend_(make_meta_backend(context.device(), kOpKernelCount)),
      meta_context_(meta_backend_) {
  // A context makes this constant on first use, which must not be inside an arena.
  const DType sums_dtype = stat_dtype(model.parameters().dtype());
  context.one(sums_dtype);
  meta_context_.one(sums_dtype);
}

HostStep::~HostStep() {
  // Another trainer that uses the arena allocates it again.
  Backend& backend = context_.backend();
  if (memory_ && memory_ == backend.arena_memory()) backend.set_arena_memory(0);
}

void HostStep::reserve(std::span<const BatchBucket> buckets) {
  size_t bytes = 0;
  for (const BatchBucket& bucket : buckets) bytes = std::max(bytes, plan(bucket, {}).bytes);
  prepare_memory(bytes);
  model_.parameters().zero_grad();
}

void HostStep::accumulate(const PackedBatchHost& batch, double labels, uint32_t pass, bool first) {
  validate_for_training(context_, batch, model_);
  const BatchBucket exact = exact_bucket(batch, first);
  const DropoutPass dropout = training_pass(model_.spec(), options_, pass);
  const auto run = [&] {
    const BatchLayout layout(exact, model_.parameters().dtype());
    accumulate_gradients(context_, model_, upload(context_, batch, layout), objective_,
                         options_.recompute, dropout, 1 / labels, first, sums_);
  };
  // Reference ops read values, which a dry run does not have. A tensor of an earlier step that is
  // still alive must not be overwritten.
  if (!context_.fused_kernels() || arena_.living() > 0) return run();
  const ArenaPlan& planned = plan(exact, dropout.skipped);
  prepare_memory(planned.bytes);
  arena_.begin(context_.backend().arena_memory(), planned);
  const ArenaScope scope(context_.backend(), arena_);
  run();
}

// The plan of the bucket that a batch of these sizes would be padded to, from a dry run on the meta
// device that skips the same layers.
const ArenaPlan& HostStep::plan(const BatchBucket& exact, const std::vector<bool>& skipped) {
  const BatchBucket padded = padded_bucket(exact);
  const auto found = plans_.find({padded, skipped});
  if (found != plans_.end()) return found->second;
  if (plans_.size() >= kMaxPlans) plans_.clear();
  const LossSums sums(meta_context_, model_.parameters().dtype());
  // A later micro-batch finds every gradient written; the dry run has to see the same state.
  if (!padded.first) model_.parameters().complete_grads(meta_context_);
  meta_backend_->take_trace();
  const BatchLayout layout(padded, model_.parameters().dtype());
  accumulate_gradients(meta_context_, model_, dry_run_batch(meta_context_, layout), objective_,
                       options_.recompute, {options_.seed, 0, true, skipped}, 1, padded.first,
                       sums);
  return plans_[{padded, skipped}] = plan_arena(meta_backend_->take_trace());
}

void HostStep::prepare_memory(size_t bytes) {
  Backend& backend = context_.backend();
  if (backend.arena_bytes() < bytes) backend.set_arena_memory(bytes);
  memory_ = backend.arena_memory();
}

}  // namespace trafo
