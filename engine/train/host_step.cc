#include "engine/train/host_step.h"

#include <algorithm>

#include "engine/ops/op_kernel.h"
#include "engine/train/upload.h"

namespace trafo {
namespace {

// Plans that are kept; a corpus in batches of one token budget has a few dozen.
constexpr size_t kPlans = 256;

}  // namespace

HostStep::HostStep(Context& context, Model& model, const Objective& objective,
                   const TrainOptions& options)
    : context_(context),
      model_(model),
      objective_(objective),
      options_(options),
      meta_backend_(make_meta_backend(context.device(), kOpKernelCount)),
      meta_context_(meta_backend_) {
  // Constants that a step would otherwise make in its arena.
  const DType sums = stat_dtype(model.parameters().dtype());
  context.one(sums);
  meta_context_.one(sums);
}

HostStep::~HostStep() {
  // Whoever else works in the arena asks for it again.
  Backend& backend = context_.backend();
  if (memory_ && memory_ == backend.arena_memory()) backend.set_arena_memory(0);
}

void HostStep::reserve(std::span<const BatchBucket> shapes) {
  size_t bytes = 0;
  for (const BatchBucket& shape : shapes) bytes = std::max(bytes, plan(shape).bytes);
  prepare_memory(bytes);
  model_.parameters().zero_grad();
}

void HostStep::accumulate(const PackedBatchHost& batch, const DropoutPass& pass, double scale,
                          bool first, const LossSums& sums) {
  // Composed ops look at values, which a plan has not; a tensor that somebody kept of the last step
  // must not be written over.
  if (!context_.fused_kernels() || arena_.living() > 0)
    return run(context_, batch, pass, scale, first, sums);
  validate_batch(context_, batch, model_.config());
  const ArenaPlan& planned = plan(exact_bucket(batch, model_.config(), first));
  prepare_memory(planned.bytes);
  arena_.begin(context_.backend().arena_memory(), planned);
  const ArenaScope scope(context_.backend(), arena_);
  run(context_, batch, pass, scale, first, sums);
}

// Planned by running it where nothing happens.
const ArenaPlan& HostStep::plan(const BatchBucket& exact) {
  const BatchBucket shape = padded_bucket(exact);
  const auto found = plans_.find(shape);
  if (found != plans_.end()) return found->second;
  if (plans_.size() >= kPlans) plans_.clear();
  const LossSums sums(meta_context_, model_.parameters().dtype());
  // What an earlier micro-batch has done to the gradients is said here; there, nothing is filled.
  if (!shape.first) model_.parameters().complete_grads(meta_context_);
  meta_backend_->take_trace();
  run(meta_context_, batch_of(shape), {options_.seed, 0, true}, 1, shape.first, sums);
  return plans_[shape] = plan_arena(meta_backend_->take_trace());
}

void HostStep::prepare_memory(size_t bytes) {
  Backend& backend = context_.backend();
  if (backend.arena_bytes() < bytes) backend.set_arena_memory(bytes);
  memory_ = backend.arena_memory();
}

void HostStep::run(Context& context, const PackedBatchHost& batch, const DropoutPass& pass,
                   double scale, bool first, const LossSums& sums) {
  const Batch uploaded = upload(context, batch, model_.config(), model_.parameters().dtype());
  accumulate_gradients(context, model_, uploaded, objective_, options_.recompute, pass, scale,
                       first, sums);
}

}  // namespace trafo
