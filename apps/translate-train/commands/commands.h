// The subcommands. Each adds its options to `app` and returns what runs it once they are parsed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "commands/trafo_handles.h"
#include "report/reporter.h"

namespace translate_train {

using Action = std::function<int()>;  // returns the exit code

Action add_train(CLI::App& app);
Action add_vocab(CLI::App& app);
Action add_encode(CLI::App& app);
Action add_shortlist(CLI::App& app);
Action add_translate(CLI::App& app);
Action add_generate(CLI::App& app);
Action add_score(CLI::App& app);
Action add_eval(CLI::App& app);
Action add_embed(CLI::App& app);
Action add_classify(CLI::App& app);
Action add_info(CLI::App& app);
Action add_average(CLI::App& app);
Action add_quantize(CLI::App& app);
Action add_merge(CLI::App& app);
Action add_add_tokens(CLI::App& app);
Action add_prune(CLI::App& app);
Action add_factorize(CLI::App& app);
Action add_distill(CLI::App& app);
Action add_report(CLI::App& app);
Action add_plan(CLI::App& app);
Action add_export(CLI::App& app);
Action add_import(CLI::App& app);
Action add_completion(CLI::App& app);
Action add_man(CLI::App& app);

// A trained model with its vocabulary, found in a run directory or named by file.
struct ModelPaths {
  std::string model, vocabulary;
};
struct ModelArguments {
  std::string model = "run";
  std::string vocabulary;
  std::string checkpoint;  // "latest", "best-chrf", an update; empty: as usual_model() decides
  std::string device = "auto";
  std::string precision = "auto";
  std::string weights = "stored";
  std::string adapter;  // directory; empty: none but that in the model's file
  bool ids = false;     // token ids in place of text, and no vocabulary is needed
  bool parse_special = false;
  std::string source_language, target_language;  // both or none
  int64_t threads = 0;
};
// The only vocabulary; a usage error if these files are two.
std::string one_vocabulary(const std::vector<std::string>& files);
void add_model_paths(CLI::App& app, ModelArguments& arguments);      // which model
void add_model_arguments(CLI::App& app, ModelArguments& arguments);  // and where it computes
void add_adapter_argument(CLI::App& app, ModelArguments& arguments);
// The tokenizer of these texts; both languages may be empty. A usage error if one is.
Tokenizer reading_texts(Tokenizer tokenizer, bool parse_special, const std::string& source_language,
                        const std::string& target_language);
// --source-language and --target-language.
std::vector<CLI::Option*> add_language_arguments(CLI::App& app, ModelArguments& arguments,
                                                 const char* group);
// How text becomes token ids: --ids, --parse-special and the languages.
void add_text_arguments(CLI::App& app, ModelArguments& arguments, const char* group);
ModelPaths find_model(const ModelArguments& arguments);
// The configuration of a model file, whose weights are not read.
trafo_model_config config_of_file(const std::string& path);

struct LoadedModel {
  Context context;
  Tokenizer tokenizer;  // none: no vocabulary belongs to a model that works with ids
  Model model;
};
// `memory_directory`: of trafo_context_options; empty: none.
LoadedModel load_model(const ModelArguments& arguments, Reporter& reporter,
                       const std::string& memory_directory = {});
// Weights that are exactly zero, of the matrices of a model.
struct ZeroCounts {
  int64_t zeros = 0, elements = 0;
  std::vector<int64_t> by_parameter = {};  // of vectors too, in the order of the file
  std::string text() const;                // "1,200 of 2,000 weights of matrices are zero (60.0 %)"
};
ZeroCounts count_zeros(const trafo_model* model);
// Whether a parameter is the first of the two factors that a matrix has become, NAME.u, and NAME.
bool is_outer_factor(std::string_view parameter);
std::string matrix_of_factor(std::string_view parameter);
// Refuses a folder that has a model or a vocabulary already.
void require_no_model_in(const std::string& folder);
// Refuses an output that is one of the inputs, under whatever name, or a file without which a run
// cannot be used: one that the manifest of a checkpoint has, or the vocabulary beside checkpoints.
// Empty names and "-" are no files.
void refuse_loss(const std::vector<std::string>& inputs, const std::string& output);
// The sizes that a model with this vocabulary has.
void take_vocabulary_sizes(const trafo_tokenizer* tokenizer, trafo_model_config& config);
// The name of its file in the directory of a run or a model.
const char* vocabulary_name(const trafo_tokenizer* tokenizer);
// Writes the vocabulary of a run. Replaces one of another kind, from a run that ended before its
// first checkpoint.
void write_own_vocabulary(const std::string& run, const trafo_tokenizer* tokenizer);
// Makes the folder and writes the files of a run that other commands read: model.safetensors and,
// with a tokenizer, the vocabulary. Returns the path of the model.
std::string write_model_folder(const std::string& folder, const trafo_model* model,
                               const trafo_tokenizer* tokenizer);

}  // namespace translate_train
