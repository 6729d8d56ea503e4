#include "engine/train/plan/run_plan.h"

#include <algorithm>
#include <map>

#include "engine/core/strings/number_text.h"
#include "engine/data/long_text.h"
#include "engine/objective/registry.h"

namespace trafo {
namespace {

constexpr const char* kRunPlanOrigin = "memory plan";
constexpr Recompute kLevels[] = {Recompute::none, Recompute::selective, Recompute::full};

std::string mebibytes(int64_t bytes) {
  return fixed_text(static_cast<double>(bytes) / 1048576, 1) + " MiB";
}

// Memory plans of one run with different options.
class Plans {
 public:
  Plans(Device device, const Model& model, const Batcher& batcher, const TrainingData& data,
        const TrainOptions& options, const TrainingGroup& group)
      : device_(device),
        model_(model),
        batcher_(batcher),
        frozen_(data.frozen ? &data.frozen->model->config() : nullptr),
        options_(options),
        group_(group) {
    const bool lm = !model.spec().has_encoder();
    const auto needs = [lm](int64_t source, int64_t target) {
      return lm ? target : std::max(target, (source + 1) / 2);
    };
    // A batch that holds the whole corpus.
    most_ = 1 << 28;
    const PairSource& corpus = batcher.corpus();
    if (batcher.one_window() && !corpus.varies()) {
      int64_t sources = 0, targets = 0;
      for (const BatchExtent& pair : batcher.extents(0)) {  // one by one
        longest_ = std::max(longest_, needs(pair.source_tokens, pair.target_tokens));
        sources += pair.source_tokens;
        targets += pair.target_tokens;
      }
      most_ = std::min(most_, needs(sources, targets));
    } else {
      // Not all lengths are known, but none exceeds max_length; a preference pair has two.
      longest_ =
          std::max<int64_t>(longest_, corpus.options().max_length * (corpus.preferences() ? 2 : 1));
    }
    const TokenizedCorpus* valid = data.valid.get();
    for (int64_t i = 0; valid != nullptr && i < valid->size(); ++i) {
      const auto source = static_cast<int64_t>(valid->source(i).size());
      const auto target = static_cast<int64_t>(valid->target(i).size());
      const auto rejected = static_cast<int64_t>(valid->rejected(i).size());
      const int64_t sequences = rejected > 0 ? 2 : 1;
      if (valid->options().answers_apart) {
        const int64_t answer = std::max(target, rejected);
        longest_ =
            std::max(longest_, lm ? 2 * (source - 1 + answer) : needs(2 * source, 2 * answer));
        continue;
      }
      if (windows_of(valid->options(), source, target) > 1)
        longest_ = std::max<int64_t>(longest_, valid->options().max_length);
      else
        longest_ = std::max(longest_, lm ? sequences * (source - 1) + target + rejected
                                         : needs(sequences * source, target + rejected));
    }
    most_ = std::max(most_, longest_);  // a validation pair may be longer than the corpus
  }

  const Batcher& batcher() const { return batcher_; }
  int64_t longest() const { return longest_; }

  // `delay`: batches per update, if more than in the options.
  MemoryPlan of(Recompute recompute, int64_t batch_tokens, int64_t delay = 1) const {
    TrainOptions options = options_;
    options.recompute = recompute;
    options.gradient_accumulation = std::max(options.gradient_accumulation, delay);
    const ParameterStore& parameters = model_.parameters();
    const PlannedGroups groups{.like = &parameters, .teacher = frozen_};
    return plan_training(device_, model_.config(), parameters.dtype(), options,
                         largest_buckets(batcher_, model_.spec(), batch_tokens), groups, group_);
  }
  // The largest budget whose plan fits `limit`, to within one part in 128; 0 if there is none.
  int64_t largest(Recompute recompute, int64_t limit, int64_t most, int64_t delay = 1) const {
    return largest_that([&](int64_t tokens) { return of(recompute, tokens, delay).total <= limit; },
                        longest_, most);
  }
  int64_t largest(Recompute recompute, int64_t limit) const {
    return largest(recompute, limit, most_);
  }

