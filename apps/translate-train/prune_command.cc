#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "commands.h"
#include "train_config.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

struct PruneArguments {
  ModelArguments model;
  std::string output;
  std::vector<std::string> calibration;
  std::vector<double> ffn, heads;
  std::vector<int64_t> layers;
  bool quiet = false;
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

Corpus open_calibration(const PruneArguments& arguments, bool encoder) {
  if (encoder && arguments.calibration.size() != 2)
    usage_error("--train-sets: an encoder-decoder is measured on SRC TRG");
  auto options = with_defaults<trafo_corpus_options>(trafo_corpus_options_init);
  options.monolingual = arguments.calibration.size() == 1;
  const std::vector<trafo_string_view> paths = views(arguments.calibration);
  return make<Corpus>(trafo_corpus_open, paths.data(), paths.size(), &options);
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

int prune(const PruneArguments& arguments) {
  if (arguments.ffn.empty() && arguments.heads.empty() && arguments.layers.empty())
    usage_error("prune wants --ffn, --heads or --layers: how much stays");
  require_no_model_in(arguments.output);
  Reporter reporter({.quiet = arguments.quiet});
  const LoadedModel loaded = load_model(arguments.model, reporter);
  const bool encoder = has_encoder(config_of(loaded.model.get()));
  const trafo_prune_options options = options_of(arguments, encoder);
  const Corpus calibration = open_calibration(arguments, encoder);
  const Reporter::Phase phase(reporter, "pruning");
  const auto pruned =
      make<Model>(trafo_model_prune, static_cast<const trafo_model*>(loaded.model.get()),
                  static_cast<const trafo_tokenizer*>(loaded.tokenizer.get()),
                  static_cast<const trafo_corpus*>(calibration.get()), &options,
                  static_cast<const trafo_cancel*>(nullptr));
  const std::string path =
      write_model_folder(arguments.output, pruned.get(), loaded.tokenizer.get());
  reporter.info(fmt::format("{}: {}, before {}; {:.1f} s", path, size_of(pruned.get()),
                            size_of(loaded.model.get()), phase.seconds()));
  return kDone;
}

}  // namespace

Action add_prune(CLI::App& app) {
  auto arguments = std::make_shared<PruneArguments>();
  add_model_arguments(app, arguments->model);
  app.add_option("-o,--output", arguments->output, "directory for model.safetensors and vocab.spm")
      ->required()
      ->type_name("DIR");
  app.add_option("-t,--train-sets", arguments->calibration,
                 "a sample of the training data, which says what is needed least: SRC TRG, or one "
                 "text for a decoder-lm")
      ->required()
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
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer(
      "What is removed is gone: DIR has a smaller model, which train --pretrained-model DIR "
      "fine-tunes. It has lost quality until then. 500 to 2,000 pairs are enough for -t.");
  return [arguments] { return prune(*arguments); };
}

}  // namespace translate_train
