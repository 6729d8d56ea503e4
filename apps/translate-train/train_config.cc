#include "train_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "device.h"

namespace translate_train {
namespace {

constexpr const char* kTasks[] = {"tiny", "small", "iwslt", "base", "big", "lm", "gpt2", "llama"};
constexpr const char* kArchitectures[] = {"encoder-decoder", "decoder-lm"};
constexpr const char* kActivations[] = {"relu", "gelu", "swish"};
constexpr const char* kNorms[] = {"post", "pre"};
constexpr const char* kRecompute[] = {"none", "selective", "full"};
constexpr const char* kOptimizerStates[] = {"fp32", "8bit"};
constexpr const char* kStoppingMetrics[] = {"first", "any", "all"};
constexpr const char* kMetrics[] = {"ce-mean-words", "bleu", "chrf"};  // bit 1 << index

// How the presets of the library are trained. Small corpora want strong dropout and, for their
// small models, a high rate; the rates of iwslt and base are the usual ones of those setups, and so
// is the smoothing (Marian's transformer tasks have it too).
struct TaskDefaults {
  const char* task;
  const char* learn_rate;
  const char* warmup;
  const char* dropout;
  const char* ffn_dropout;
  const char* attention_dropout;
  const char* vocabulary;
  const char* smoothing;
};
constexpr TaskDefaults kDefaults[] = {
    {"tiny", "0.005", "1000", "0.3", "0", "0", "8000", "0"},
    {"small", "0.002", "1000", "0.3", "0.3", "0.1", "8000", "0.0001"},
    {"iwslt", "0.0005", "4000", "0.3", "0", "0", "16000", "0.0001"},
    {"base", "0.0007", "4000", "0.1", "0", "0", "32000", "0.0001"},
    {"big", "0.0005", "4000", "0.3", "0", "0", "32000", "0.0001"},
    {"lm", "0.001", "1000", "0.2", "0", "0", "8000", "0"},
    {"gpt2", "0.0006", "2000", "0.1", "0", "0", "32000", "0"},
    {"llama", "0.001", "1000", "0.2", "0", "0", "8000", "0"},
};

trafo_model_config preset(const std::string& task) {
  auto config = with_defaults<trafo_model_config>(trafo_model_config_init);
  check(trafo_model_config_preset(&config, task.data(), task.size()));
  return config;
}

int schedule_of(const Settings& settings) {
  const std::string& name = settings.text("lr-decay");
  if (name == "inv-sqrt" || name == "inverse_sqrt") return TRAFO_SCHEDULE_INVERSE_SQRT;
  if (name == "cosine") return TRAFO_SCHEDULE_COSINE;
  if (name == "linear") return TRAFO_SCHEDULE_LINEAR;
  if (name == "constant" || name == "fixed") return TRAFO_SCHEDULE_CONSTANT;
  if (name == "noam") return TRAFO_SCHEDULE_NOAM;
  settings.refuse("lr-decay",
                  fmt::format("wants inv-sqrt, cosine, linear, constant or noam, got '{}'", name));
}

// Given without a value: Marian's.
double smoothing_of(const Settings& settings) {
  const auto& values = settings.list("exponential-smoothing");
  if (values.empty() || values[0].empty() || values[0] == "on") return 1e-4;
  if (values[0] == "off") return 0;
  const double share = settings.real("exponential-smoothing");
  if (share < 0 || share >= 1)
    settings.refuse("exponential-smoothing",
                    fmt::format("wants a share of at least 0 and below 1, got {}", share));
  return share;
}

std::string number(auto value) {
  return fmt::format("{}", value);
}

// What of a pretrained model a setting may not say otherwise.
void check_shape(const Settings& settings, const trafo_model_config& wanted,
                 const trafo_model_config& pretrained) {
  const auto same = [&](const char* name, int64_t mine, int64_t its, const std::string& text) {
    if (mine != its) settings.refuse(name, "the pretrained model has " + text);
  };
  const trafo_model_config& p = pretrained;
  same("arch", wanted.architecture, p.architecture, kArchitectures[p.architecture]);
  if (p.architecture == TRAFO_ENCODER_DECODER)
    same("enc-depth", wanted.encoder_layers, p.encoder_layers, number(p.encoder_layers));
  same("dec-depth", wanted.decoder_layers, p.decoder_layers, number(p.decoder_layers));
  same("dim-emb", wanted.width, p.width, number(p.width));
  same("transformer-dim-ffn", wanted.ffn_width, p.ffn_width, number(p.ffn_width));
  same("transformer-heads", wanted.heads, p.heads, number(p.heads));
  same("transformer-kv-heads", wanted.kv_heads, p.kv_heads, number(p.kv_heads));
  same("transformer-ffn-activation", wanted.activation, p.activation, kActivations[p.activation]);
  same("transformer-norm", wanted.pre_norm, p.pre_norm, kNorms[p.pre_norm]);
  same("tied-embeddings-all", wanted.tied_embeddings, p.tied_embeddings,
       p.tied_embeddings ? "on" : "off");
}

int32_t small_integer(const Settings& settings, const std::string& name) {
  const int64_t value = settings.integer(name);
  if (value < 0 || value > INT32_MAX)
    settings.refuse(name, fmt::format("is out of range: {}", value));
  return static_cast<int32_t>(value);
}

void read_after(const Settings& settings, trafo_trainer_options& options) {
  for (const std::string& value : settings.list("after")) {
    for (size_t begin = 0; begin <= value.size();) {
      const size_t end = std::min(value.find(',', begin), value.size());
      const trafo_period limit = parse_period(settings, "after", value.substr(begin, end - begin));
      int64_t& slot = limit.unit == TRAFO_UNIT_UPDATES  ? options.after_updates
                      : limit.unit == TRAFO_UNIT_TOKENS ? options.after_tokens
                                                        : options.after_epochs;
      slot = limit.value;
      begin = end + 1;
    }
  }
}

}  // namespace

trafo_period parse_period(const Settings& settings, const std::string& name,
                          const std::string& text) {
  std::string number = text;
  trafo_period period{0, TRAFO_UNIT_UPDATES, 0};
  if (!number.empty()) {
    const char unit = number.back();
    if (unit == 'u' || unit == 't' || unit == 'e') {
      period.unit = unit == 'u'   ? TRAFO_UNIT_UPDATES
                    : unit == 't' ? TRAFO_UNIT_TOKENS
                                  : TRAFO_UNIT_EPOCHS;
      number.pop_back();
    }
  }
  if (!parse_count(number, period.value) || period.value < 0)
    settings.refuse(
        name,
        fmt::format("wants a number and a unit (1000u updates, 2Mt target tokens, 10e epochs), "
                    "got '{}'",
                    text));
  return period;
}

bool is_monolingual(const Settings& settings) {
  return settings.has("train-sets") && settings.list("train-sets").size() == 1;
}

const char* task_for(int64_t pairs, bool decoder_lm) {
  if (decoder_lm) return "lm";
  return pairs < 100000 ? "tiny" : pairs < 1000000 ? "iwslt" : "base";
}

void fill_defaults(Settings& settings, int64_t pairs) {
  const bool lm = settings.has("arch") && settings.text("arch") == "decoder-lm";
  settings.set_default("task", {task_for(pairs, lm)});
  const std::string task = settings.text("task");
  settings.choice("task", kTasks);
  const trafo_model_config model = preset(task);
  settings.set_default("arch", {kArchitectures[model.architecture == TRAFO_DECODER_LM]});
  const bool decoder_lm = settings.choice("arch", kArchitectures) == 1;
  const auto& defaults = *std::find_if(std::begin(kDefaults), std::end(kDefaults),
                                       [&](const auto& each) { return task == each.task; });

  if (!decoder_lm) settings.set_default("enc-depth", {number(model.encoder_layers)});
  settings.set_default("dec-depth", {number(model.decoder_layers)});
  settings.set_default("dim-emb", {number(model.width)});
  settings.set_default("transformer-dim-ffn", {number(model.ffn_width)});
  settings.set_default("transformer-heads", {number(model.heads)});
  settings.set_default("transformer-kv-heads", {number(model.kv_heads)});
  settings.set_default(
      "transformer-ffn-activation",
      {decoder_lm && model.architecture != TRAFO_DECODER_LM ? "gelu"
                                                            : kActivations[model.activation]});
  settings.set_default("transformer-norm", {kNorms[decoder_lm ? 1 : model.pre_norm]});
  settings.set_default("transformer-dropout", {defaults.dropout});
  settings.set_default("transformer-dropout-ffn", {defaults.ffn_dropout});
  settings.set_default("transformer-dropout-attention", {defaults.attention_dropout});
  settings.set_default("tied-embeddings-all", {model.tied_embeddings ? "on" : "off"});
  settings.set_default("transformer-depth-scaling", {"off"});
  settings.set_default("dim-vocabs", {defaults.vocabulary});
  settings.set_default("max-length", {"256"});
  settings.set_default("max-length-ratio", {"0"});
  settings.set_default("drop-identical", {"off"});
  settings.set_default("sentencepiece-alphas", {"0"});
  settings.set_default("maxi-batch", {"0"});
  settings.set_default("data-in-memory", {"256MiB"});
  settings.set_default("mini-batch-words", {"4096"});
  settings.set_default("mini-batch-fit", {"off"});
  settings.set_default("learn-rate", {defaults.learn_rate});
  settings.set_default("lr-warmup", {defaults.warmup});
  settings.set_default("lr-decay", {"inv-sqrt"});
  settings.set_default("exponential-smoothing", {defaults.smoothing});
  settings.set_default("optimizer-delay", {"1"});
  settings.set_default("optimizer-states", {"fp32"});
  settings.set_default("label-smoothing", {"0.1"});
  settings.set_default("clip-norm", {"1"});
  settings.set_default("weight-decay", {"0"});
  settings.set_default("after", {"0u"});
  settings.set_default("early-stopping", {"10"});
  settings.set_default("early-stopping-on", {"first"});
  settings.set_default("seed", {"1"});
  settings.set_default("valid-freq", {"1000u"});
  settings.set_default("save-freq", {"1000u"});
  if (is_monolingual(settings))  // there is nothing to translate
    settings.set_default("valid-metrics", {"ce-mean-words"});
  else
    settings.set_default("valid-metrics", {"bleu", "chrf", "ce-mean-words"});
  settings.set_default("beam-size", {"1"});
  settings.set_default("normalize", {"1"});
  settings.set_default("keep-best", {"on"});
  settings.set_default("keep-last", {"3"});
  settings.set_default("average-last", {"0"});
  settings.set_default("device", {"auto"});
  settings.set_default("cpu-threads", {"0"});
  settings.set_default("precision", {"auto"});
  settings.set_default("recompute", {"none"});
  settings.set_default("autotune-gemm", {"off"});
  settings.set_default("memory-limit", {"0"});
  settings.set_default("cuda-graphs", {"on"});
  settings.set_default("fused-kernels", {"on"});
  settings.set_default("disp-freq", {"20u"});
  settings.set_default("log-format", {"text"});
  settings.set_default("progress", {"auto"});
  settings.set_default("tensorboard", {"off"});
  settings.set_default("quiet", {"off"});
}

void fill_shape(Settings& settings, const Pretrained& pretrained) {
  const trafo_model_config& m = pretrained.config;
  const bool lm = m.architecture == TRAFO_DECODER_LM;
  settings.set_default("arch", {kArchitectures[m.architecture]});
  if (!lm) settings.set_default("enc-depth", {number(m.encoder_layers)});
  settings.set_default("dec-depth", {number(m.decoder_layers)});
  settings.set_default("dim-emb", {number(m.width)});
  settings.set_default("transformer-dim-ffn", {number(m.ffn_width)});
  settings.set_default("transformer-heads", {number(m.heads)});
  settings.set_default("transformer-kv-heads", {number(m.kv_heads)});
  settings.set_default("transformer-ffn-activation", {kActivations[m.activation]});
  settings.set_default("transformer-norm", {kNorms[m.pre_norm]});
  settings.set_default("transformer-dropout", {number(m.dropout)});
  settings.set_default("transformer-dropout-ffn", {number(m.ffn_dropout)});
  settings.set_default("transformer-dropout-attention", {number(m.attention_dropout)});
  settings.set_default("tied-embeddings-all", {m.tied_embeddings ? "on" : "off"});
  // Learned positions end somewhere: the pair and its </s> and <s> have to fit.
  if (lm)
    settings.set_default("max-length", {number(std::min<int64_t>(256, m.max_positions / 2 - 1))});
}

TrainConfig resolve(const Settings& settings, const Pretrained* pretrained) {
  TrainConfig config;
  trafo_model_config& m = config.model = preset(settings.text("task"));
  m.architecture = settings.choice("arch", kArchitectures);
  const bool lm = m.architecture == TRAFO_DECODER_LM;
  if (lm && settings.has("enc-depth") && settings.integer("enc-depth") != 0)
    settings.refuse("enc-depth", "a decoder-lm has no encoder");
  if (!lm) m.encoder_layers = settings.integer("enc-depth");
  m.decoder_layers = settings.integer("dec-depth");
  m.width = settings.integer("dim-emb");
  m.ffn_width = settings.integer("transformer-dim-ffn");
  m.heads = settings.integer("transformer-heads");
  m.kv_heads = settings.integer("transformer-kv-heads");
  m.activation = settings.choice("transformer-ffn-activation", kActivations);
  m.pre_norm = settings.choice("transformer-norm", kNorms);
  m.dropout = settings.real("transformer-dropout");
  m.ffn_dropout = settings.real("transformer-dropout-ffn");
  m.attention_dropout = settings.real("transformer-dropout-attention");
  m.tied_embeddings = settings.flag("tied-embeddings-all");
  m.depth_scaled_init = settings.flag("transformer-depth-scaling");

  trafo_trainer_options& t = config.trainer =
      with_defaults<trafo_trainer_options>(trafo_trainer_options_init);
  const int64_t seed = settings.integer("seed");
  if (seed < 0) settings.refuse("seed", "must be at least 0");
  config.seed = t.seed = static_cast<uint64_t>(seed);
  t.max_length = settings.integer("max-length");
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
                                  "up to {} pieces a side",
                                  m.max_positions, m.max_positions / 2 - 1));
  }
  t.max_length_ratio = settings.real("max-length-ratio");
  t.drop_identical = settings.flag("drop-identical");
  t.maxi_batch = small_integer(settings, "maxi-batch");
  const std::vector<double> alphas = settings.reals("sentencepiece-alphas");
  t.source_alpha = alphas.front();
  t.target_alpha = alphas.back();
  if (settings.has("data-weights")) settings.reals("data-weights");
  int64_t in_memory = 0;
  if (!parse_bytes(settings.text("data-in-memory"), in_memory))
    settings.refuse("data-in-memory", fmt::format("wants a size as 800MiB or 4GiB, got '{}'",
                                                  settings.text("data-in-memory")));
  t.learning_rate = settings.real("learn-rate");
  t.warmup = settings.integer("lr-warmup");
  t.schedule = schedule_of(settings);
  t.gradient_accumulation = small_integer(settings, "optimizer-delay");
  t.optimizer_states = settings.choice("optimizer-states", kOptimizerStates);
  t.ema_alpha = smoothing_of(settings);
  t.label_smoothing = settings.real("label-smoothing");
  t.clip_norm = settings.real("clip-norm");
  t.weight_decay = settings.real("weight-decay");
  t.batch_tokens = settings.integer("mini-batch-words");
  t.batch_fit = settings.flag("mini-batch-fit");
  read_after(settings, t);
  if (t.schedule == TRAFO_SCHEDULE_COSINE || t.schedule == TRAFO_SCHEDULE_LINEAR) {
    if (t.after_updates == 0)
      settings.refuse("lr-decay", "cosine and linear need an end in updates: give --after Nu");
    t.schedule_updates = t.after_updates;
  }
  t.valid_freq = parse_period(settings, "valid-freq", settings.text("valid-freq"));
  t.save_freq = parse_period(settings, "save-freq", settings.text("save-freq"));
  t.log_freq = parse_period(settings, "disp-freq", settings.text("disp-freq"));
  t.log_first = 5;
  t.early_stopping = small_integer(settings, "early-stopping");
  t.early_stopping_on = settings.choice("early-stopping-on", kStoppingMetrics);
  t.average_last = small_integer(settings, "average-last");
  t.valid_metrics = t.first_metric = 0;
  for (const std::string& name : settings.list("valid-metrics")) {
    const auto found = std::find(std::begin(kMetrics), std::end(kMetrics), name);
    if (found == std::end(kMetrics))
      settings.refuse("valid-metrics",
                      fmt::format("wants some of bleu, chrf, ce-mean-words, got '{}'", name));
    const int32_t bit = 1 << (found - std::begin(kMetrics));
    if (t.first_metric == 0) t.first_metric = bit;
    t.valid_metrics |= bit;
  }
  t.valid_beam = small_integer(settings, "beam-size");
  t.valid_normalize = settings.real("normalize");
  t.keep_last = small_integer(settings, "keep-last");
  t.keep_best = settings.flag("keep-best");
  t.recompute = settings.choice("recompute", kRecompute);
  t.autotune_gemm = settings.flag("autotune-gemm");
  if (!parse_bytes(settings.text("memory-limit"), t.memory_limit))
    settings.refuse("memory-limit", fmt::format("wants a size as 800MiB or 4GiB, got '{}'",
                                                settings.text("memory-limit")));

  // Checked with the others; the device decides what auto is (precision_on).
  context_options(settings.text("device"), settings.integer("cpu-threads"),
                  settings.flag("fused-kernels"));
  refuse_fp16(settings.text("precision"));
  settings.choice("precision", kPrecisions);
  settings.flag("cuda-graphs");
  return config;
}

}  // namespace translate_train
