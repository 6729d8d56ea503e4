#include "engine/train/memory_plan.h"

#include <algorithm>

#include "engine/backend/plan/plan_backend.h"
#include "engine/ops/op_kernel.h"
#include "engine/train/trainer.h"

namespace trafo {
namespace {

constexpr const char* kOrigin = "memory plan";

// `tokens` in sentences of as equal a length as possible; sentence i ends at boundaries[i + 1].
void fill_side(int64_t sentences, int64_t tokens, std::vector<int32_t>& positions,
               std::vector<int32_t>& boundaries) {
  boundaries.push_back(0);
  for (int64_t s = 0; s < sentences; ++s) {
    const int64_t length = tokens * (s + 1) / sentences - tokens * s / sentences;
    for (int64_t i = 0; i < length; ++i) positions.push_back(static_cast<int32_t>(i));
    boundaries.push_back(static_cast<int32_t>(positions.size()));
  }
}

PackedBatchHost batch_of(const ModelConfig& config, const BatchSizes& sizes) {
  const bool lm = config.architecture == Architecture::decoder_lm;
  const auto check = [&](const char* side, int64_t tokens) {
    require(tokens >= sizes.sentences && tokens <= INT32_MAX &&
                (tokens + sizes.sentences - 1) / sizes.sentences <= config.max_positions,
            ErrorCode::invalid_argument, kOrigin, sizes.sentences, " sentences cannot have ",
            tokens, " ", side, " tokens: a sentence has 1 to ", config.max_positions);
  };
  require(sizes.sentences >= 1, ErrorCode::invalid_argument, kOrigin,
          "a batch has at least one sentence, got ", sizes.sentences);
  check("target", sizes.target_tokens);
  PackedBatchHost batch;
  fill_side(sizes.sentences, sizes.target_tokens, batch.target_positions, batch.target_cu_seqlens);
  batch.target_in.resize(batch.target_positions.size());
  batch.target_out.resize(batch.target_positions.size());
  if (lm) {
    require(sizes.source_tokens == 0, ErrorCode::invalid_argument, kOrigin,
            "a decoder-lm has no source tokens, got ", sizes.source_tokens);
    return batch;
  }
  check("source", sizes.source_tokens);
  fill_side(sizes.sentences, sizes.source_tokens, batch.source_positions, batch.source_cu_seqlens);
  batch.source_ids.resize(batch.source_positions.size());
  return batch;
}

}  // namespace

MemoryPlan plan_training(Device device, const ModelConfig& config, DType dtype,
                         const TrainOptions& options, const BatchSizes& sizes) {
  require(device.kind == DeviceKind::cuda, ErrorCode::unsupported, kOrigin,
          "plans are for CUDA; on the CPU memory is taken as it is needed");
  validate(config);
  const PackedBatchHost batch = batch_of(config, sizes);
  const auto backend = make_plan_backend(device, kOpKernelCount);
  Context context(backend);
  context.set_graphs(false);
  const auto model = make_model(context, config, 1, dtype);
  MemoryPlan plan;
  plan.gradients = static_cast<int64_t>(model->parameters().flat_grad().bytes());
  plan.weights = backend->memory_stats().allocated_bytes - plan.gradients;
  Trainer trainer(context, *model, options);
  plan.optimizer = trainer.optimizer_bytes();
  const std::vector<PackedBatchHost> micro_batches(
      static_cast<size_t>(std::min<int64_t>(2, options.optimizer_delay)), batch);
  trainer.submit(micro_batches);
  plan.activations = static_cast<int64_t>(backend->arena_bytes());
  plan.total = backend->memory_stats().peak_bytes;
  return plan;
}

}  // namespace trafo
