// Tables of schema that commands share (generated/settings.cc).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "settings/settings.h"

namespace translate_train {

// A member of a struct of options and the flag that sets it.
struct MemberFlag {
  const char* member;
  const char* flag;
};
// Of trafo_trainer_options and trafo_model_config.
std::span<const MemberFlag> member_flags();
// Of trafo_translate_options.
std::span<const MemberFlag> decoding_member_flags();

// A metric of schema/metrics.toml.
struct MetricSpec {
  const char* name;        // of --valid-metrics and metrics.jsonl
  const char* title;       // for readers
  const char* short_name;  // where a line has little room
  int32_t bit;             // TRAFO_METRIC_*
  int decimals;
  bool lower_is_better;
  bool of_translations;

  bool is_better(double value, double than) const {
    return lower_is_better ? value < than : value > than;
  }
};
std::span<const MetricSpec> metric_specs();
// The metric with a bit of the C ABI. Null: a library of a later version has made it.
const MetricSpec* metric_of(int32_t bit);
// Null if no setting has this name.
const MetricSpec* metric_named(std::string_view name);
// "bleu, chrf, ter, ce-mean-words"
std::string known_metrics();

struct Architecture {
  const char* name;  // on the command line
  bool has_encoder;  // false: one sequence holds source and target
};
// By their numbers in the C ABI.
std::span<const Architecture> architectures();
inline constexpr std::string_view kTeacher = "teacher", kReference = "reference";
struct ObjectiveSpec {
  const char* name;                        // on the command line
  std::string_view other_model;            // its role: kTeacher, kReference or "none"
  bool preferences;                        // it learns from preference pairs
  std::span<const int32_t> valid_metrics;  // the default of --valid-metrics; none: the task's
};
// By their numbers in the C ABI.
std::span<const ObjectiveSpec> objectives();
struct ObjectiveSetting {
  Setting setting;
  int32_t objective;
};
// The settings of one objective alone.
std::span<const ObjectiveSetting> objective_settings();
struct OptimizerSetting {
  Setting setting;
  std::span<const int32_t> optimizers;
};
// The settings that not all optimizers have, with the ones that do.
std::span<const OptimizerSetting> optimizer_settings();
// An option that files of models have only where it is not the default.
struct FurtherOption {
  const char* name;
  std::variant<bool, int64_t, double, std::string> value;
};
// The ones that are not the default.
std::vector<FurtherOption> further_options(const trafo_model_config& config);
// The settings that decide the shape of a model's weights.
std::span<const Setting> shape_settings();

}  // namespace translate_train
