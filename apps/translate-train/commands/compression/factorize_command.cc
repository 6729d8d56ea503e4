#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "commands/commands.h"
#include "commands/compression/model_quality.h"
#include "engine/os/names.h"
#include "settings/train_config.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

struct FactorizeArguments {
  ModelArguments model;
  std::string output;
  std::vector<std::string> calibration, valid, layers;
  int64_t rank = 0;
  double ratio = 0;
  const CLI::Option* rank_flag = nullptr;
  const CLI::Option* ratio_flag = nullptr;
  bool quiet = false;
};

void check_arguments(const FactorizeArguments& arguments) {
  const bool by_rank = arguments.rank_flag->count() > 0;
  if (by_rank == (arguments.ratio_flag->count() > 0))
    usage_error(fmt::format("factorize wants {} --rank and --ratio: how small the matrices become",
                            by_rank ? "one of" : "--rank or --ratio, one of"));
  if (by_rank && arguments.rank < 1)
    usage_error(fmt::format("--rank: at least 1, not {}", arguments.rank));
  if (!by_rank && !(arguments.ratio > 0 && arguments.ratio < 1))
    usage_error(fmt::format("--ratio: above 0 and below 1, not {:g}", arguments.ratio));
  if (arguments.calibration.empty())
    usage_error(
        "--train-sets: the factors are made for the inputs of a sample of the training data");
}

Model with_factors(const FactorizeArguments& arguments, const LoadedModel& loaded) {
  trafo_model_config config{};
  check(trafo_model_get_config(loaded.model.get(), &config, sizeof config));
  const Corpus calibration =
      open_sample("--train-sets", arguments.calibration, has_encoder(config));
  auto options = with_defaults<trafo_factorize_options>(trafo_factorize_options_init);
  options.rank = arguments.rank;
  options.ratio = arguments.ratio;
  const auto layers = views(arguments.layers);
  options.layers = layers.data();
  options.layers_count = layers.size();
  options.tokenizer = loaded.tokenizer.get();
  options.calibration = calibration.get();
  return make<Model>(trafo_model_factorize, loaded.model.get(),
                     static_cast<const trafo_factorize_options*>(&options),
                     static_cast<const trafo_cancel*>(nullptr));
}

double million_parameters(const trafo_model* model) {
  int64_t tensors = 0, elements = 0;
  check(trafo_model_get_parameter_count(model, &tensors, &elements));
  return static_cast<double>(elements) / 1e6;
}

int factorize(const FactorizeArguments& arguments) {
  check_arguments(arguments);
  require_no_model_in(arguments.output);
  Reporter reporter({.quiet = arguments.quiet});
  const std::string from = find_model(arguments.model).model;
  const LoadedModel loaded = load_model(arguments.model, reporter);
  Reporter::Phase phase(reporter, "reading");
  std::unique_ptr<ValidationPairs> pairs;
  Quality whole, factorized;
  if (!arguments.valid.empty()) {
    pairs = std::make_unique<ValidationPairs>(arguments.valid, loaded.tokenizer.get());
    phase.now("measuring the whole model");
    whole = pairs->quality(loaded.model.get());
  }
  phase.now("factorizing");
  const Model model = with_factors(arguments, loaded);
  if (pairs) {
    phase.now("measuring the factorized model");
    factorized = pairs->quality(model.get());
  }
  phase.now("writing");
  const std::string to = write_model_folder(arguments.output, model.get(), loaded.tokenizer.get());

  const std::vector<MeasuredMatrix> outer = measured_matrices(
      model.get(), [](const trafo_parameter_info& info) { return is_outer_factor(info.name); });
  if (!arguments.quiet) {
    LineWriter out("-");
    out.write("rank and signal-to-noise ratio of each factorized matrix, dB:");
    for (const MeasuredMatrix& matrix : outer)
      out.write(fmt::format("{:6} {:8.1f}  {}", matrix.columns, matrix.signal_to_noise,
                            matrix_of_factor(matrix.name)));
    if (pairs) out.write(compared("whole", whole, "factorized", factorized));
    out.finish();
  }
  reporter.info(fmt::format(
      "{}: {} matrices are two factors, {:.2f} million parameters, before {:.2f}; {:.2f} MB ({}: "
      "{:.2f} MB), with its vocabulary; {:.1f} s",
      to, outer.size(), million_parameters(model.get()), million_parameters(loaded.model.get()),
      megabytes(fs::file_size(trafo::os::path_of(to))), from,
      megabytes(fs::file_size(trafo::os::path_of(from))), phase.seconds()));
  return kDone;
}

}  // namespace

Action add_factorize(CLI::App& app) {
  auto arguments = std::make_shared<FactorizeArguments>();
  add_model_arguments(app, arguments->model);
  app.add_option("-o,--output", arguments->output, "directory for model.safetensors and vocabulary")
      ->required()
      ->type_name("DIR");
  app.add_option("-t,--train-sets", arguments->calibration,
                 "a sample of the training data, which shows what the layers multiply: SRC TRG, or "
                 "one text for a decoder-lm")
      ->expected(1, 2)
      ->type_name("FILE");
  arguments->rank_flag =
      app.add_option("--rank", arguments->rank,
                     "rank of all factors; a matrix that would be no smaller stays whole")
          ->type_name("R");
  arguments->ratio_flag =
      app.add_option("--ratio", arguments->ratio,
                     "share of the weights of the matrices that stays, above 0 and below 1: each "
                     "matrix gets a rank of its own")
          ->type_name("X");
  app.add_option("--layers", arguments->layers,
                 "matrices that are factorized: names, * for any characters, ? for one (default: "
                 "those of all linear layers)")
      ->type_name("PATTERN ...");
  app.add_option("--valid-sets", arguments->valid,
                 "measures cross-entropy and BLEU before and after on these pairs, plain or gzip")
      ->expected(2)
      ->type_name("SRC TRG");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer(
      "A matrix becomes the product of two smaller ones. Embeddings and the output projection "
      "stay. "
      "Writes the matrices that lose most first. 500 to 2,000 pairs are enough for -t. DIR has "
      "lost "
      "quality: train --pretrained-model DIR fine-tunes it. quantize makes its factors int8 or "
      "int4, "
      "and export multiplies them out.");
  return [arguments] { return factorize(*arguments); };
}

}  // namespace translate_train
