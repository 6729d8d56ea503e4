#include "engine/train/options.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/library_memory.h"
#include "engine/core/status.h"

namespace trafo {
namespace {

constexpr const char* kOrigin = "train options";
constexpr int64_t kLargest = int64_t{1} << 62;

void check_range(const char* field, int64_t value, int64_t low, int64_t high) {
  require(value >= low && value <= high, ErrorCode::invalid_argument, kOrigin, field, " must be ",
          low, " to ", high, ", got ", value);
}

void check_count(const char* field, int64_t value) {
  require(value >= 0, ErrorCode::invalid_argument, kOrigin, field,
          " must be 0 (never) or above, got ", value);
}

void check_real(const char* field, double value, double low, double high, bool low_allowed) {
  const bool inside = (low_allowed ? value >= low : value > low) && value < high;
  require(inside, ErrorCode::invalid_argument, kOrigin, field, " must be ",
          low_allowed ? "at least " : "above ", low, " and below ", high, ", got ", value);
}

void check_period(const char* field, const Period& period) {
  check_count(field, period.value);
  require(period.unit == PeriodUnit::updates || period.unit == PeriodUnit::tokens ||
              period.unit == PeriodUnit::epochs,
          ErrorCode::invalid_argument, kOrigin, field, " has the unknown unit ",
          static_cast<int32_t>(period.unit));
}

}  // namespace

void validate(const TrainOptions& o) {
  check_real("learn_rate", o.learn_rate, 0, 1e6, false);
  check_range("warmup", o.warmup, 0, kLargest);
  check_count("schedule_updates", o.schedule_updates);
  check_real("final_rate", o.final_rate, 0, 1e6, true);
  Schedule{schedule_options(o, 1)};  // checks how they fit together
  check_real("label_smoothing", o.label_smoothing, 0, 1, true);
  check_real("clip_norm", o.clip_norm, 0, INFINITY, true);
  check_real("weight_decay", o.weight_decay, 0, 1e6, true);
  check_real("beta1", o.beta1, 0, 1, true);
  check_real("beta2", o.beta2, 0, 1, true);
  check_real("epsilon", o.epsilon, 0, 1, false);
  require(o.optimizer_states == OptimizerStates::float32 ||
              o.optimizer_states == OptimizerStates::eight_bit,
          ErrorCode::invalid_argument, kOrigin, "optimizer_states has the unknown value ",
          static_cast<int32_t>(o.optimizer_states));
  check_real("exponential_smoothing", o.ema_alpha, 0, 1, true);
  check_range("optimizer_delay", o.gradient_accumulation, 1, 1 << 20);
  check_range("max_non_finite_steps", o.max_non_finite_steps, 1, 1 << 30);
  check_range("batch_tokens", o.batch_tokens, 2, 1 << 28);
  check_range("max_length", o.max_length, 2, 1 << 24);
  check_range("sort_window", o.sort_window, 0, kLargest);
  check_range("maxi_batch", o.maxi_batch, 0, 1 << 20);
  require(o.max_length_ratio == 0 || (o.max_length_ratio >= 1 && o.max_length_ratio < 1e6),
          ErrorCode::invalid_argument, kOrigin,
          "max_length_ratio must be 0 (any) or at least 1, got ", o.max_length_ratio);
  check_real("source_alpha", o.source_alpha, 0, 1e3, true);
  check_real("target_alpha", o.target_alpha, 0, 1e3, true);
  check_range("memory_limit", o.memory_limit, 0, kLargest);
  check_count("after_updates", o.after_updates);
  check_count("after_epochs", o.after_epochs);
  check_count("after_tokens", o.after_tokens);
  check_count("early_stopping", o.early_stopping);
  require(
      o.early_stopping_on >= StoppingMetrics::first && o.early_stopping_on <= StoppingMetrics::all,
      ErrorCode::invalid_argument, kOrigin, "early_stopping_on has the unknown value ",
      static_cast<int32_t>(o.early_stopping_on));
  check_period("log_freq", o.log_freq);
  check_count("log_first", o.log_first);
  check_period("valid_freq", o.valid_freq);
  check_period("save_freq", o.save_freq);
  require(!o.valid_metrics.empty(), ErrorCode::invalid_argument, kOrigin,
          "valid_metrics is empty, it lists one or more of ce-mean-words, bleu and chrf");
  for (size_t i = 0; i < o.valid_metrics.size(); ++i) {
    const std::string& name = o.valid_metrics[i];
    require(name == "ce-mean-words" || name == "bleu" || name == "chrf",
            ErrorCode::invalid_argument, kOrigin, "valid_metrics has the unknown metric '", name,
            "', known are ce-mean-words, bleu and chrf");
    for (size_t j = 0; j < i; ++j)
      require(o.valid_metrics[j] != name, ErrorCode::invalid_argument, kOrigin,
              "valid_metrics names ", name, " twice");
  }
  check_range("valid_beam", o.valid_beam, 1, 1024);
  check_real("valid_normalize", o.valid_normalize, 0, 1e3, true);
  check_range("valid_batch_tokens", o.valid_batch_tokens, 0, 1 << 28);
  check_range("keep_last", o.keep_last, 1, kLargest);
  check_range("average_last", o.average_last, 0, 1000);
}

ScheduleOptions schedule_options(const TrainOptions& o, int64_t width) {
  return {.kind = o.schedule,
          .learning_rate = o.learn_rate,
          .final_rate = o.final_rate,
          .warmup = o.warmup,
          .total = o.schedule_updates,
          .width = width};
}

std::string fixed_options_json(const TrainOptions& o) {
  const LibraryMemory memory(LibraryMemory::json(0));
  nlohmann::ordered_json out;
  out["learn_rate"] = o.learn_rate;
  out["schedule"] = schedule_name(o.schedule);
  out["warmup"] = o.warmup;
  out["schedule_updates"] = o.schedule_updates;
  out["final_rate"] = o.final_rate;
  out["label_smoothing"] = o.label_smoothing;
  out["clip_norm"] = o.clip_norm;
  out["weight_decay"] = o.weight_decay;
  out["decay_norms_and_biases"] = o.decay_norms_and_biases;
  out["beta1"] = o.beta1;
  out["beta2"] = o.beta2;
  out["epsilon"] = o.epsilon;
  out["optimizer_states"] = optimizer_states_name(o.optimizer_states);
  out["exponential_smoothing"] = o.ema_alpha;
  out["optimizer_delay"] = o.gradient_accumulation;
  out["seed"] = o.seed;
  out["batch_tokens"] = o.batch_tokens;
  out["max_length"] = o.max_length;
  out["sort_window"] = o.sort_window;
  out["maxi_batch"] = o.maxi_batch;
  out["max_length_ratio"] = o.max_length_ratio;
  out["drop_identical"] = o.drop_identical;
  out["source_alpha"] = o.source_alpha;
  out["target_alpha"] = o.target_alpha;
  return out.dump();
}

}  // namespace trafo
