#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "commands/commands.h"
#include "commands/compression/model_quality.h"
#include "settings/setting_types.h"
#include "settings/train_config.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

struct PruneArguments {
  ModelArguments model;
  std::string output;
  std::vector<std::string> calibration;
  std::vector<double> ffn, heads;
  std::vector<int64_t> layers;
  double sparsity = 0.5;
  std::string score = "magnitude", pattern;
  const CLI::Option* sparsity_flag = nullptr;
  const CLI::Option* score_flag = nullptr;
  bool quiet = false;

  bool structured() const { return !ffn.empty() || !heads.empty() || !layers.empty(); }
  bool unstructured() const { return sparsity_flag->count() > 0 || !pattern.empty(); }
};

// One value for both stacks, or the encoder's and the decoder's.
template <class T>
void set_stacks(const char* flag, const std::vector<T>& values, bool encoder, T& of_encoder,
                T& of_decoder) {
  if (values.empty()) return;
  if (values.size() == 2 && !encoder)
    usage_error(fmt::format("{}: a decoder-lm has one stack of layers: give one value", flag));
  of_encoder = values.front();
  of_decoder = values.back();
}

trafo_prune_options options_of(const PruneArguments& arguments, bool encoder) {
  auto options = with_defaults<trafo_prune_options>(trafo_prune_options_init);
  set_stacks("--ffn", arguments.ffn, encoder, options.encoder_ffn_share, options.decoder_ffn_share);
  set_stacks("--heads", arguments.heads, encoder, options.encoder_head_share,
             options.decoder_head_share);
  set_stacks("--layers", arguments.layers, encoder, options.encoder_layers, options.decoder_layers);
  return options;
}

trafo_model_config config_of(const trafo_model* model) {
  trafo_model_config config{};
  check(trafo_model_get_config(model, &config, sizeof config));
  return config;
}

// "encoder 2 x 4 heads, ffn 128; decoder 2 x 4 heads, ffn 128"
std::string stacks_of(const trafo_model_config& config) {
  const auto or_else = [](int64_t own, int64_t other) { return own > 0 ? own : other; };
  std::string text;
  if (has_encoder(config))
    text = fmt::format("encoder {} x {} heads, ffn {}; ", config.encoder_layers,
                       or_else(config.encoder_heads, config.heads),
                       or_else(config.encoder_ffn_width, config.ffn_width));
  return text + fmt::format("decoder {} x {} heads, ffn {}", config.decoder_layers, config.heads,
                            config.ffn_width);
}

std::string size_of(const trafo_model* model) {
  int64_t tensors = 0, elements = 0;
  check(trafo_model_get_parameter_count(model, &tensors, &elements));
  return fmt::format("{:.2f} million parameters ({})", static_cast<double>(elements) / 1e6,
                     stacks_of(config_of(model)));
}

void check_flags(const PruneArguments& arguments) {
  if (!arguments.structured() && !arguments.unstructured())
    usage_error(
        "prune wants --ffn, --heads or --layers: how much stays; or --sparsity or --pattern: how "
        "many weights become zero");
  if (arguments.structured() && arguments.unstructured())
    usage_error(fmt::format("{} and {} are two kinds of pruning: make one after the other",
                            arguments.sparsity_flag->count() > 0 ? "--sparsity" : "--pattern",
                            !arguments.ffn.empty()     ? "--ffn"
                            : !arguments.heads.empty() ? "--heads"
                                                       : "--layers"));
  if (arguments.structured() && arguments.score_flag->count() > 0)
    usage_error("--score is of --sparsity and --pattern: it does not choose columns or heads");
  const bool wanda = arguments.unstructured() && arguments.score == "wanda";
  if (arguments.calibration.empty() && (arguments.structured() || wanda))
    usage_error(fmt::format("--train-sets: {} is measured on a sample of the training data",
                            wanda ? "--score wanda" : "what is needed least"));
}

Model without_parts(const PruneArguments& arguments, const LoadedModel& loaded, bool encoder) {
  const trafo_prune_options options = options_of(arguments, encoder);
  const Corpus calibration = open_sample("--train-sets", arguments.calibration, encoder);
  return make<Model>(trafo_model_prune, static_cast<const trafo_model*>(loaded.model.get()),
                     static_cast<const trafo_tokenizer*>(loaded.tokenizer.get()),
                     static_cast<const trafo_corpus*>(calibration.get()), &options,
                     static_cast<const trafo_cancel*>(nullptr));
}

