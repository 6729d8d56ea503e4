#include "engine/train/plan/memory_plan.h"

#include <algorithm>

#include "engine/backend/meta/meta_backend.h"
#include "engine/core/argument_error.h"
#include "engine/models/adapter.h"
#include "engine/objective/frozen_model.h"
#include "engine/ops/gradient_kernels.h"
#include "engine/ops/op_kernel.h"
#include "engine/train/step/trainer.h"

namespace trafo {
namespace {

constexpr const char* kMemoryPlanOrigin = "memory plan";
constexpr int64_t kMaxTokens = 1 << 28;

void check_side(const ModelSpec& spec, const BatchSizes& sizes, const char* side, int64_t tokens) {
  require(tokens >= sizes.sentences && tokens <= INT32_MAX &&
              (tokens + sizes.sentences - 1) / sizes.sentences <= spec.max_positions,
          ErrorCode::invalid_argument, kMemoryPlanOrigin, sizes.sentences,
          " sentences cannot have ", tokens, " ", side, " tokens: a sentence has 1 to ",
          spec.max_positions);
}

// Of an update with these options.
BatchBucket bucket_of(const ModelSpec& spec, const BatchSizes& sizes, const TrainOptions& options) {
  require(sizes.sentences >= 1, ErrorCode::invalid_argument, kMemoryPlanOrigin,
          "a batch has at least one sentence, got ", sizes.sentences);
  check_side(spec, sizes, "target", sizes.target_tokens);
  BatchBucket bucket;
  if (spec.has_encoder())
    check_side(spec, sizes, "source", sizes.source_tokens);
  else
    require(sizes.source_tokens == 0, ErrorCode::invalid_argument, kMemoryPlanOrigin,
            "a decoder-lm has no source tokens, got ", sizes.source_tokens);
  const auto longest = [&](int64_t tokens) {
    return (tokens + sizes.sentences - 1) / sizes.sentences;
  };
  bucket.sentences = sizes.sentences;
  bucket.source_tokens = sizes.source_tokens;
  bucket.target_tokens = sizes.target_tokens;
  bucket.longest_source = longest(sizes.source_tokens);
  bucket.longest_target = longest(sizes.target_tokens);
  bucket.fields =
      packed_fields(spec, needs_preferences(options.objective), answers_apart(options.objective));
  return bucket;
}

}  // namespace

std::vector<BatchBucket> buckets_of_an_update(std::span<const BatchBucket> buckets,
                                              const TrainOptions& options) {
  std::vector<BatchBucket> all(buckets.begin(), buckets.end());
  for (BatchBucket& bucket : all) bucket.first = true;
  if (options.gradient_accumulation == 1) return all;
  for (BatchBucket bucket : buckets) {
    bucket.first = false;
    all.push_back(bucket);
  }
  return all;
}

MemoryPlan plan_training(Device device, const ModelConfig& config, DType dtype,
                         const TrainOptions& options, std::span<const BatchBucket> buckets,
                         const PlannedGroups& groups, const TrainingGroup& group) {
  validate(config);
  validate(options);
  const auto backend = make_meta_backend(device, kOpKernelCount);
  register_gradient_kernels();
  Context context(backend);
  context.set_graphs(false);
  const auto model = make_model(context, config, 1, dtype);
  if (groups.like) model->parameters().copy_groups(context, *groups.like);
  if (groups.adapter) add_adapter(context, *model, *groups.adapter, 1);
  for (const std::string& pattern : groups.frozen)
    model->parameters().set_trainable(context, pattern, false);
  model->parameters().set_quantize_bits(context, options.quantize_bits);
  MemoryPlan plan;
  plan.gradients = static_cast<int64_t>(model->parameters().flat_grad().bytes());
  plan.weights = backend->memory_stats().allocated_bytes - plan.gradients;
  std::shared_ptr<const FrozenModel> frozen;
  if (groups.teacher) {
    const FrozenRole role = frozen_role(options.objective);
    require(role != FrozenRole::none, ErrorCode::invalid_argument, kMemoryPlanOrigin,
            "the objective ", enum_name(options.objective), " has no second model");
    validate(*groups.teacher);
    require(groups.teacher->architecture == config.architecture &&
                groups.teacher->vocabulary == config.vocabulary &&
                spec_of(*groups.teacher).source_vocabulary() == spec_of(config).source_vocabulary(),
            ErrorCode::invalid_argument, kMemoryPlanOrigin, "the ", role_name(role),
            " has the architecture ", enum_name(groups.teacher->architecture), " and ",
            groups.teacher->vocabulary, " tokens, the model that is trained ",
            enum_name(config.architecture), " and ", config.vocabulary);
    frozen = frozen_model(context, make_model(context, *groups.teacher, 1, dtype), role);
    plan.teacher = backend->memory_stats().allocated_bytes - plan.weights - plan.gradients;
  }
  backend->reset_peak_memory();  // that had both layouts of the parameters
  Trainer trainer(context, *model, options,
                  TrainingGroup(group.rank, group.size, group.overlaps(), group.ranks_per_host()),
                  make_objective(options, frozen));
  plan.optimizer = trainer.optimizer_bytes();
  trainer.reserve(buckets_of_an_update(buckets, options));
  plan.activations = static_cast<int64_t>(backend->arena_bytes()) + trainer.fp8_bytes();
  plan.total = backend->memory_stats().peak_bytes;
  return plan;
}

BatchSizes largest_batch(Device device, const ModelConfig& config, DType dtype,
                         const TrainOptions& options, const BatchSizes& sizes,
                         const PlannedGroups& groups, const TrainingGroup& group) {
  validate(config);
  validate(options);
  bucket_of(spec_of(config), sizes, options);
  require_argument(options.memory_limit > 0, kMemoryPlanOrigin, "batch_fit",
                   " needs a memory limit to fit a batch to");
  const auto of = [&](int64_t sentences) {
    const auto share = [&](int64_t tokens) {
      return std::max(tokens > 0 ? sentences : 0,
                      tokens / sizes.sentences * sentences +
                          tokens % sizes.sentences * sentences / sizes.sentences);
    };
    return BatchSizes{sentences, share(sizes.source_tokens), share(sizes.target_tokens)};
  };
  const auto fits = [&](int64_t sentences) {
    return plan_training(device, config, dtype, options, of(sentences), groups, group).total <=
           options.memory_limit;
  };
  const int64_t most = std::max<int64_t>(
      1, kMaxTokens / (std::max(sizes.source_tokens, sizes.target_tokens) / sizes.sentences + 1));
  const int64_t low = largest_that(fits, 1, most);
  require(
      low > 0,
      device.kind == DeviceKind::cpu ? ErrorCode::out_of_memory : ErrorCode::out_of_device_memory,
      kMemoryPlanOrigin, "training takes ",
      plan_training(device, config, dtype, options, of(1), groups, group).total,
      " bytes with a batch of one sentence, ", options.memory_limit, " are allowed");
  return of(low);
}

MemoryPlan plan_training(Device device, const ModelConfig& config, DType dtype,
                         const TrainOptions& options, const BatchSizes& sizes,
                         const PlannedGroups& groups, const TrainingGroup& group) {
  validate(config);
  validate(options);
  const BatchBucket bucket = bucket_of(spec_of(config), sizes, options);
  return plan_training(device, config, dtype, options, {&bucket, 1}, groups, group);
}

}  // namespace trafo
