#include "settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "cli_error.h"
#include "yaml_file.h"

namespace translate_train {
namespace {

constexpr const char* kData = "Data";
constexpr const char* kModel = "Model";
constexpr const char* kTraining = "Training";
constexpr const char* kValidation = "Validation and checkpoints";
constexpr const char* kMachine = "Machine";
constexpr const char* kOutput = "Output";

constexpr SettingSpec kSpecs[] = {
    {"train-sets", "-t", kData, "SRC TRG ...",
     "training files, a sentence a line; plain or .gz; again for more corpora; one file alone is "
     "text for a decoder-lm",
     1, 64, true},
    {"tsv", "", kData, "FILE|- ...", "instead: files of SRC<tab>TRG lines, - is standard input", 1,
     64, true},
    {"data-weights", "--train-weights", kData, "W ...",
     "one for each corpus: how often an epoch has each of its pairs; 0.25: a quarter of them, "
     "another one each epoch (default 1)",
     1, 64, true},
    {"valid-sets", "", kData, "SRC TRG",
     "validation files (default: 1% of the training pairs, at most 2000, are held out by their "
     "hash)",
     1, 2, true},
    {"vocabs", "", kData, "FILE.spm", "SentencePiece model (default: trained on both sides)", 1, 1,
     true},
    {"dim-vocabs", "", kData, "N",
     "pieces of a new vocabulary (default: 8000, 16000, 32000 by task)", 1, 1, true},
    {"max-length", "", kData, "N", "longer pairs are left out and counted, in pieces (default 256)",
     1, 1, true},
    {"max-length-ratio", "", kData, "R",
     "pairs with a side of more than R times the pieces of the other are left out and counted "
     "(default 0: none)",
     1, 1, true},
    {"drop-identical", "", kData, "on|off",
     "pairs with the same text on both sides are left out and counted (default off)", 0, 1, true},
    {"sentencepiece-alphas", "", kData, "A [A]",
     "sample the segmentation of every sentence anew in each epoch, one value or one a side: by "
     "probability^A of a unigram vocabulary (try 0.2), dropping merges with probability A of a BPE "
     "vocabulary (try 0.1) (default 0: always the best one)",
     1, 2, true},
    {"maxi-batch", "", kData, "N",
     "batches filled from sentences sorted by length together (default 0: 262144 sentences)", 1, 1,
     true},
    {"data-in-memory", "", kData, "SIZE",
     "corpora with more text stay on disk, and the results are the same (default 256MiB)", 1, 1,
     true},
    {"tempdir", "", kData, "DIR",
     "where .gz files and standard input are unpacked if they stay on disk (default: the run "
     "directory)",
     1, 1, true},
    {"mini-batch-words", "--max-tokens", kData, "N", "target pieces a batch (default 4096)", 1, 1,
     true},
    {"mini-batch-fit", "", kData, "on|off",
     "instead: as many as the memory, or --memory-limit, has room for; a run keeps its choice", 0,
     1, true},

    {"task", "", kModel, "NAME",
     "tiny, small, iwslt, base, big, lm, gpt2 or llama: sets the defaults below (default: tiny "
     "under 100k pairs, iwslt under 1M, else base)",
     1, 1, true},
    {"arch", "", kModel, "NAME", "encoder-decoder or decoder-lm", 1, 1, true},
    {"enc-depth", "--encoder-layers", kModel, "N", "encoder layers", 1, 1, true},
    {"dec-depth", "--decoder-layers", kModel, "N", "decoder layers", 1, 1, true},
    {"dim-emb", "--encoder-embed-dim", kModel, "N", "width of the model", 1, 1, true},
    {"transformer-dim-ffn", "--encoder-ffn-embed-dim", kModel, "N", "width inside the feed-forward",
     1, 1, true},
    {"transformer-heads", "--encoder-attention-heads", kModel, "N", "attention heads", 1, 1, true},
    {"transformer-kv-heads", "", kModel, "N",
     "heads of keys and values that the others share, for --task llama; 0: as many as those", 1, 1,
     true},
    {"transformer-ffn-activation", "--activation-fn", kModel, "NAME", "relu, gelu or swish", 1, 1,
     true},
    {"transformer-norm", "", kModel, "NAME", "pre or post", 1, 1, true},
    {"transformer-dropout", "--dropout", kModel, "P",
     "dropout of embeddings and of every block's output", 1, 1, true},
    {"transformer-dropout-ffn", "--activation-dropout", kModel, "P",
     "dropout after the activation of the feed-forward", 1, 1, true},
    {"transformer-dropout-attention", "--attention-dropout", kModel, "P",
     "dropout of attention probabilities", 1, 1, true},
    {"transformer-depth-scaling", "", kModel, "on|off",
     "divide the initial weights of layer l by the root of l: deep models begin better (default "
     "off)",
     0, 1, true},
    {"tied-embeddings-all", "--share-all-embeddings", kModel, "on|off",
     "one matrix for source, target and output", 0, 1, true},

    {"learn-rate", "--lr", kTraining, "R", "peak learning rate", 1, 1, true},
    {"lr-warmup", "--warmup-updates", kTraining, "N", "updates to the peak", 1, 1, true},
    {"lr-decay", "--lr-scheduler", kTraining, "NAME",
     "inv-sqrt, cosine, linear, constant or noam (cosine and linear end where --after does)", 1, 1,
     true},
    {"optimizer-delay", "--update-freq", kTraining, "N", "batches an update", 1, 1, true},
    {"optimizer-states", "", kTraining, "NAME",
     "fp32 or 8bit: what the moments of AdamW are kept in, 8 or 2.03 bytes a parameter (default "
     "fp32)",
     1, 1, true},
    {"exponential-smoothing", "", kTraining, "[R]",
     "validate and save a running mean of the weights, which takes in the share R of every "
     "update's, 0: off (default 0 for tiny and decoders, else 1e-4, as without R)",
     0, 1, true},
    {"label-smoothing", "", kTraining, "P",
     "share of probability for the other pieces (default 0.1)", 1, 1, true},
    {"clip-norm", "", kTraining, "X", "largest gradient norm, 0: any", 1, 1, true},
    {"weight-decay", "", kTraining, "X", "decoupled", 1, 1, true},
    {"after", "-a,--max-update", kTraining, "N[ute]",
     "stop after updates (u), target tokens (t), epochs (e); 20e,50ku: at the first of them "
     "(default: when early stopping says so)",
     1, 8, true},
    {"early-stopping", "--patience", kTraining, "N",
     "stop after so many validations without a better metric (default 10, 0: never)", 1, 1, true},
    {"early-stopping-on", "", kTraining, "NAME",
     "first, any or all of --valid-metrics: which of them must be no better (default first)", 1, 1,
     true},
    {"pretrained-model", "--finetune-from-model", kTraining, "FILE|DIR",
     "begin with the weights and the vocabulary of this model, run or import; the shape of the "
     "model is then its own",
     1, 1, true},
    {"seed", "", kTraining, "N", "of weights, dropout and data order (default 1)", 1, 1, true},

    {"valid-freq", "--validate-interval-updates", kValidation, "N[ute]", "(default 1000u)", 1, 1,
     true},
    {"save-freq", "--save-interval-updates", kValidation, "N[ute]", "(default 1000u)", 1, 1, true},
    {"valid-metrics", "", kValidation, "NAME ...",
     "of bleu, chrf, ce-mean-words; the first one decides", 1, 3, true},
    {"beam-size", "--beam", kValidation, "N", "beam of validation (default 1: greedy)", 1, 1, true},
    {"normalize", "--lenpen", kValidation, "A",
     "of that beam: score = log-probability / length^A (default 1)", 1, 1, true},
    {"keep-best", "", kValidation, "on|off",
     "keep the best checkpoint of every metric (default on)", 0, 1, true},
    {"keep-last", "", kValidation, "N", "newest checkpoints kept (default 3)", 1, 1, true},
    {"average-last", "", kValidation, "N",
     "at the end, average so many of the newest checkpoints, which are kept for it, into "
     "ckpt/averaged and measure that (default 0: not)",
     1, 1, true},

    {"device", "", kMachine, "NAME",
     "auto, cpu, cuda or cuda:N (default auto: CUDA where there is one, else the CPU)", 1, 1, true},
    {"cpu-threads", "", kMachine, "N", "(default 0: every core); never changes results", 1, 1,
     true},
    {"precision", "", kMachine, "NAME",
     "auto, fp32 or bf16: what the model computes in (default auto: bf16 on CUDA, else fp32); "
     "weights are kept in fp32",
     1, 1, true},
    {"recompute", "", kMachine, "NAME",
     "none, selective or full: what backward computes a second time instead of keeping it; less "
     "memory, more time, the same results",
     1, 1, true},
    {"autotune-gemm", "--tune-products", kMachine, "on|off",
     "on: CUDA measures the kernels of matrix products when a batch has a new shape and takes the "
     "fastest; RUN/gemm-cache keeps them for continuing; nothing on the CPU (default off)",
     0, 1, true},
    {"memory-limit", "", kMachine, "SIZE",
     "of the device, as 800MiB or 4GiB (default 0: what is free); a run that needs more is refused",
     1, 1, true},
    {"workspace", "", kMachine, "SIZE",
     "Marian's name of --memory-limit; a plain number is in MiB, as there", 1, 1, false},
    {"cuda-graphs", "", kMachine, "on|off",
     "off: training steps are issued kernel by kernel, for profiling (default on)", 0, 1, true},
    {"fused-kernels", "", kMachine, "on|off", "off: the composed reference of every op", 0, 1,
     true},

    {"disp-freq", "--log-interval", kOutput, "N[ute]", "(default 20u, and each of the first 5)", 1,
     1, true},
    {"log-format", "", kOutput, "NAME", "text or json (default text)", 1, 1, true},
    {"progress", "", kOutput, "NAME", "auto or off (default auto: a live line on a terminal)", 1, 1,
     true},
    {"tensorboard", "--tensorboard-logdir", kOutput, "[DIR]",
     "also write TensorBoard's event files, into RUN/tensorboard or DIR", 0, 1, true},
    {"quiet", "-q", kOutput, "on|off", "errors and warnings only", 0, 1, true},
    {"model", "-m,--save-dir", kOutput, "DIR", "run directory (default run)", 1, 1, false},
};

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::span<const SettingSpec> setting_specs() {
  return kSpecs;
}

const SettingSpec* find_setting(std::string_view name) {
  const std::string flag = "--" + std::string(name);
  for (const SettingSpec& spec : kSpecs) {
    if (name == spec.name) return &spec;
    const std::string_view aliases = spec.aliases;
    for (size_t begin = 0; begin < aliases.size();) {
      const size_t end = std::min(aliases.find(',', begin), aliases.size());
      if (aliases.substr(begin, end - begin) == flag) return &spec;
      begin = end + 1;
    }
  }
  return nullptr;
}

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  size_t distance = SIZE_MAX;
  for (const std::string& candidate : candidates) {
    const size_t d = edit_distance(name, candidate);
    if (d < distance) distance = d, best = candidate;
  }
  return best;
}

std::string nearest_setting(std::string_view name) {
  std::vector<std::string> names;
  for (const SettingSpec& spec : kSpecs) names.emplace_back(spec.name);
  return nearest(name, names);
}

bool parse_count(std::string_view text, int64_t& out) {
  int64_t factor = 1;
  if (!text.empty()) {
    const char last = text.back();
    factor = last == 'k' || last == 'K' ? 1000
             : last == 'M'              ? 1000000
             : last == 'G'              ? 1000000000
                                        : 1;
    if (factor != 1) text.remove_suffix(1);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return false;
  return !__builtin_mul_overflow(out, factor, &out);
}

bool parse_bytes(std::string_view text, int64_t& out) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},     {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
      {"kB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  for (const auto& [unit, factor] : kUnits) {
    if (text != unit) continue;
    value *= factor;
    if (!(value >= 0 && value < 0x1p62)) return false;
    out = static_cast<int64_t>(value);
    return true;
  }
  return false;
}

void Settings::set(const std::string& name, std::vector<std::string> values, std::string origin) {
  values_[name] = {std::move(values), std::move(origin)};
}

void Settings::set_default(const std::string& name, std::vector<std::string> values) {
  values_.try_emplace(name, Value{std::move(values), "default of --" + name});
}

void Settings::overlay(const Settings& stronger) {
  for (const auto& [name, value] : stronger.values_) values_[name] = value;
}

void Settings::refuse(const std::string& name, const std::string& reason) const {
  const auto found = values_.find(name);
  const std::string origin = found == values_.end() ? "--" + name : found->second.origin;
  // "run.yml:3" does not say which setting it is.
  if (origin.find(name) == std::string::npos) usage_error(origin + " " + name + ": " + reason);
  usage_error(origin + ": " + reason);
}

const std::vector<std::string>& Settings::list(const std::string& name) const {
  return values_.at(name).values;
}

const std::string& Settings::text(const std::string& name) const {
  const auto& values = list(name);
  if (values.size() != 1 || values[0].empty()) refuse(name, "wants one value");
  return values[0];
}

int64_t Settings::integer(const std::string& name) const {
  int64_t value = 0;
  if (!parse_count(text(name), value))
    refuse(name, fmt::format("wants a whole number, got '{}'", text(name)));
  return value;
}

double Settings::real(const std::string& name) const {
  const std::string& word = text(name);
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(value))
    refuse(name, fmt::format("wants a number, got '{}'", word));
  return value;
}

