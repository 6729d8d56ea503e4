#include "settings/train_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "commands/device.h"
#include "settings/setting_types.h"

namespace translate_train {
namespace {

// Higher rates leave the reference within a few updates.
constexpr const char* kPreferenceRate = "1e-5";
constexpr const char* kClassificationRate = "3e-5";  // BERT: 5e-5, 3e-5 or 2e-5

// The library's options of a task.
Values preset(const std::string& task) {
  Values values;
  check(trafo_model_config_preset(&values.model, task.data(), task.size()));
  check(trafo_trainer_options_preset(&values.trainer, task.data(), task.size()));
  return values;
}

// Refuses settings that contradict the shape of the pretrained model.
void check_shape(const Settings& settings, const Values& wanted,
                 const trafo_model_config& pretrained) {
  Values its;
  its.model = pretrained;
  for (const Setting setting : shape_settings()) {
    if (setting == Setting::enc_depth && !has_encoder(pretrained)) continue;
    if (text_of(setting, wanted) != text_of(setting, its))
      settings.refuse(setting, "the pretrained model has " + text_of(setting, its));
  }
}

bool has_learned_positions(const trafo_model_config& model) {
  return has_encoder(model) ? model.learned_positions != 0
                            : model.positions != TRAFO_POSITIONS_ROTARY;
}

// The largest --max-length of a model: a side of an encoder-decoder has to fit with its </s> and
// <s>. A decoder-lm and an encoder count all tokens of a pair.
int64_t largest_length(const trafo_model_config& model) {
  const bool sides = has_encoder(model) && model.architecture != TRAFO_ENCODER;
  return sides ? model.max_positions - 2 : model.max_positions;
}
// Of a new model. A decoder-lm has room for an answer as long as a training text.
int64_t positions_for(const trafo_model_config& model, int64_t max_length) {
  if (model.architecture == TRAFO_ENCODER) return max_length;
  return has_encoder(model) ? max_length + 2 : 2 * max_length + 2;
}

// The shape of a pretrained model, where nothing else has been asked for.
void fill_shape(Settings& settings, const Pretrained& pretrained) {
  Values its;
  its.model = pretrained.config;
  const bool lm = !has_encoder(pretrained.config);
  for (const SettingSpec& spec : setting_specs()) {
    const Setting setting = setting_of(spec);
    if (spec.source != SettingSource::model) continue;
    if (setting == Setting::transformer_depth_scaling) continue;  // of initial weights
    if (lm && setting == Setting::enc_depth) continue;
    settings.take_default(setting, its);
  }
  if (lm || has_learned_positions(pretrained.config))
    settings.set_default(
        Setting::max_length,
        {std::to_string(std::min<int64_t>(256, largest_length(pretrained.config)))});
}

// --after says when a run or its phase ends.
void take_limits(const Settings& settings, trafo_trainer_options& options) {
  for (const RunLimit& limit : settings.program.after) {
    const std::string text = text_of(limit);
    if (limit.of_phase && options.phase == 1)
      settings.refuse(Setting::after,
                      text + " counts from the start of a phase: give --phase 2, or above");
    if (!limit.of_phase && options.phase > 1 && limit.period.value > 0)
      settings.refuse(Setting::after,
                      fmt::format("{} would count from the start of the run: phase {} wants +{}, "
                                  "which counts from its own start",
                                  text, options.phase, text));
    int64_t& slot = limit.period.unit == TRAFO_UNIT_UPDATES  ? options.after_updates
                    : limit.period.unit == TRAFO_UNIT_TOKENS ? options.after_tokens
                                                             : options.after_epochs;
    slot = limit.period.value;
  }
}

// These defaults go before the defaults of the task and of the pretrained model.
void fill_preference_defaults(Settings& settings) {
  settings.set_default(Setting::learn_rate, {kPreferenceRate});
  // A run is short: an average of its weights would hardly differ from the model at its start.
  settings.set_default(Setting::exponential_smoothing, {"0"});
  // The reference has no dropout: the rewards would be noise.
  for (const Setting dropout :
       {Setting::transformer_dropout, Setting::transformer_dropout_attention,
        Setting::transformer_dropout_ffn})
    settings.set_default(dropout, {"0"});
}

}  // namespace

const ObjectiveSpec& objective_of(const Settings& settings) {
  const int32_t kind =
      settings.has(Setting::objective) ? settings.trainer.objective : TRAFO_OBJECTIVE_CROSS_ENTROPY;
  return objectives()[static_cast<size_t>(kind)];
}

bool has_preferences(const Settings& settings) {
  return objective_of(settings).preferences;
}

bool trains_encoder(const Settings& settings) {
  if (!settings.has(Setting::objective)) return false;
  const int32_t objective = settings.trainer.objective;
  return objective == TRAFO_OBJECTIVE_CLASSIFICATION || objective == TRAFO_OBJECTIVE_MASKED_LM;
}

bool has_encoder(const trafo_model_config& config) {
  return architectures()[static_cast<size_t>(config.architecture)].has_encoder;
}

bool is_monolingual(const Settings& settings) {
  return !has_preferences(settings) && settings.has(Setting::train_sets) &&
         (settings.program.train_sets.size() == 1 || has_token_files(settings));
}

bool has_token_files(const Settings& settings) {
  return settings.program.data_format >=
         TRAFO_CORPUS_LLM_C;  // its words are those of TRAFO_CORPUS_*
}

const char* task_for(int64_t pairs, bool decoder_only) {
  if (decoder_only) return "lm";
  return pairs < 100000 ? "tiny" : pairs < 1000000 ? "iwslt" : "base";
}

void fill_defaults(Settings& settings, const Pretrained* pretrained, int64_t pairs) {
  std::vector<std::string> metrics;
  for (const int32_t metric : objective_of(settings).valid_metrics)
    metrics.emplace_back(metric_of(metric)->name);
  if (!metrics.empty()) settings.set_default(Setting::valid_metrics, metrics);
  if (has_preferences(settings)) fill_preference_defaults(settings);
  if (settings.has(Setting::objective) &&
      settings.trainer.objective == TRAFO_OBJECTIVE_CLASSIFICATION)
    settings.set_default(Setting::learn_rate, {kClassificationRate});
  if (pretrained) fill_shape(settings, *pretrained);
  settings.set_default(Setting::task, {task_for(pairs, !has_encoder(settings.model))});
  Values defaults = preset(text_of(Setting::task, settings));
  const int32_t architecture =
      settings.has(Setting::arch) ? settings.model.architecture : defaults.model.architecture;
  const bool lm = !architectures()[static_cast<size_t>(architecture)].has_encoder;
  if (lm && has_encoder(defaults.model)) {
    defaults.model.activation = TRAFO_GELU;
    defaults.model.pre_norm = 1;
  }
  defaults.model.architecture = architecture;
  defaults.program.dim_vocabs = defaults.model.vocabulary;
  settings.take_default(Setting::dim_vocabs, defaults);
  if (lm && is_monolingual(settings))  // there is nothing to translate
    settings.set_default(Setting::valid_metrics, {metric_of(TRAFO_METRIC_CE)->name});
  if (lm && has_token_files(settings)) settings.set_default(Setting::long_lines, {"window"});
  for (const SettingSpec& spec : setting_specs()) {
    if (lm && setting_of(spec) == Setting::enc_depth) continue;
    if (spec.source != SettingSource::program)
      settings.take_default(setting_of(spec), defaults);
    else if (spec.default_value != nullptr)
      settings.set_default(setting_of(spec), {spec.default_value});
  }
  if (settings.has(Setting::devices)) settings.unset(Setting::device);
}

TrainConfig resolve(const Settings& settings, const Pretrained* pretrained) {
  Values values = preset(text_of(Setting::task, settings));
  trafo_model_config& m = values.model;
  const int64_t encoder_layers = m.encoder_layers;
  settings.fill(values);
  const bool lm = !has_encoder(m);
  if (lm) {
    if (settings.has(Setting::enc_depth) && settings.model.encoder_layers != 0)
      settings.refuse(
          Setting::enc_depth,
          "a " + text_of(Setting::arch, settings) + " has no encoder" +
              (is_monolingual(settings) ? "; one file alone trains a language model, two a "
                                          "translator: --train-sets SRC TRG"
                                        : ""));
    m.encoder_layers = encoder_layers;
  }
  trafo_trainer_options& t = values.trainer;
  const std::vector<double>& alphas = settings.program.sentencepiece_alphas;
  t.source_alpha = alphas.front();
  t.target_alpha = alphas.back();
  take_limits(settings, t);
  // The longest pair that --max-length lets through has to fit, </s> and <s> included; a window has
  // one side.
  const bool windows = t.long_lines == TRAFO_LONG_LINES_WINDOW;
  if (windows && !lm)
    settings.refuse(Setting::long_lines,
                    "window is for a decoder-lm; an encoder-decoder needs whole pairs");
  m.max_positions =
      std::max(m.max_positions, windows ? t.max_length : positions_for(m, t.max_length));
  if (pretrained) {
    check_shape(settings, values, pretrained->config);
    const trafo_model_config mine = m;
    m = pretrained->config;
    m.dropout = mine.dropout;
    m.ffn_dropout = mine.ffn_dropout;
    m.attention_dropout = mine.attention_dropout;
    m.base_precision = mine.base_precision;
    if (!has_learned_positions(m)) m.max_positions = std::max(m.max_positions, mine.max_positions);
    if (windows && t.max_length > m.max_positions)
      settings.refuse(
          Setting::max_length,
          fmt::format("the pretrained model has {} positions, for windows of at most as many",
                      m.max_positions));
    if (!windows && t.max_length > largest_length(m))
      settings.refuse(Setting::max_length,
                      fmt::format("the pretrained model has {} positions, for up to {} tokens{}",
                                  m.max_positions, largest_length(m),
                                  has_encoder(m) && m.architecture != TRAFO_ENCODER
                                      ? " a side"
                                      : " of both sides together"));
  }
  if (t.schedule == TRAFO_SCHEDULE_COSINE || t.schedule == TRAFO_SCHEDULE_LINEAR) {
    if (t.after_updates == 0)
      settings.refuse(Setting::lr_decay,
                      t.phase > 1 ? "cosine and linear need an end in updates: give --after +Nu"
                                  : "cosine and linear need an end in updates: give --after Nu");
    t.schedule_updates = t.after_updates;
  }
  // Checked with the others; the device decides what auto is (precision_on).
  context_options_of(settings);
  const std::string& precision = settings.program.precision;
  refuse_fp16(precision);
  if (std::ranges::find(kPrecisions, precision) == std::end(kPrecisions))
    settings.refuse(Setting::precision,
                    fmt::format("wants auto, fp32, tf32, bf16 or fp8, got '{}'", precision));
  return {m, t, t.seed};
}

void check_together(const TrainConfig& config) {
  trafo_trainer_options options = config.trainer;
  options.batch_fit = 0;
  options.memory_limit = 0;
  trafo_memory_plan plan{};
  trafo_model_config model = config.model;
  model.base_precision = TRAFO_BASE_PRECISION_NONE;  // there is no adapter here to train
  check(trafo_plan_training(&model, &options, nullptr, 0, 1, has_encoder(model), 1, &plan,
                            sizeof plan));
}

}  // namespace translate_train