 private:
  Device device_;
  const Model& model_;
  const Batcher& batcher_;
  const ModelConfig* frozen_;  // of data.frozen
  TrainOptions options_;
  TrainingGroup group_;
  int64_t longest_ = 2, most_ = 0;
};

[[noreturn]] void refuse(const Plans& plans, const RunPlan& plan, Device device,
                         const TrainOptions& options, bool resumed) {
  std::string ways;
  const auto add = [&](const std::string& way, int64_t total) {
    ways += concat(ways.empty() ? "" : "; or with ", way, " (", mebibytes(total), ")");
  };
  for (const Recompute level : kLevels) {
    if (level <= options.recompute) continue;
    const int64_t total = plans.of(level, plan.batch_tokens).total;
    if (total > plan.limit) continue;
    add(concat("recompute ", enum_name(level)), total);
    break;
  }
  for (const Recompute level : {options.recompute, Recompute::full}) {
    if (resumed) break;  // its batches are fixed
    // Smaller batches, several per update.
    const int64_t tokens = plans.largest(level, plan.limit, plan.batch_tokens - 1, 2);
    if (tokens == 0) continue;
    const int64_t delay = (options.gradient_accumulation * plan.batch_tokens + tokens - 1) / tokens;
    add(concat(level == options.recompute ? "" : "recompute full, ", "batch_tokens ", tokens,
               " and, to update with as many, gradient_accumulation ", delay),
        plans.of(level, tokens, 2).total);
    break;
  }
  if (ways.empty())
    ways = resumed ? "nothing that a run may change when it resumes"
                   : "nothing but a smaller model: all is recomputed and the batch holds but the "
                     "longest pair";
  fail(device.kind == DeviceKind::cpu ? ErrorCode::out_of_memory : ErrorCode::out_of_device_memory,
       kRunPlanOrigin, "training would take ", mebibytes(plan.memory.total), " (weights ",
       mebibytes(plan.memory.weights), ", gradients ", mebibytes(plan.memory.gradients),
       ", optimizer ", mebibytes(plan.memory.optimizer),
       plan.memory.teacher > 0 ? concat(", ", role_name(frozen_role(options.objective)), " ",
                                        mebibytes(plan.memory.teacher))
                               : std::string(),
       ", activations ", mebibytes(plan.memory.activations), ", with batch_tokens ",
       plan.batch_tokens, " and recompute ", enum_name(options.recompute), "), and ",
       mebibytes(plan.limit), options.memory_limit == plan.limit ? " are allowed" : " are free",
       " on ", device_name(device), ". It would fit with ", ways);
}

}  // namespace

std::vector<BatchBucket> largest_buckets(const Batcher& batcher, const ModelSpec& spec,
                                         int64_t batch_tokens) {
  BatchBucket common;                  // more sentences cost next to nothing
  std::map<int64_t, int64_t> sources;  // padded target tokens -> most padded source tokens
  for (const BatchExtent& extent : batcher.extents(batch_tokens)) {
    const BatchBucket padded =
        padded_bucket({extent.sentences, extent.source_tokens, extent.target_tokens,
                       extent.longest_source, extent.longest_target});
    common.sentences = std::max(common.sentences, padded.sentences);
    common.longest_source = std::max(common.longest_source, extent.longest_source);
    common.longest_target = std::max(common.longest_target, extent.longest_target);
    int64_t& source = sources[padded.target_tokens];
    source = std::max(source, padded.source_tokens);
  }
  const PairSource& corpus = batcher.corpus();
  common.fields = packed_fields(spec, corpus.preferences(), corpus.options().answers_apart);
  std::vector<BatchBucket> buckets;
  int64_t most = -1;
  for (auto each = sources.rbegin(); each != sources.rend(); ++each) {
    if (each->second <= most) continue;
    most = each->second;
    common.target_tokens = each->first;
    common.source_tokens = each->second;
    buckets.push_back(common);
  }
  return buckets;
}

RunPlan plan_run(const Context& context, const Model& model, const Batcher& batcher,
                 const TrainingData& data, const TrainOptions& options, bool resumed,
                 const TrainingGroup& group) {
  const Device device = context.device();
  const Plans plans(device, model, batcher, data, options, group);
  RunPlan plan;
  plan.device = device_memory(device);
  plan.batch_tokens = plans.batcher().batch_tokens();
  plan.memory = plans.of(options.recompute, plan.batch_tokens);

  // The models are allocated already, and the run can use cached blocks.
  const MemoryStats stats = context.backend().memory_stats();
  const int64_t there = plan.memory.weights + plan.memory.gradients + plan.memory.teacher +
                        stats.reserved_bytes - stats.allocated_bytes;
  const int64_t free = plan.device ? plan.device->free + there : 0;
  int64_t room = options.memory_limit;
  if (plan.device) room = room > 0 ? std::min(room, free) : free;
  plan.limit = room;
  if (options.batch_fit && !resumed) {
    if (plan.device) room = std::min(room, free - free / kReservedShare);
    require(room > 0, ErrorCode::invalid_argument, kRunPlanOrigin, device_name(device),
            " does not say how much memory is free: set memory_limit to fit batches to it");
    const int64_t tokens = plans.largest(options.recompute, room);
    plan.batch_tokens = tokens > 0 ? tokens : plans.longest();
    plan.memory = plans.of(options.recompute, plan.batch_tokens);
  }
  if (plan.limit > 0 && plan.memory.total > plan.limit)
    refuse(plans, plan, device, options, resumed);
  plan.buckets = largest_buckets(plans.batcher(), model.spec(), plan.batch_tokens);
  return plan;
}

}  // namespace trafo