std::vector<double> Settings::reals(const std::string& name) const {
  std::vector<double> result;
  for (const std::string& word : list(name)) {
    double& value = result.emplace_back();
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(value))
      refuse(name, fmt::format("wants numbers, got '{}'", word));
  }
  return result;
}

bool Settings::flag(const std::string& name) const {
  const auto& values = list(name);
  if (values.empty() || values[0].empty()) return true;  // given without a value
  const std::string& word = values[0];
  if (word == "on" || word == "true") return true;
  if (word == "off" || word == "false") return false;
  refuse(name, fmt::format("wants on or off, got '{}'", word));
}

int Settings::choice(const std::string& name, std::span<const char* const> names) const {
  std::string known;
  for (size_t i = 0; i < names.size(); ++i) {
    if (text(name) == names[i]) return static_cast<int>(i);
    known += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + std::string(names[i]);
  }
  refuse(name, fmt::format("wants {}, got '{}'", known, text(name)));
}

Settings Settings::from_yaml(const std::string& path) {
  YAML::Node root;
  try {
    root = load_yaml(path);
  } catch (const YAML::BadFile&) {
    usage_error(path + ": cannot be read");
  } catch (const YAML::Exception& error) {
    usage_error(fmt::format("{}:{} {}", path, error.mark.line + 1, error.msg));
  }
  Settings settings;
  if (root.IsNull()) return settings;
  if (!root.IsMap()) usage_error(fmt::format("{}:1 wants lines like 'learn-rate: 0.001'", path));
  for (const auto& entry : root) {
    const std::string where = fmt::format("{}:{}", path, entry.first.Mark().line + 1);
    const std::string given = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const SettingSpec* spec = find_setting(given);
    if (spec == nullptr)
      usage_error(fmt::format("{} unknown key '{}', the nearest known one is '{}'", where, given,
                              nearest_setting(given)));
    const std::string key = spec->name;
    if (settings.has(key)) usage_error(fmt::format("{} key '{}' is given twice", where, key));
    std::vector<std::string> values;
    if (entry.second.IsScalar()) {
      values.push_back(entry.second.Scalar());
    } else if (entry.second.IsSequence()) {
      for (const auto& item : entry.second) {
        if (!item.IsScalar()) usage_error(fmt::format("{} {}: wants plain values", where, key));
        values.push_back(item.Scalar());
      }
    } else {
      usage_error(fmt::format("{} {}: has no value", where, key));
    }
    const int count = static_cast<int>(values.size());
    if (count < std::max(1, spec->min_values) || count > spec->max_values)
      usage_error(fmt::format("{} {}: wants {} ({})", where, key, spec->values,
                              count == 1 ? "got 1 value" : fmt::format("got {} values", count)));
    settings.set(key, std::move(values), where);
  }
  return settings;
}

std::string Settings::to_yaml(bool place) const {
  YAML::Emitter out;
  out << YAML::Comment("Every setting of this run. Continuing takes them from here.");
  out << YAML::BeginMap;
  const char* group = "";
  for (const SettingSpec& spec : kSpecs) {
    const auto found = values_.find(spec.name);
    if ((!spec.in_run && !(place && std::string_view(spec.name) == "model")) ||
        found == values_.end())
      continue;
    if (group != spec.group) out << YAML::Newline << YAML::Comment(spec.group);
    group = spec.group;
    out << YAML::Key << spec.name << YAML::Value;
    const auto& values = found->second.values;
    if (spec.max_values > 1) {
      out << YAML::Flow << YAML::BeginSeq;
      for (const std::string& value : values) out << value;
      out << YAML::EndSeq;
    } else {
      out << (values.empty() || values[0].empty() ? std::string("on") : values[0]);
    }
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

}  // namespace translate_train