Model with_zeros(const PruneArguments& arguments, const LoadedModel& loaded, bool encoder) {
  auto options = with_defaults<trafo_sparsify_options>(trafo_sparsify_options_init);
  options.sparsity = arguments.sparsity;
  options.score = arguments.score == "wanda" ? TRAFO_PRUNE_WANDA : TRAFO_PRUNE_MAGNITUDE;
  options.pattern = arguments.pattern.empty() ? TRAFO_SPARSITY_UNSTRUCTURED : TRAFO_SPARSITY_2_4;
  Corpus calibration;
  if (!arguments.calibration.empty()) {
    calibration = open_sample("--train-sets", arguments.calibration, encoder);
    options.calibration = calibration.get();
    options.tokenizer = loaded.tokenizer.get();
  }
  return make<Model>(trafo_model_sparsify, loaded.model.get(), &options,
                     static_cast<const trafo_cancel*>(nullptr));
}

int prune(const PruneArguments& arguments) {
  check_flags(arguments);
  require_no_model_in(arguments.output);
  Reporter reporter({.quiet = arguments.quiet});
  const LoadedModel loaded = load_model(arguments.model, reporter);
  const bool encoder = has_encoder(config_of(loaded.model.get()));
  const Reporter::Phase phase(reporter, "pruning");
  const Model pruned = arguments.structured() ? without_parts(arguments, loaded, encoder)
                                              : with_zeros(arguments, loaded, encoder);
  const std::string path =
      write_model_folder(arguments.output, pruned.get(), loaded.tokenizer.get());
  if (arguments.structured())
    reporter.info(fmt::format("{}: {}, before {}; {:.1f} s", path, size_of(pruned.get()),
                              size_of(loaded.model.get()), phase.seconds()));
  else
    reporter.info(
        fmt::format("{}: {}; {:.1f} s", path, count_zeros(pruned.get()).text(), phase.seconds()));
  return kDone;
}

}  // namespace

Action add_prune(CLI::App& app) {
  auto arguments = std::make_shared<PruneArguments>();
  add_model_arguments(app, arguments->model);
  app.add_option("-o,--output", arguments->output, "directory for model.safetensors and vocabulary")
      ->required()
      ->type_name("DIR");
  app.add_option("-t,--train-sets", arguments->calibration,
                 "a sample of the training data, which says what is needed least: SRC TRG, or one "
                 "text for a decoder-lm; --sparsity without --score wanda needs none")
      ->expected(1, 2)
      ->type_name("FILE");
  app.add_option("--ffn", arguments->ffn,
                 "share of the feed-forward columns that stays, of each layer; two values: of the "
                 "encoder and of the decoder")
      ->expected(1, 2)
      ->type_name("R");
  app.add_option("--heads", arguments->heads,
                 "share of the attention heads that stays, of each layer; two values as above")
      ->expected(1, 2)
      ->type_name("R");
  app.add_option("--layers", arguments->layers,
                 "layers that stay in each stack; two values as above")
      ->expected(1, 2)
      ->type_name("N");
  arguments->sparsity_flag =
      app.add_option("--sparsity", arguments->sparsity,
                     "share of the weights of each linear layer that becomes zero, instead of "
                     "removing parts (with --pattern 2:4: 0.5)")
          ->type_name("S");
  arguments->score_flag =
      app.add_option("--score", arguments->score,
                     "which weights become zero: magnitude (default) or wanda, which multiplies it "
                     "with the norm of the inputs")
          ->check(CLI::IsMember({"magnitude", "wanda"}))
          ->type_name("NAME");
  app.add_option("--pattern", arguments->pattern,
                 "2:4: of each four neighbours of a row, two become zero")
      ->check(CLI::IsMember({"2:4"}))
      ->type_name("N:M");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer(
      "What is removed is gone: DIR has a smaller model, which train --pretrained-model DIR "
      "fine-tunes. It has lost quality until then. 500 to 2,000 pairs are enough for -t.\n"
      "--sparsity leaves the shape of the model; train --keep-zeros on fine-tunes such a model, "
      "and "
      "train --prune-sparsity S prunes gradually.");
  return [arguments] { return prune(*arguments); };
}

}  // namespace translate_train
