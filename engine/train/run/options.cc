#include "engine/train/run/options.h"

#include "engine/core/argument_error.h"
#include "engine/metrics/registry.h"
#include "engine/train/run/generated/train_options_fields.h"

namespace trafo {
namespace {

constexpr const char* kOptionsOrigin = "train options";

void check_option(const char* origin, const OptionField& field, const Period& period) {
  require_argument(period.value >= 0, origin, field.name, " must be 0 (never) or above, got ",
                   period.value);
  require_argument(period.unit == PeriodUnit::updates || period.unit == PeriodUnit::tokens ||
                       period.unit == PeriodUnit::epochs,
                   origin, field.name, " has the unknown unit ", static_cast<int32_t>(period.unit));
}

void check_option(const char* origin, const OptionField& field,
                  const std::vector<std::string>& metrics) {
  require_argument(!metrics.empty(), origin, field.name, " is empty, it lists one or more of ",
                   known_metrics());
  for (size_t i = 0; i < metrics.size(); ++i) {
    const std::string& name = metrics[i];
    require_argument(find_metric(name) != nullptr, origin, field.name, " has the unknown metric '",
                     name, "', known are ", known_metrics());
    for (size_t j = 0; j < i; ++j)
      require_argument(metrics[j] != name, origin, field.name, " names ", name, " twice");
  }
}

}  // namespace

void validate(const TrainOptions& options) {
  for_each_field_of_training(options, [](const OptionField& field, const auto& value) {
    check_option(kOptionsOrigin, field, value);
  });
  require_argument(
      options.quantize_bits == 0 || options.quantize_bits == 4 || options.quantize_bits == 8,
      kOptionsOrigin, "quantize_bits", " must be 8, 4 or 0 (no quantization), got ",
      options.quantize_bits);
  require_argument(options.prune_end == 0 || options.prune_end >= options.prune_start,
                   kOptionsOrigin, "prune_end",
                   " must be 0 (where pruning starts) or at least that, got ", options.prune_end,
                   " with a start at ", options.prune_start);
  require_argument(
      options.window_stride == 0 ||
          (options.long_lines == LongLines::window && options.window_stride <= options.max_length),
      kOptionsOrigin, "window_stride",
      " must be at most max_length, and is for long_lines window only; got ", options.window_stride,
      " with max_length ", options.max_length, " and long_lines ", enum_name(options.long_lines));
  require_argument(options.long_lines == LongLines::drop || options.batch_fit ||
                       options.batch_tokens >= options.max_length,
                   kOptionsOrigin, "batch_tokens", " must be at least max_length, ",
                   options.max_length, ", with long_lines window; got ", options.batch_tokens);
  validate(static_cast<const OptimizerOptions&>(options));
  require_argument(!needs_whole_matrices(options.optimizer) ||
                       (options.prune_sparsity == 0 && !options.keep_zeros),
                   kOptionsOrigin, options.keep_zeros ? "keep_zeros" : "prune_sparsity", ": ",
                   enum_name(options.optimizer),
                   " changes every weight of a matrix, also those that are zero");
  Schedule{schedule_options(options, 1)};             // checks how they fit together
  constexpr int64_t kMostBatches = int64_t{1} << 20;  // of an update
  require_argument(options.lanes * options.gradient_accumulation <= kMostBatches, kOptionsOrigin,
                   "lanes", " times the batches that are accumulated must be ", "at most ",
                   kMostBatches, ", got ", options.lanes, " times ", options.gradient_accumulation);
}

ScheduleOptions schedule_options(const TrainOptions& o, int64_t width) {
  return {.kind = o.schedule,
          .learning_rate = o.learning_rate,
          .final_rate = o.final_rate,
          .warmup = o.warmup,
          .total = o.schedule_updates,
          .width = width};
}

std::string fixed_options_json(const TrainOptions& options) {
  Json out;
  for_each_field_of_training(options, [&]<class T>(const OptionField& field, const T& value) {
    if constexpr (!std::is_same_v<T, Period>)  // none of them is fixed
      if (field.fixed) write_option(out, field, value);
  });
  return out.dump();
}

}  // namespace trafo
