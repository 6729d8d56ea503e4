// Settings whose text is not one number, name or switch; generated/settings.cc calls these.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "commands/trafo_handles.h"
#include "settings/settings.h"

namespace translate_train {

// "1000u", "2Mt", "10e"; no unit means updates.
trafo_period parse_period(const Settings& settings, const std::string& name,
                          const std::string& text);
std::string period_text(const trafo_period& period);

// --enc-depth: 0 is right for a decoder-lm alone, which resolve() checks.
void read_encoder_layers(const Settings& settings, const std::string& name,
                         trafo_model_config& config);
// --transformer-tied-layers 1 1 3 3, 1,1,3,3 or none.
void read_tied_layers(const Settings& settings, const std::string& name,
                      uint8_t (&layers)[TRAFO_TIED_LAYERS]);
std::vector<std::string> layer_names(const uint8_t (&layers)[TRAFO_TIED_LAYERS]);
// --exponential-smoothing without a value: Marian's share.
void read_ema_alpha(const Settings& settings, const std::string& name,
                    trafo_trainer_options& options);
// --sentencepiece-alphas: one for both sides or one a side.
void read_alphas(const Settings& settings, const std::string& name, trafo_trainer_options& options);
// --after 20e,50ku: the limits of a run. --after +20e: of a phase, which --phase needs from 2 on.
void read_after(const Settings& settings, const std::string& name, trafo_trainer_options& options);
// --valid-metrics: the first one decides.
void read_metrics(const Settings& settings, const std::string& name,
                  trafo_trainer_options& options);
std::vector<std::string> metric_names(const trafo_trainer_options& options);

// Generated from the tables: what has been set goes into the struct; what has not becomes the text
// of the struct's value.
void read_options(const Settings& settings, trafo_trainer_options& options);
void read_options(const Settings& settings, trafo_model_config& config);
void read_options(const Settings& settings, trafo_translate_options& options);
void read_options(const Settings& settings, trafo_evaluation_options& options);
void set_defaults(Settings& settings, const trafo_trainer_options& options);
void set_defaults(Settings& settings, const trafo_model_config& config);
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
// The settings that decide the shape of a model's weights.
std::span<const char* const> shape_settings();
std::span<const char* const> task_names();

}  // namespace translate_train
