#include <fmt/format.h>

#include <filesystem>

#include "commands.h"
#include "device.h"
#include "run_files.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

std::string vocabulary_of_run(const fs::path& run) {
  const fs::path path = run / "vocab.spm";
  return fs::exists(path) ? path.string() : "";
}

}  // namespace

void add_model_paths(CLI::App& app, ModelArguments& arguments) {
  app.add_option("-m,--model", arguments.model,
                 "run directory (its best checkpoint by BLEU, else by chrF, else the latest) or "
                 "model.safetensors "
                 "(default run)")
      ->type_name("DIR|FILE");
  app.add_option("-v,--vocab,--vocabs", arguments.vocabulary,
                 "SentencePiece model (default: the run directory's)")
      ->type_name("FILE.spm");
  app.add_option("--checkpoint", arguments.checkpoint,
                 "of the run directory: latest, best-bleu, best-chrf, best-ce-mean-words, averaged "
                 "or an update")
      ->type_name("NAME");
}

void add_model_arguments(CLI::App& app, ModelArguments& arguments) {
  add_model_paths(app, arguments);
  app.add_option("--device", arguments.device,
                 "auto, cpu, cuda or cuda:N (default auto: CUDA where there is one, else the CPU)")
      ->type_name("NAME");
  app.add_option("--precision", arguments.precision,
                 "auto, fp32 or bf16: what the model computes in (default auto: bf16 on CUDA, else "
                 "fp32)")
      ->type_name("NAME");
  app.add_option("--cpu-threads", arguments.threads, "(default 0: every core)")->type_name("N");
}

ModelPaths find_model(const ModelArguments& arguments) {
  ModelPaths paths;
  const fs::path given = arguments.model;
  if (!fs::exists(given)) usage_error(arguments.model + ": no such file or directory");
  if (!fs::is_directory(given)) {
    if (!arguments.checkpoint.empty())
      usage_error("--checkpoint: " + arguments.model + " is a file, not a run directory");
    paths.model = arguments.model;
    // RUN/ckpt/UPDATE/model.safetensors or a vocabulary next to the file.
    const fs::path folder = fs::absolute(given).parent_path();
    paths.vocabulary = vocabulary_of_run(folder);
    if (paths.vocabulary.empty())
      paths.vocabulary = vocabulary_of_run(folder.parent_path().parent_path());
  } else if (fs::exists(given / kModelFile)) {  // a checkpoint directory
    paths.model = (given / kModelFile).string();
    paths.vocabulary =
        vocabulary_of_run(fs::absolute(given).lexically_normal().parent_path().parent_path());
    if (paths.vocabulary.empty()) paths.vocabulary = vocabulary_of_run(given);
  } else {
    std::string checkpoint;
    if (arguments.checkpoint.empty()) {
      checkpoint = usual_checkpoint(arguments.model);
    } else {
      checkpoint = pointed_checkpoint(arguments.model, arguments.checkpoint);
      const fs::path numbered = given / "ckpt" / arguments.checkpoint;
      if (checkpoint.empty() && fs::exists(numbered / kModelFile)) checkpoint = numbered.string();
    }
    if (checkpoint.empty())
      usage_error(arguments.model + ": has no checkpoint" +
                  (arguments.checkpoint.empty() ? "" : " " + arguments.checkpoint));
    paths.model = checkpoint + "/" + kModelFile;
    paths.vocabulary = vocabulary_of_run(given);
  }
  if (!arguments.vocabulary.empty()) paths.vocabulary = arguments.vocabulary;
  if (paths.vocabulary.empty())
    usage_error(arguments.model + ": no vocab.spm belongs to it, give --vocab FILE.spm");
  return paths;
}

void check_vocabulary(trafo_model* model, const trafo_tokenizer* tokenizer) {
  // Translating no lines compares the two and does nothing else.
  make<Translations>(trafo_translate, model, tokenizer,
                     static_cast<const trafo_string_view*>(nullptr), size_t{0},
                     static_cast<const trafo_translate_options*>(nullptr),
                     static_cast<const trafo_cancel*>(nullptr));
}

LoadedModel load_model(const ModelArguments& arguments, Reporter& reporter) {
  const ModelPaths paths = find_model(arguments);
  const Reporter::Phase phase(reporter, "loading the model");
  const trafo_context_options options = context_options(arguments.device, arguments.threads, true);
  LoadedModel loaded;
  loaded.tokenizer =
      make<Tokenizer>(trafo_tokenizer_load, paths.vocabulary.data(), paths.vocabulary.size());
  loaded.context = make<Context>(trafo_context_new, &options);
  loaded.model =
      make<Model>(trafo_model_load_as, loaded.context.get(), paths.model.data(), paths.model.size(),
                  precision_on(loaded.context.get(), arguments.precision));
  check_vocabulary(loaded.model.get(), loaded.tokenizer.get());
  return loaded;
}

}  // namespace translate_train
