#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "commands/commands.h"
#include "commands/compression/model_quality.h"
#include "engine/os/names.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

struct QuantizeArguments {
  ModelArguments model;
  std::string output, method = "nearest";
  std::vector<std::string> valid, calibration, keep_float;
  int32_t bits = 8;
  double max_loss = -1;  // negative: any
  bool quiet = false;
};

// Those with codes, the worst first.
std::vector<MeasuredMatrix> coded_matrices(const trafo_model* model) {
  return measured_matrices(
      model, [](const trafo_parameter_info& info) { return info.dtype == TRAFO_INT8; });
}

struct Quantizer {
  const LoadedModel& loaded;
  const QuantizeArguments& arguments;
  Corpus calibration = nullptr;

  Model run(const std::vector<std::string>& keep_float) const {
    auto options = with_defaults<trafo_quantize_options>(trafo_quantize_options_init);
    options.bits = arguments.bits;
    options.method = arguments.method == "gptq" ? TRAFO_QUANTIZE_GPTQ : TRAFO_QUANTIZE_NEAREST;
    const auto names = views(keep_float);
    options.keep_float = names.data();
    options.keep_float_count = names.size();
    options.tokenizer = loaded.tokenizer.get();
    options.calibration = calibration.get();
    return make<Model>(trafo_model_quantize, loaded.model.get(),
                       static_cast<const trafo_quantize_options*>(&options), nullptr);
  }
};

void check_arguments(const QuantizeArguments& arguments) {
  if (arguments.bits != 8 && arguments.bits != 4)
    usage_error(fmt::format("--bits: 8 or 4, not {}", arguments.bits));
  if (arguments.method == "gptq" && arguments.bits != 4)
    usage_error("--method gptq: is for --bits 4");
  if (arguments.method == "gptq" && arguments.calibration.empty())
    usage_error("--method gptq: needs --calibration SRC TRG");
  if (arguments.max_loss >= 0 && arguments.valid.empty())
    usage_error("--max-loss: needs --valid-sets SRC TRG to measure the loss on");
}

// Quantizes the model, with the matrices in float that --max-loss asks for.
Model quantize_within_loss(const Quantizer& quantizer, const ValidationPairs* pairs,
                           double float_cross_entropy, Reporter::Phase& phase) {
  const QuantizeArguments& arguments = quantizer.arguments;
  std::vector<std::string> keep = arguments.keep_float;
  for (;;) {
    phase.now("quantizing");
    Model model = quantizer.run(keep);
    if (arguments.max_loss < 0) return model;
    phase.now("measuring cross-entropy");
    const double loss = pairs->cross_entropy(model.get()) - float_cross_entropy;
    if (loss <= arguments.max_loss) return model;
    const std::vector<MeasuredMatrix> coded = coded_matrices(model.get());
    if (coded.size() <= 1)
      usage_error(fmt::format("--max-loss {:g}: the loss is {:.4f} with a single matrix quantized",
                              arguments.max_loss, loss));
    keep.push_back(coded.front().name);
  }
}

int quantize(QuantizeArguments arguments) {
  check_arguments(arguments);
  require_no_model_in(arguments.output);
  arguments.model.device = "cpu";
  Reporter reporter({.quiet = arguments.quiet});
  const std::string from = find_model(arguments.model).model;
  const LoadedModel loaded = load_model(arguments.model, reporter);
  Reporter::Phase phase(reporter, "reading");
  std::unique_ptr<ValidationPairs> pairs;
  Quantizer quantizer{loaded, arguments};
  const auto& shown = arguments.calibration.empty() ? arguments.valid : arguments.calibration;
  if (!shown.empty()) quantizer.calibration = load_corpus(shown);
  Quality exact, rounded;
  if (!arguments.valid.empty()) {
    pairs = std::make_unique<ValidationPairs>(arguments.valid, loaded.tokenizer.get());
    phase.now("measuring the float model");
    exact = pairs->quality(loaded.model.get());
  }
  const Model model = quantize_within_loss(quantizer, pairs.get(), exact.cross_entropy, phase);
  if (pairs) {
    phase.now("measuring the quantized model");
    rounded = pairs->quality(model.get());
  }
  phase.now("writing");
  const std::string to = write_model_folder(arguments.output, model.get(), loaded.tokenizer.get());

  const std::vector<MeasuredMatrix> coded = coded_matrices(model.get());
  if (!arguments.quiet) {
    LineWriter out("-");
    out.write("signal-to-noise ratio of each quantized matrix, dB:");
    for (const MeasuredMatrix& matrix : coded)
      out.write(fmt::format("{:8.1f}  {}", matrix.signal_to_noise, matrix.name));
    if (pairs) out.write(compared("float32", exact, "quantized", rounded));
    out.finish();
  }
  reporter.info(fmt::format(
      "{}: int{} weights in {} matrices, {:.2f} MB ({}: {:.2f} MB), with its vocabulary", to,
      arguments.bits, coded.size(), megabytes(fs::file_size(trafo::os::path_of(to))), from,
      megabytes(fs::file_size(trafo::os::path_of(from)))));
  return kDone;
}

}  // namespace

Action add_quantize(CLI::App& app) {
  auto arguments = std::make_shared<QuantizeArguments>();
  add_model_paths(app, arguments->model);
  app.add_option("-o,--output", arguments->output, "directory for model.safetensors and vocabulary")
      ->required()
      ->type_name("DIR");
  app.add_option("--bits", arguments->bits,
                 "8: int8, a scale for each row; 4: int4, a scale for each 32 columns (default 8)")
      ->type_name("N");
  app.add_option("--method", arguments->method,
                 "nearest, or with --bits 4 gptq, which needs --calibration (default nearest)")
      ->check(CLI::IsMember({"nearest", "gptq"}))
      ->type_name("NAME");
  app.add_option("--calibration", arguments->calibration,
                 "pairs like those that will be translated, plain or gzip (default --valid-sets)")
      ->expected(2)
      ->type_name("SRC TRG");
  app.add_option("--valid-sets", arguments->valid,
                 "measures cross-entropy and BLEU before and after on these pairs, plain or gzip")
      ->expected(2)
      ->type_name("SRC TRG");
  app.add_option("--max-loss", arguments->max_loss,
                 "keeps the worst matrices in float32 until cross-entropy rises by no more than R "
                 "nats a token; refuses if none is left")
      ->check(CLI::NonNegativeNumber)
      ->type_name("R");
  app.add_option("--keep-float", arguments->keep_float,
                 "matrices that stay float32: names, * for any characters, ? for one")
      ->type_name("PATTERN ...");
  app.add_option("--cpu-threads", arguments->model.threads, "(default 0: every core)")
      ->type_name("N");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer(
      "The matrices become codes with scales; norms and biases stay float32. Writes the matrices "
      "that lose most first. translate and score read DIR as any model. It cannot be trained, "
      "exported or averaged.");
  return [arguments] { return quantize(*arguments); };
}

}  // namespace translate_train
