#include "engine/decode/step_graphs.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "engine/ops/op_kernel.h"
#include "engine/ops/top_k/top_k.h"

namespace trafo {
namespace {

constexpr const char* kStepGraphsOrigin = "decode step";

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
         context.fused_kernels() && model.spec().has_encoder() &&
         !model.spec().decoder.attention.relative;
}

Tensor StepGraphs::storage(int64_t slots) {
  const ModelSpec& spec = model_.spec();
  if (!storage_.defined() || storage_.dim(1) < slots) {
    release_graphs();
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
  if (!state.cache.move_to(context_, storage_)) {
    storage(state.rows() * state.cache.capacity());
    state.cache.move_to(context_, storage_);
  }
  Tensor& values = state.encoder.values;
  if (values.raw() == (source_.defined() ? source_.raw() : nullptr)) return;
  if (!source_.defined() || source_.dim(0) < values.dim(0)) {
    release_graphs();
    source_ = {};
    source_ = context_.empty(values.shape(), values.dtype());
  }
  context_.backend().copy(source_.raw(), values.raw(), values.bytes());
  values = first_rows(source_, values.dim(0));
}

StepGraphs::Best StepGraphs::step(DecodeState& state, std::span<const int32_t> ids, int64_t k,
                                  std::span<const int32_t> banned) {
  require(static_cast<int64_t>(ids.size()) == state.rows(), ErrorCode::shape_mismatch,
          kStepGraphsOrigin, ids.size(), " tokens for ", state.rows(), " rows");
  require(state.indices_validated && state.cache.storage().raw() == storage_.raw(),
          ErrorCode::internal, kStepGraphsOrigin, "the state is not one that was adopted");
  if (k != k_ || !std::equal(banned.begin(), banned.end(), banned_.begin(), banned_.end())) {
    release_graphs();
    steps_.clear();  // their plans belong to another k
    k_ = k;
    banned_.assign(banned.begin(), banned.end());
  }
  const Tensor on_device = upload_inputs(state, ids);
  const int64_t count = state.rows() * k;
  if (!best_.defined() || best_.numel() < 2 * count) {
    release_graphs();
    best_ = {};
    best_ = context_.empty({2 * count}, DType::i32);
  }
  PlannedGraph& step = steps_[state.rows()];
  if (!step.planned) plan(step, state, k, banned);
  prepare_arena(step.plan.bytes);
  const auto issue = [&] { run(context_, state, on_device, k, banned); };
  if (step.runs > 0) {
    step.replay(context_, kStepGraphsOrigin, issue);
    ++replays_;
  } else {
    step.launch(context_, issue);
  }
  state.cache.end_append();

  const auto size = static_cast<size_t>(count);
  std::vector<int32_t> words(2 * size);
  context_.backend().copy_to_host(words.data(), best_.raw(), words.size() * sizeof(int32_t));
  Best best;
  best.ids.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(size));
  best.log_probabilities.resize(size);
  std::memcpy(best.log_probabilities.data(), words.data() + size, size * sizeof(float));
  return best;
}

// Uploads what the kernels of a step read. Returns the tokens.
Tensor StepGraphs::upload_inputs(DecodeState& state, std::span<const int32_t> ids) {
  const int64_t rows = state.rows(), own = 3 * rows;
  const int64_t count = own + nn::KvCache::index_count(rows);
  if (!indices_.defined() || indices_.numel() < count) {
    release_graphs();
    indices_ = {};
    indices_ = context_.empty({count}, DType::i32);
  }
  std::vector<int32_t> values(ids.begin(), ids.end());
  values.insert(values.end(), state.source_begin.begin(), state.source_begin.end());
  values.insert(values.end(), state.source_end.begin(), state.source_end.end());
  context_.backend().copy_from_host(indices_.raw(), values.data(), values.size() * sizeof(int32_t));
  indices_.mark_written();
  const auto part = [&](int64_t begin, int64_t size) {
    return indices_.as_strided({size}, {1}, indices_.offset() + begin);
  };
  state.encoder.begin = part(rows, rows);
  state.encoder.end = part(2 * rows, rows);
  const std::vector<int32_t> counts(static_cast<size_t>(rows), 1);
  state.cache.begin_append(context_, counts, part(own, count - own));
  return part(0, rows);
}

// The results go to memory that outlives the arena.
void StepGraphs::run(Context& context, const DecodeState& state, const Tensor& ids, int64_t k,
                     std::span<const int32_t> banned) const {
  const ops::TopK best = ops::top_k(context, model_.step_logits(context, state, ids), k, banned);
  auto* to = static_cast<std::byte*>(best_.raw());
  context.backend().copy(to, best.ids.raw(), best.ids.bytes());
  context.backend().copy(to + best.ids.bytes(), best.log_probabilities.raw(),
                         best.log_probabilities.bytes());
}

// Plans the arena of a step by a dry run on the meta device.
void StepGraphs::plan(PlannedGraph& step, const DecodeState& state, int64_t k,
                      std::span<const int32_t> banned) {
  const int64_t rows = state.rows();
  const auto numbers = [&] { return meta_context_.zeros({rows}, DType::i32); };
  DecodeState dry;
  const Tensor& values = state.encoder.values;
  dry.cache = nn::KvCache(meta_context_, state.cache.options(), rows, 1);
  dry.encoder.values = meta_context_.empty(values.shape(), values.dtype());
  dry.encoder.sequences.longest = state.encoder.sequences.longest;
  dry.encoder.begin = numbers();
  dry.encoder.end = numbers();
  dry.output = state.output;
  dry.indices_validated = true;
  dry.cache.begin_append(meta_context_, std::vector<int32_t>(static_cast<size_t>(rows), 1));
  const Tensor ids = numbers();
  meta_context_.set_gemm_epilogues(context_.gemm_epilogues());
  meta_backend_->take_trace();  // these are not in the arena
  run(meta_context_, dry, ids, k, banned);
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
