#include "settings/train_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "commands/device.h"
#include "settings/setting_types.h"

namespace translate_train {
namespace {

trafo_model_config model_preset(const std::string& task) {
  auto config = with_defaults<trafo_model_config>(trafo_model_config_init);
  check(trafo_model_config_preset(&config, task.data(), task.size()));
  return config;
}

trafo_trainer_options training_preset(const std::string& task) {
  auto options = with_defaults<trafo_trainer_options>(trafo_trainer_options_init);
  check(trafo_trainer_options_preset(&options, task.data(), task.size()));
  return options;
}

// The shape settings of a model as text.
Settings shape_of(const trafo_model_config& config) {
  Settings shape;
  set_defaults(shape, config);
  if (!has_encoder(config)) shape.unset("enc-depth");
  return shape;
}

// What of a pretrained model a setting may not say otherwise.
void check_shape(const Settings& settings, const trafo_model_config& wanted,
                 const trafo_model_config& pretrained) {
  const Settings mine = shape_of(wanted), its = shape_of(pretrained);
  for (const char* name : shape_settings())
    if (mine.has(name) && its.has(name) && mine.list(name) != its.list(name))
      settings.refuse(name,
                      fmt::format("the pretrained model has {}", fmt::join(its.list(name), " ")));
}

// Learned positions end somewhere: a pair and its </s> and <s> have to fit.
int64_t longest_pair(const trafo_model_config& model) {
  return model.max_positions / 2 - 1;
}

}  // namespace

bool has_encoder(const trafo_model_config& config) {
  return architectures()[static_cast<size_t>(config.architecture)].has_encoder;
}

bool is_monolingual(const Settings& settings) {
  return settings.has("train-sets") && settings.list("train-sets").size() == 1;
}

const char* task_for(int64_t pairs, bool decoder_only) {
  if (decoder_only) return "lm";
  return pairs < 100000 ? "tiny" : pairs < 1000000 ? "iwslt" : "base";
}

void fill_defaults(Settings& settings, int64_t pairs) {
  auto given = with_defaults<trafo_model_config>(trafo_model_config_init);
  read_options(settings, given);
  settings.set_default("task", {task_for(pairs, !has_encoder(given))});
  settings.choice("task", task_names());
  trafo_model_config model = model_preset(settings.text("task"));
  trafo_model_config wanted = model;
  read_options(settings, wanted);
  if (!has_encoder(wanted) && has_encoder(model)) {
    model.activation = TRAFO_GELU;
    model.pre_norm = 1;
  }
  model.architecture = wanted.architecture;
  settings.set_default("dim-vocabs", {std::to_string(model.vocabulary)});
  if (is_monolingual(settings))  // there is nothing to translate
    settings.set_default("valid-metrics", {metric_of(TRAFO_METRIC_CE)->name});
  const bool depth_given = settings.has("enc-depth");
  set_defaults(settings, model);
  if (!has_encoder(model) && !depth_given) settings.unset("enc-depth");
  set_defaults(settings, training_preset(settings.text("task")));
  for (const SettingSpec& spec : setting_specs())
    if (spec.default_value != nullptr) settings.set_default(spec.name, {spec.default_value});
  if (settings.has("devices")) settings.unset("device");
}

void fill_shape(Settings& settings, const Pretrained& pretrained) {
  Settings shape = shape_of(pretrained.config);
  shape.unset("transformer-depth-scaling");  // of initial weights, which it does not need
  if (!has_encoder(pretrained.config))
    shape.set_default("max-length",
                      {std::to_string(std::min<int64_t>(256, longest_pair(pretrained.config)))});
  shape.overlay(settings);
  settings = std::move(shape);
}

TrainConfig resolve(const Settings& settings, const Pretrained* pretrained) {
  TrainConfig config;
  trafo_model_config& m = config.model = model_preset(settings.text("task"));
  const int64_t encoder_layers = m.encoder_layers;
  read_options(settings, m);
  const bool lm = !has_encoder(m);
  if (lm) {
    if (settings.has("enc-depth") && settings.integer("enc-depth") != 0)
      settings.refuse("enc-depth", "a " + settings.text("arch") + " has no encoder" +
                                       (is_monolingual(settings)
                                            ? "; one file alone trains a language model, two a "
                                              "translator: --train-sets SRC TRG"
                                            : ""));
    m.encoder_layers = encoder_layers;
  }
  trafo_trainer_options& t = config.trainer = training_preset(settings.text("task"));
  read_options(settings, t);
  config.seed = t.seed;
  // The longest pair that --max-length lets through has to fit, </s> and <s> included.
  m.max_positions = std::max(m.max_positions, lm ? 2 * t.max_length + 2 : t.max_length + 2);
  if (pretrained) {
    check_shape(settings, m, pretrained->config);
    const trafo_model_config mine = m;
    m = pretrained->config;
    m.dropout = mine.dropout;
    m.ffn_dropout = mine.ffn_dropout;
    m.attention_dropout = mine.attention_dropout;
    if (!lm || m.positions == TRAFO_POSITIONS_ROTARY)
      m.max_positions = std::max(m.max_positions, mine.max_positions);
    if (lm && 2 * t.max_length + 2 > m.max_positions)
      settings.refuse("max-length",
                      fmt::format("the pretrained model has {} positions, for pairs of "
                                  "up to {} tokens a side",
                                  m.max_positions, longest_pair(m)));
  }
  if (settings.has("data-weights")) settings.reals("data-weights");
  settings.bytes("data-in-memory");
  if (t.schedule == TRAFO_SCHEDULE_COSINE || t.schedule == TRAFO_SCHEDULE_LINEAR) {
    if (t.after_updates == 0)
      settings.refuse("lr-decay",
                      t.phase > 1 ? "cosine and linear need an end in updates: give --after +Nu"
                                  : "cosine and linear need an end in updates: give --after Nu");
    t.schedule_updates = t.after_updates;
  }
  // Checked with the others; the device decides what auto is (precision_on).
  context_options_of(settings);
  refuse_fp16(settings.text("precision"));
  settings.choice("precision", kPrecisions);
  return config;
}

void check_together(const TrainConfig& config) {
  trafo_trainer_options options = config.trainer;
  options.batch_fit = 0;
  options.memory_limit = 0;
  trafo_memory_plan plan{};
  check(trafo_plan_training(&config.model, &options, nullptr, 0, 1, has_encoder(config.model), 1,
                            &plan, sizeof plan));
}

}  // namespace translate_train
