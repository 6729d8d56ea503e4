#include "engine/train/device_step.h"

#include <algorithm>
#include <cstring>

#include "engine/ops/op_kernel.h"
#include "engine/train/upload.h"

namespace trafo {
namespace {

constexpr const char* kOrigin = "training step";

// Batches that the host may be ahead by; each has an event of its own.
constexpr size_t kStagings = 16;
static_assert(kStagings <= StreamDevice::kEvents / 2);

// Shapes whose graphs are kept; a corpus in batches of one token budget has a few dozen.
constexpr size_t kShapes = 256;

int64_t round_up(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

// Every batch in a block has weights.
BatchBucket device_bucket(const BatchBucket& exact) {
  BatchBucket shape = padded_bucket(exact);
  shape.weighted = true;
  return shape;
}

}  // namespace

DeviceStep::Layout::Layout(const BatchBucket& shape) {
  const auto take = [&](int64_t count) {
    const int64_t at = words;
    words += round_up(count, 64);
    return at;
  };
  pass = take(1);
  if (shape.with_source) {
    source_ids = take(shape.source_tokens);
    source_positions = take(shape.source_tokens);
    source_cu_seqlens = take(shape.sentences + 1);
  }
  target_in = take(shape.target_tokens);
  target_out = take(shape.target_tokens);
  target_positions = take(shape.target_tokens);
  target_cu_seqlens = take(shape.sentences + 1);
  target_weights = take(shape.target_tokens);
}

DeviceStep::DeviceStep(Context& context, Model& model, const Objective& objective,
                       const TrainOptions& options, const LossSums& sums)
    : context_(context),
      model_(model),
      objective_(objective),
      options_(options),
      sums_(sums),
      stream_(*context.backend().stream_device()),
      meta_backend_(make_meta_backend(context.device(), kOpKernelCount)),
      meta_context_(meta_backend_),
      staging_(kStagings) {
  const DType sums_dtype = stat_dtype(model.parameters().dtype());
  // Constants that a step would otherwise make in its arena.
  context.one(sums_dtype);
  meta_context_.one(sums_dtype);
}

DeviceStep::~DeviceStep() {
  forget_graphs();
  for (const Staging& staging : staging_) stream_.release_pinned(staging.block);
  // Whoever else works in the arena asks for it again.
  Backend& backend = context_.backend();
  if (arena_ && arena_ == backend.arena_memory()) backend.set_arena_memory(0);
}

void DeviceStep::forget_graphs() noexcept {
  for (auto& [shape, recorded] : shapes_) {
    stream_.release_graph(recorded.graph);
    recorded.graph = nullptr;
    recorded.runs = 0;
  }
}

void DeviceStep::accumulate(const PackedBatchHost& batch, double labels, uint32_t pass,
                            bool first) {
  validate_batch(context_, batch, model_.config());
  const BatchBucket shape = device_bucket(exact_bucket(batch, model_.config(), first));
  const Layout layout(shape);

  if (shapes_.size() >= kShapes && !shapes_.contains(shape)) {
    context_.backend().synchronize();
    forget_graphs();
    shapes_.clear();
  }
  Recorded& recorded = plan(shape, layout, batch);
  prepare_memory(recorded.plan.bytes, layout.words);

  {
    const PhaseRange phase(context_, "upload", true);
    const size_t slot = next_staging_;
    int32_t* host = staging(layout.words);
    fill(batch, shape, layout, labels, pass, host);
    stream_.copy_async(block_.raw(), host, static_cast<size_t>(layout.words) * sizeof(int32_t));
    stream_.record(static_cast<int>(slot));
  }

  // A shape's first run is made kernel by kernel, so that whatever a kernel sets up once is there
  // when it is recorded; shapes that come once are never recorded.
  const Batch on_device = view(block_, shape, layout);
  if (context_.graphs() && recorded.runs > 0) {
    if (!recorded.graph) record(shape, on_device, recorded);
    const PhaseRange phase(context_, "graph replay", true);
    stream_.launch_graph(recorded.graph);
  } else {
    Arena arena(context_.backend().arena_memory(), recorded.plan);
    const ArenaScope scope(context_.backend(), arena);
    const TuningScope tuning(options_.autotune_gemm ? context_.backend().gemm_tuner() : nullptr);
    run(context_, on_device, first, sums_);
  }
  ++recorded.runs;
}

void DeviceStep::reserve(std::span<const BatchBucket> shapes) {
  size_t arena_bytes = 0;
  int64_t block_words = 0;
  for (const BatchBucket& exact : shapes) {
    const BatchBucket shape = device_bucket(exact);
    const Layout layout(shape);
    arena_bytes = std::max(arena_bytes, plan(shape, layout, batch_of(exact)).plan.bytes);
    block_words = std::max(block_words, layout.words);
  }
  prepare_memory(arena_bytes, block_words);
  model_.parameters().zero_grad();
}

// The memory of a step is planned by running it where nothing happens.
DeviceStep::Recorded& DeviceStep::plan(const BatchBucket& shape, const Layout& layout,
                                       const PackedBatchHost& batch) {
  Recorded& recorded = shapes_[shape];
  if (recorded.planned) return recorded;
  const PhaseRange phase(context_, "planning", false);
  meta_context_.set_gemm_epilogues(context_.gemm_epilogues());
  const Tensor block = meta_context_.empty({layout.words}, DType::i32);
  const LossSums sums(meta_context_, model_.parameters().dtype());
  fill(batch, shape, layout, 1, 0, block.data<int32_t>());
  meta_backend_->take_trace();
  run(meta_context_, view(block, shape, layout), shape.first, sums);
  recorded.plan = plan_arena(meta_backend_->take_trace());
  recorded.planned = true;
  return recorded;
}

// An arena and a block of at least so much.
void DeviceStep::prepare_memory(size_t arena_bytes, int64_t block_words) {
  Backend& backend = context_.backend();
  if (backend.arena_bytes() < arena_bytes) {
    backend.synchronize();
    backend.set_arena_memory(arena_bytes);
  }
  if (arena_ != backend.arena_memory()) {  // ours have grown, or another trainer's
    backend.synchronize();
    forget_graphs();
    arena_ = backend.arena_memory();
  }
  if (block_.defined() && block_.numel() >= block_words) return;
  backend.synchronize();
  forget_graphs();
  block_ = {};
  block_ = context_.empty({block_words + block_words / 4}, DType::i32);
}

void DeviceStep::record(const BatchBucket& shape, const Batch& batch, Recorded& recorded) {
  const PhaseRange phase(context_, "graph capture", false);
  const Profiler::NoDeviceTimes no_device_times(context_.profiler());
  char reason[256] = "a kernel could not be recorded";
  Arena arena(arena_, recorded.plan);
  stream_.begin_capture();
  try {
    const ArenaScope scope(context_.backend(), arena);
    run(context_, batch, shape.first, sums_);
  } catch (...) {
    stream_.release_graph(stream_.end_capture(reason, sizeof reason));
    throw;
  }
  recorded.graph = stream_.end_capture(reason, sizeof reason);
  require(recorded.graph != nullptr, ErrorCode::unsupported, kOrigin,
          "the step could not be recorded as a graph (", reason, "); turn graphs off");
}

void DeviceStep::run(Context& context, const Batch& batch, bool first, const LossSums& sums) {
  struct DropoutStep {
    StreamDevice& stream;
    DropoutStep(StreamDevice& device, const uint32_t* step) : stream(device) {
      device.set_dropout_step(step);
    }
    ~DropoutStep() { stream.set_dropout_step(nullptr); }
  } dropout_step(stream_, static_cast<const uint32_t*>(block_.defined() ? block_.raw() : nullptr));
  // A replayed step leaves no trace on the host: what an earlier micro-batch has done to the
  // gradients is said here. On the planning device nothing is filled.
  if (!first) model_.parameters().complete_grads(meta_context_);
  // The label weights carry the division by the label count, the block the number of the pass.
  accumulate_gradients(context, model_, batch, objective_, options_.recompute,
                       {options_.seed, 0, true}, 1, first, sums);
}

void DeviceStep::fill(const PackedBatchHost& batch, const BatchBucket& shape, const Layout& layout,
                      double labels, uint32_t pass, int32_t* block) const {
  std::memcpy(block + layout.pass, &pass, sizeof pass);
  const auto put = [&](int64_t at, const std::vector<int32_t>& values, int64_t count,
                       int32_t filler) {
    const auto end = std::copy(values.begin(), values.end(), block + at);
    std::fill(end, block + at + count, filler);
  };
  const auto put_boundaries = [&](int64_t at, const std::vector<int32_t>& boundaries,
                                  int64_t tokens, int64_t longest) {
    int32_t* end = std::copy(boundaries.begin(), boundaries.end(), block + at);
    int64_t filled = boundaries.back();
    for (; end < block + at + shape.sentences + 1; ++end) {
      filled = std::min(tokens, filled + longest);
      *end = static_cast<int32_t>(filled);
    }
  };
  if (shape.with_source) {
    put(layout.source_ids, batch.source_ids, shape.source_tokens, 0);
    put(layout.source_positions, batch.source_positions, shape.source_tokens, 0);
    put_boundaries(layout.source_cu_seqlens, batch.source_cu_seqlens, shape.source_tokens,
                   shape.longest_source);
  }
  put(layout.target_in, batch.target_in, shape.target_tokens, 0);
  put(layout.target_out, batch.target_out, shape.target_tokens,
      ops::CrossEntropyOptions{}.ignore_label);
  put(layout.target_positions, batch.target_positions, shape.target_tokens, 0);
  put_boundaries(layout.target_cu_seqlens, batch.target_cu_seqlens, shape.target_tokens,
                 shape.longest_target);
  auto* weights = reinterpret_cast<float*>(block + layout.target_weights);
  for (size_t t = 0; t < static_cast<size_t>(shape.target_tokens); ++t) {
    const bool filler = t >= batch.target_out.size();
    const double weight = filler                         ? 0
                          : batch.target_weights.empty() ? 1
                                                         : double{batch.target_weights[t]};
    weights[t] = static_cast<float>(weight / labels);
  }
}

Batch DeviceStep::view(const Tensor& block, const BatchBucket& shape, const Layout& layout) const {
  const auto array = [&](int64_t at, int64_t count, DType dtype = DType::i32) {
    return Tensor(block.storage(), dtype, {count}, {1}, at);
  };
  Batch batch;
  batch.sentences = shape.sentences;
  batch.longest_source = shape.longest_source;
  batch.longest_target = shape.longest_target;
  batch.indices_validated = true;
  if (shape.with_source) {
    batch.source_ids = array(layout.source_ids, shape.source_tokens);
    batch.source_positions = array(layout.source_positions, shape.source_tokens);
    batch.source_cu_seqlens = array(layout.source_cu_seqlens, shape.sentences + 1);
  }
  batch.target_in = array(layout.target_in, shape.target_tokens);
  batch.target_out = array(layout.target_out, shape.target_tokens);
  batch.target_positions = array(layout.target_positions, shape.target_tokens);
  batch.target_cu_seqlens = array(layout.target_cu_seqlens, shape.sentences + 1);
  batch.target_weights = array(layout.target_weights, shape.target_tokens, DType::f32);
  return batch;
}

int32_t* DeviceStep::staging(int64_t words) {
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
