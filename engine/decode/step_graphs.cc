#include "engine/decode/step_graphs.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "engine/ops/op_kernel.h"

namespace trafo {
namespace {

constexpr const char* kStepGraphsOrigin = "decode step";
constexpr int64_t kMostSteps = 256;  // numbers of tokens that have a plan

// So that not every sequence that begins moves what all graphs read.
int64_t with_room(int64_t count) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
}

Tensor first_rows(const Tensor& tensor, int64_t rows) {
  return tensor.as_strided({rows, tensor.dim(1)}, {tensor.dim(1), 1}, tensor.offset());
}

}  // namespace

StepGraphs::StepGraphs(Context& context, const Model& model)
    : context_(context),
      model_(model),
      stream_(*context.backend().stream_device()),
      meta_backend_(make_meta_backend(context.device(), kOpKernelCount)),
      meta_context_(meta_backend_) {}

StepGraphs::~StepGraphs() {
  release_graphs();
}

void StepGraphs::release_graphs() noexcept {
  for (auto& [rows, step] : steps_) step.release(stream_);
}

bool StepGraphs::usable(const Context& context, const Model& model) {
  return context.backend().stream_device() != nullptr && context.graphs() &&
         context.fused_kernels() && !model.spec().decoder.attention.relative;
}

Tensor StepGraphs::storage(int64_t slots) {
  const ModelSpec& spec = model_.spec();
  if (!storage_.defined() || storage_.dim(1) < slots) {
    storage_ = {};
    storage_ = context_.empty(
        nn::KvCache::storage_shape(
            {.layers = spec.decoder.layers(), .kv_width = spec.decoder.attention.kv_width()},
            slots),
        model_.parameters().dtype());
  }
  return storage_;
}

void StepGraphs::adopt(DecodeState& state) {
  if (storage_.defined() && !state.cache.move_to(context_, storage_)) {
    storage(state.rows() * state.cache.capacity());
    state.cache.move_to(context_, storage_);
  }
  const Tensor& keys_values = state.cache.storage();
  const std::pair<const void*, int64_t> cache{keys_values.raw(), keys_values.dim(1)};
  if (cache != cache_) {
    release_graphs();
    cache_ = cache;
  }
  Tensor& values = state.encoder.values;
  if (!values.defined() || (source_.defined() && values.raw() == source_.raw())) return;
  if (!source_.defined() || source_.dim(0) < values.dim(0)) {
    release_graphs();
    source_ = {};
    source_ = context_.empty(values.shape(), values.dtype());
  }
  context_.backend().copy(source_.raw(), values.raw(), values.bytes());
  values = first_rows(source_, values.dim(0));
}

Tensor StepGraphs::step(DecodeState& state, std::span<const int32_t> ids,
                        std::span<const int32_t> counts) {
  const auto tokens = std::ssize(ids);
  require(std::ssize(counts) == state.rows() && std::ranges::count(counts, 1) == tokens &&
              std::ranges::count(counts, 0) == state.rows() - tokens,
          ErrorCode::shape_mismatch, kStepGraphsOrigin, tokens, " tokens for ", counts.size(),
          " counts of ", state.rows(), " rows");
  require(state.indices_validated && state.cache.storage().raw() == cache_.first,
          ErrorCode::internal, kStepGraphsOrigin, "the state is not one that was adopted");
  const Tensor on_device = upload_inputs(state, ids, counts);
  if (!logits_.defined() || logits_.dim(0) < tokens) {
    release_graphs();
    logits_ = {};
    logits_ =
        context_.empty({with_room(tokens), model_.spec().vocabulary}, model_.parameters().dtype());
  }
  if (!steps_.contains(tokens) && std::ssize(steps_) == kMostSteps) {
    release_graphs();
    steps_.clear();
  }
  PlannedGraph& step = steps_[tokens];
  if (!step.planned) plan(step, state, tokens);
  prepare_arena(step.plan.bytes);
  const auto issue = [&] { run(context_, state, on_device); };
  if (step.runs > 0) {
    step.replay(context_, kStepGraphsOrigin, issue);
    ++replays_;
  } else {
    step.launch(context_, issue);
  }
  state.cache.end_append();
  return first_rows(logits_, tokens);
}

// Uploads what the kernels of a step read. Returns the tokens.
Tensor StepGraphs::upload_inputs(DecodeState& state, std::span<const int32_t> ids,
                                 std::span<const int32_t> counts) {
  const auto tokens = std::ssize(ids);
  std::vector<int32_t> values(ids.begin(), ids.end());
  values.insert(values.end(), state.source_begin.begin(), state.source_begin.end());
  values.insert(values.end(), state.source_end.begin(), state.source_end.end());
  const int64_t own = std::ssize(values), count = own + nn::KvCache::index_count(tokens);
  if (!indices_.defined() || indices_.numel() < count) {
    release_graphs();
    indices_ = {};
    indices_ = context_.empty({with_room(count)}, DType::i32);
  }
  context_.backend().copy_from_host(indices_.raw(), values.data(), values.size() * sizeof(int32_t));
  indices_.mark_written();
  const auto part = [&](int64_t begin, int64_t size) {
    return indices_.as_strided({size}, {1}, indices_.offset() + begin);
  };
  if (state.encoder.values.defined()) {
    const auto rows = std::ssize(state.source_begin);
    state.encoder.begin = part(tokens, rows);
    state.encoder.end = part(tokens + rows, rows);
  }
  state.cache.begin_append(context_, counts, part(own, count - own));
  return part(0, tokens);
}

// The results go to memory that outlives the arena.
void StepGraphs::run(Context& context, const DecodeState& state, const Tensor& ids) const {
  const Tensor logits = model_.step_logits(context, state, ids);
  context.backend().copy(logits_.raw(), logits.raw(), logits.bytes());
}

// Plans the arena of a step by a dry run on the meta device.
void StepGraphs::plan(PlannedGraph& step, const DecodeState& state, int64_t tokens) {
  const auto numbers = [&] { return meta_context_.zeros({tokens}, DType::i32); };
  DecodeState dry;
  dry.cache = nn::KvCache(meta_context_, state.cache.options(), tokens, 1);
  if (const Tensor& values = state.encoder.values; values.defined()) {
    dry.encoder.values = meta_context_.empty(values.shape(), values.dtype());
    dry.encoder.sequences.longest = state.encoder.sequences.longest;
    dry.encoder.begin = numbers();
    dry.encoder.end = numbers();
  }
  dry.output = state.output;
  dry.indices_validated = true;
  dry.cache.begin_append(meta_context_, std::vector<int32_t>(static_cast<size_t>(tokens), 1));
  const Tensor ids = numbers();
  meta_context_.set_gemm_epilogues(context_.gemm_epilogues());
  meta_backend_->take_trace();  // these are not in the arena
  run(meta_context_, dry, ids);
  step.plan = plan_arena(meta_backend_->take_trace());
  step.planned = true;
}

// Graphs hold addresses in the arena, so they are captured again if somebody has moved it.
void StepGraphs::prepare_arena(size_t bytes) {
  Backend& backend = context_.backend();
  if (backend.arena_bytes() < bytes) {
    backend.synchronize();
    backend.set_arena_memory(bytes);
  }
  if (arena_ == backend.arena_memory()) return;
  release_graphs();
  arena_ = backend.arena_memory();
}

}  // namespace trafo
