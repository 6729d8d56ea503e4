#include "engine/train/step/device_step_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/ops/op_kernel.h"

namespace trafo {
namespace {

constexpr const char* kDeviceStepOrigin = "training step";

// Staging blocks, and so batches that the host may be ahead by. Each has a separate event.
constexpr size_t kStagings = 16;
static_assert(kStagings <= StreamDevice::kEvents / 2);

// Buckets whose plans and graphs are kept. A corpus in batches of one token budget has a few dozen.
constexpr size_t kMaxBuckets = 256;

}  // namespace

DeviceStepMemory::DeviceStepMemory(Context& context, Model& model, const Objective& objective,
                                   const TrainOptions& options)
    : StepMemory(context, model, objective, options),
      stream_(*context.backend().stream_device()),
      meta_backend_(make_meta_backend(context.device(), kOpKernelCount, &context.backend())),
      meta_context_(meta_backend_),
      staging_(kStagings) {
  // A context makes this constant on first use, which must not be inside an arena.
  const DType sums_dtype = stat_dtype(model.parameters().dtype());
  context.one(sums_dtype);
  meta_context_.one(sums_dtype);
}

DeviceStepMemory::~DeviceStepMemory() {
  release_graphs();
  for (const Staging& staging : staging_) stream_.release_pinned(staging.block);
  // Another trainer that uses the arena allocates it again.
  Backend& backend = context_.backend();
  if (arena_ && arena_ == backend.arena_memory()) backend.set_arena_memory(0);
}

void DeviceStepMemory::release_graphs() noexcept {
  for (auto& [key, bucket] : buckets_) bucket.release(stream_);
}

// Makes room: buckets that came once go first, then all of them.
void DeviceStepMemory::forget_buckets() {
  std::erase_if(buckets_, [](const auto& entry) { return entry.second.graph == nullptr; });
  if (buckets_.size() < kMaxBuckets / 2) return;
  context_.backend().synchronize();
  release_graphs();
  buckets_.clear();
}

void DeviceStepMemory::drop_graphs() {
  context_.backend().synchronize();
  release_graphs();
}

// Weights are always there: they mask the padding and, of a linear objective, carry the division by
// the units. The scale of another objective is the second element of the header.
BatchLayout DeviceStepMemory::layout(const BatchBucket& exact) const {
  BatchBucket bucket = padded_bucket(exact);
  bucket.add(FieldId::target_weights);
  const DType dtype = model_.parameters().dtype();
  return BatchLayout(bucket, dtype, 2 * dtype_size(stat_dtype(dtype)));
}

// `block`: the memory of the batch.
Batch DeviceStepMemory::with_scale(Batch batch, const std::shared_ptr<Storage>& block) const {
  if (!objective_.is_linear())
    batch.loss_scale = Tensor(block, stat_dtype(model_.parameters().dtype()), {1}, {1}, 1);
  return batch;
}

MicroBatch DeviceStepMemory::upload(const PackedBatchHost& batch, uint32_t pass, double units,
                                    bool first) {
  validate(batch);
  const BatchBucket exact = exact_bucket(batch, first);
  const DropoutPass dropout = training_pass(pass);
  if (!context_.fused_kernels()) {
    const BatchLayout unpadded(exact, model_.parameters().dtype());
    return {trafo::upload(context_, batch, unpadded), dropout, 1 / units, first};
  }
  const BatchLayout layout = this->layout(exact);
  if (buckets_.size() >= kMaxBuckets && !buckets_.contains({layout.bucket(), dropout.skipped}))
    forget_buckets();
  PlannedGraph& bucket = plan(layout, dropout.skipped);
  prepare_memory(bucket.plan.bytes, layout.words());
  upload_async(batch, layout, units, pass);

  const bool uses_graph = context_.graphs() && bucket.runs > 0;
  if (uses_graph) uploaded_ = &bucket;
  if (!uses_graph || !bucket.graph) {
    GemmTuner* tuner =
        options_.autotune_gemm && !uses_graph ? context_.backend().gemm_tuner() : nullptr;
    issue_.emplace(context_, bucket, uses_graph, tuner, static_cast<const uint32_t*>(block_.raw()));
    // Replaying a graph runs no host code. The store must therefore be told here, through the meta
    // context where zeroing costs nothing, that earlier micro-batches have written every gradient.
    if (!first) model_.parameters().complete_grads(meta_context_);
  }
  // The weights or the block carry the division by the units, the block the number of the pass.
  return {with_scale(layout.view(block_), block_.storage()),
          {options_.seed, 0, true, dropout.skipped},
          1,
          first};
}

DeviceStepMemory::Issue::Issue(Context& context, PlannedGraph& work, bool capture, GemmTuner* tuner,
                               const uint32_t* dropout_step)
    : stream(*context.backend().stream_device()), tuning(tuner), planned(context, work, capture) {
  stream.set_dropout_step(dropout_step);
}

void DeviceStepMemory::end(bool failed) noexcept {
  issue_.reset();
  if (failed) uploaded_ = nullptr;
}

void DeviceStepMemory::replay() {
  if (PlannedGraph* bucket = std::exchange(uploaded_, nullptr))
    bucket->replay(context_, kDeviceStepOrigin);
}

void DeviceStepMemory::reserve(std::span<const BatchBucket> buckets) {
  size_t arena_bytes = 0;
  int64_t block_words = 0;
  for (const BatchBucket& exact : buckets) {
    const BatchLayout layout = this->layout(exact);
    arena_bytes = std::max(arena_bytes, plan(layout, {}).plan.bytes);
    block_words = std::max(block_words, layout.words());
  }
  prepare_memory(arena_bytes, block_words);
  model_.parameters().zero_grad();
}

// Plans the arena of a bucket by a dry run on the meta device.
PlannedGraph& DeviceStepMemory::plan(const BatchLayout& layout, const std::vector<bool>& skipped) {
  PlannedGraph& bucket = buckets_[{layout.bucket(), skipped}];
  if (bucket.planned) return bucket;
  const PhaseRange phase(context_, "planning", false);
  meta_context_.set_gemm_epilogues(context_.gemm_epilogues());
  Batch batch = dry_run_batch(meta_context_, layout);
  batch = with_scale(batch, batch.target_in.storage());
  const StepSums sums(meta_context_, model_.parameters().dtype(), objective_.metrics().size());
  meta_backend_->take_trace();  // the batch and the sums are not in the arena
  dry_run(meta_context_, {batch, {options_.seed, 0, true, skipped}, 1, layout.bucket().first},
          sums);
  bucket.plan = plan_arena(meta_backend_->take_trace());
  bucket.planned = true;
  return bucket;
}

// Makes room for an arena and a block of at least these sizes. Graphs hold addresses in both, so
// they are captured again if one has moved.
void DeviceStepMemory::prepare_memory(size_t arena_bytes, int64_t block_words) {
  Backend& backend = context_.backend();
  if (backend.arena_bytes() < arena_bytes) {
    backend.synchronize();
    backend.set_arena_memory(arena_bytes);
  }
  if (arena_ != backend.arena_memory()) {  // we or another trainer have moved it
    backend.synchronize();
    release_graphs();
    arena_ = backend.arena_memory();
  }
  if (block_.defined() && block_.numel() >= block_words) return;
  backend.synchronize();
  release_graphs();
  block_ = {};
  block_ = context_.empty({block_words + block_words / 4}, DType::i32);
}

void DeviceStepMemory::upload_async(const PackedBatchHost& batch, const BatchLayout& layout,
                                    double units, uint32_t pass) {
  const PhaseRange phase(context_, "upload", true);
  const size_t slot = next_staging_;
  int32_t* host = staging(layout.words());
  std::memcpy(host, &pass, sizeof pass);
  const bool is_linear = objective_.is_linear();
  const auto write_scale = [&](auto scale) {
    std::memcpy(reinterpret_cast<std::byte*>(host) + sizeof scale, &scale, sizeof scale);
  };
  if (stat_dtype(model_.parameters().dtype()) == DType::f64)
    write_scale(is_linear ? 1 : 1 / units);
  else
    write_scale(static_cast<float>(is_linear ? 1 : 1 / units));
  layout.write(batch, host, is_linear ? units : 1);
  stream_.copy_async(block_.raw(), host, static_cast<size_t>(layout.words()) * sizeof(int32_t));
  stream_.record(static_cast<int>(slot));
}

int32_t* DeviceStepMemory::staging(int64_t words) {
  Staging& staging = staging_[next_staging_];
  stream_.wait(static_cast<int>(next_staging_));
  next_staging_ = (next_staging_ + 1) % staging_.size();
  if (staging.words < words) {
    stream_.release_pinned(staging.block);
    staging = {};
    staging.block = static_cast<int32_t*>(
        stream_.allocate_pinned(static_cast<size_t>(words) * sizeof(int32_t)));
    staging.words = words;
  }
  return staging.block;
}

}  // namespace trafo
