#include <fmt/format.h>

#include <memory>

#include "commands/commands.h"

namespace translate_train {
namespace {

struct AddTokensArguments {
  ModelArguments model;
  std::vector<std::string> tokens;
  std::string like, output;
  bool special = false, quiet = false;
};

int add_tokens_to(const AddTokensArguments& arguments) {
  require_no_model_in(arguments.output);
  Reporter reporter({.quiet = arguments.quiet});
  const LoadedModel loaded = load_model(arguments.model, reporter);
  trafo_model* model = nullptr;
  trafo_tokenizer* tokenizer = nullptr;
  check(trafo_model_add_tokens(loaded.model.get(), loaded.tokenizer.get(),
                               views(arguments.tokens).data(), arguments.tokens.size(),
                               arguments.special ? 1 : 0, arguments.like.data(),
                               arguments.like.size(), &model, &tokenizer));
  const Model owned_model(model);
  const Tokenizer owned_tokenizer(tokenizer);
  const std::string path = write_model_folder(arguments.output, model, tokenizer);
  reporter.info(fmt::format("{}: the model with {} more tokens, with its vocabulary", path,
                            arguments.tokens.size()));
  return kDone;
}

}  // namespace

Action add_add_tokens(CLI::App& app) {
  auto arguments = std::make_shared<AddTokensArguments>();
  arguments->model.device = "cpu";
  arguments->model.precision = "fp32";
  add_model_paths(app, arguments->model);
  app.add_option("--tokens", arguments->tokens, "the texts of the new tokens")
      ->required()
      ->type_name("TEXT ...");
  app.add_flag("--special", arguments->special,
               "found only with --parse-special, and usable as a language code; without it, found "
               "in every text");
  app.add_option("--like", arguments->like,
                 "the token whose embedding the new ones begin with, as a related language "
                 "(default: the mean of the subwords that the text of each has)")
      ->type_name("TOKEN");
  app.add_option("-o,--output", arguments->output, "directory for model.safetensors and vocabulary")
      ->required()
      ->type_name("DIR");
  app.add_flag("-q,--quiet", arguments->quiet, "errors and warnings only");
  app.footer(
      "The result is trained with train --pretrained-model DIR. A vocabulary of bytes and one of "
      "Marian (vocab.marian) take no tokens.");
  return [arguments] { return add_tokens_to(*arguments); };
}

}  // namespace translate_train
