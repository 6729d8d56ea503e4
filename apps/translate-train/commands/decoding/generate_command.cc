#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "commands/commands.h"
#include "commands/decoding/id_lines.h"
#include "engine/io/atomic_file.h"
#include "engine/os/file.h"
#include "engine/os/terminal.h"
#include "settings/setting_flags.h"
#include "settings/setting_types.h"
#include "text/number_text.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

// The settings of translate that generation has as well.
constexpr const char* kGenerateFlags[] = {"min-length",
                                          "repetition-penalty",
                                          "presence-penalty",
                                          "frequency-penalty",
                                          "no-repeat-ngram-size",
                                          "temperature",
                                          "sampling-topk",
                                          "sampling-topp",
                                          "min-p",
                                          "seed",
                                          "begin-source"};
constexpr uint64_t kMostVocabularyBytes = uint64_t{1} << 30;
constexpr const char* kSamplingGroup = "Sampling, instead of the most probable token";

struct GenerateArguments {
  ModelArguments model;
  std::string input = "-", output = "-";
  std::optional<std::string> prompt;
  bool chat = false, json = false, quiet = false;
  int64_t max_length = 0;
  int64_t samples = 1, parallel = 8;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_tokens, banned_tokens;
  std::vector<std::string> biases;  // TOKEN=NUMBER
  int64_t alternatives = -1;        // of --log-probs; negative: none
  std::string schema;               // a file
  bool any_json = false;
  std::string draft;  // file or directory; empty: none
  int64_t draft_tokens = 4;
  bool sampling = false;
  FlagValues values;
  Settings settings;
};

trafo_token_bias read_bias(const std::string& text) {
  const size_t equals = text.find('=');
  trafo_token_bias bias{};
  int64_t token = 0;
  if (equals == std::string::npos || !parse_number(text.substr(0, equals), token) ||
      !parse_number(text.substr(equals + 1), bias.bias) || token < 0 || token > INT32_MAX)
    usage_error("--logit-bias: wants TOKEN=NUMBER, such as 50=-100, got '" + text + "'");
  bias.token = static_cast<int32_t>(token);
  return bias;
}

// The text of a schema; empty: none.
std::string schema_of(const GenerateArguments& arguments) {
  if (arguments.any_json && !arguments.schema.empty())
    usage_error("--any-json: --json-schema says already which values are generated");
  if (arguments.any_json) return "true";
  std::string text;
  if (arguments.schema.empty()) return text;
  for (const std::string& line : read_lines(arguments.schema)) text += line + "\n";
  if (text.empty()) usage_error("--json-schema: " + arguments.schema + " is empty");
  return text;
}

// Both structs of options, and what the second one points to.
class GenerateOptions {
 public:
  explicit GenerateOptions(const GenerateArguments& arguments)
      : decoding(arguments.settings.translate),
        more(with_defaults<trafo_generation_options>(trafo_generation_options_init)),
        stop_(views(arguments.stop)),
        schema_(schema_of(arguments)) {
    decoding.max_length = arguments.max_length;
    decoding.n_best = arguments.samples;
    decoding.sampling = arguments.sampling || arguments.samples > 1;
    decoding.word_scores = arguments.alternatives >= 0;
    for (const std::string& text : arguments.biases) biases_.push_back(read_bias(text));
    more.stop = stop_.data();
    more.stop_count = stop_.size();
    more.stop_tokens = arguments.stop_tokens.data();
    more.stop_token_count = arguments.stop_tokens.size();
    more.banned_tokens = arguments.banned_tokens.data();
    more.banned_token_count = arguments.banned_tokens.size();
    more.logit_bias = biases_.data();
    more.logit_bias_count = biases_.size();
    more.json_schema = view(schema_);
    more.alternatives = std::max<int64_t>(arguments.alternatives, 0);
    more.draft_tokens = arguments.draft.empty() ? 0 : arguments.draft_tokens;
  }
  GenerateOptions(const GenerateOptions&) = delete;
  GenerateOptions& operator=(const GenerateOptions&) = delete;

  trafo_translate_options decoding;
  trafo_generation_options more;

 private:
  std::vector<trafo_string_view> stop_;
  std::string schema_;
  std::vector<trafo_token_bias> biases_;
};

const char* finish_name(int32_t finish) {
  switch (finish) {
    case TRAFO_FINISH_END:
      return "end";
    case TRAFO_FINISH_LENGTH:
      return "length";
    case TRAFO_FINISH_BLOCKED:
      return "blocked";
    case TRAFO_FINISH_STOP:
      return "stop";
    default:
      return "unknown";
  }
}

std::vector<std::byte> vocabulary_bytes(const ModelPaths& paths) {
  return trafo::read_file(trafo::os::path_of(paths.vocabulary), kMostVocabularyBytes);
}

// The draft model. Its vocabulary, if it has one, must be the model's.
ModelPaths draft_paths(const GenerateArguments& arguments) {
  ModelArguments of_draft;
  of_draft.model = arguments.draft;
  of_draft.ids = true;
  ModelPaths draft = find_model(of_draft);
  const ModelPaths own = find_model(arguments.model);
  if (!draft.vocabulary.empty() && !own.vocabulary.empty() &&
      vocabulary_bytes(draft) != vocabulary_bytes(own))
    usage_error(fmt::format("--draft-model: {} is another vocabulary than {}", draft.vocabulary,
                            own.vocabulary));
  return draft;
}

// A sequence that is generated.
struct Answer {
  int64_t prompt = 0, sample = 0;
  std::string text = {};
  nlohmann::ordered_json tokens = nlohmann::ordered_json::array();
  nlohmann::ordered_json scores = nlohmann::ordered_json::array();
  trafo_generation_piece last{};
};

class GenerateRun {
 public:
  GenerateRun(const GenerateArguments& arguments, LoadedModel loaded)
      : arguments_(arguments),
        loaded_(std::move(loaded)),
        options_(arguments),
        generator_(make<Generator>(trafo_generator_new, loaded_.model.get(),
                                   loaded_.tokenizer.get(), arguments.parallel)),
        out_(arguments.output) {
    if (!arguments.draft.empty()) load_draft();
    check_options();
    if (!arguments.prompt) in_.emplace(arguments.input);
  }

  void run() {
    while (take_prompts()) {
      trafo_generation_piece piece{};
      check(trafo_generator_next(generator_.get(), nullptr, &piece, sizeof piece));
      add(piece);
      write_what_is_due();
    }
    out_.finish();
    if (failure_) std::rethrow_exception(failure_);
  }
  // Of the draft model.
  int64_t drafted() const { return drafted_; }
  int64_t accepted() const { return accepted_; }

 private:
  static constexpr int kPatience = 5;  // milliseconds

  void load_draft() {
    const ModelPaths draft = draft_paths(arguments_);
    check(trafo_generator_load_draft(generator_.get(), draft.model.data(), draft.model.size()),
          "--draft-model");
  }

  // Refuses options before a prompt is read.
  void check_options() {
    int64_t first = 0;
    trafo_error* error = trafo_generator_start_ids(generator_.get(), nullptr, 0, &options_.decoding,
                                                   &options_.more, &first);
    const bool of_schema =
        error != nullptr && std::string_view(trafo_error_field(error)) == "json_schema";
    check(error, of_schema ? arguments_.schema : "");
  }

  // Starts what can be: waits for a line only if nothing is in flight. False at the end.
  bool take_prompts() {
    std::string line;
    while (!at_end_ && std::ssize(answers_) < arguments_.parallel) {
      if (!answers_.empty() && in_ && !in_->ready(kPatience)) break;
      if (arguments_.prompt) {
        line = *arguments_.prompt;
        at_end_ = true;
      } else if (!in_->next(line)) {
        at_end_ = true;
        break;
      }
      try {
        start(line);
      } catch (...) {  // a wrong line takes no text from those before it
        if (answers_.empty()) throw;
        failure_ = std::current_exception();
        at_end_ = true;
      }
    }
    return !answers_.empty();
  }

  void start(const std::string& line) {
    const std::string place =
        in_ ? fmt::format("{}:{}", in_->name(), in_->line_number()) : "--prompt";
    options_.decoding.first_line = prompts_;
    int64_t first = 0;
    if (arguments_.chat) {
      int32_t* ids = nullptr;
      size_t count = 0;
      check(trafo_chat_encode(loaded_.tokenizer.get(), line.data(), line.size(), 1, &ids, &count,
                              nullptr),
            place);
      const Handle<int32_t, trafo_ids_free> owner(ids);
      const trafo_ids_view row{ids, count};
      check(trafo_generator_start_ids(generator_.get(), &row, 1, &options_.decoding, &options_.more,
                                      &first),
            place);
    } else if (arguments_.model.ids) {
      IdRows rows;
      rows.add(line, place);
      check(trafo_generator_start_ids(generator_.get(), rows.views().data(), 1, &options_.decoding,
                                      &options_.more, &first),
            place);
    } else {
      const trafo_string_view text = view(line);
      check(trafo_generator_start(generator_.get(), &text, 1, &options_.decoding, &options_.more,
                                  &first),
            place);
    }
    for (int64_t sample = 0; sample < arguments_.samples; ++sample)
      answers_[first + sample] = {.prompt = prompts_, .sample = sample};
    ++prompts_;
  }

  void add(const trafo_generation_piece& piece) {
    Answer& answer = answers_.at(piece.sequence);
    answer.text.append(piece.text.data, piece.text.length);
    answer.last = piece;
    if (piece.token < 0) return;
    if (arguments_.json || arguments_.model.ids) answer.tokens.push_back(piece.token);
    if (arguments_.alternatives < 0) return;
    nlohmann::ordered_json score{{"log_probability", piece.log_probability}};
    const int32_t* tokens = nullptr;
    const double* values = nullptr;
    size_t count = 0;
    check(trafo_generator_get_alternatives(generator_.get(), &tokens, &values, &count));
    for (size_t i = 0; i < count; ++i)
      score["alternatives"].push_back({{"token", tokens[i]}, {"log_probability", values[i]}});
    answer.scores.push_back(std::move(score));
  }

  // The first sequence streams; others wait for it.
  void write_what_is_due() {
    while (!answers_.empty()) {
      Answer& answer = answers_.begin()->second;
      const bool done = answer.last.finished != 0;
      if (arguments_.json) {
        if (done) out_.write(as_json(answer));
      } else if (arguments_.model.ids) {
        if (done) out_.write(as_ids(answer));
      } else {
        out_.add(std::exchange(answer.text, {}));
        if (done) out_.write("");
      }
      out_.flush();
      if (!done) return;
      drafted_ += answer.last.drafted_tokens;
      accepted_ += answer.last.accepted_tokens;
      answers_.erase(answers_.begin());
    }
  }

  std::string as_ids(const Answer& answer) const {
    std::string line;
    for (const auto& token : answer.tokens)
      line += (line.empty() ? "" : " ") + std::to_string(token.get<int32_t>());
    return line;
  }

  std::string as_json(const Answer& answer) const {
    nlohmann::ordered_json line{{"prompt", answer.prompt}, {"sample", answer.sample}};
    if (loaded_.tokenizer) {
      if (arguments_.chat)
        line["message"] = {{"role", "assistant"}, {"content", answer.text}};
      else
        line["text"] = answer.text;
    }
    line["finish"] = finish_name(answer.last.finish);
    line["prompt_tokens"] = answer.last.prompt_tokens;
    line["cached_tokens"] = answer.last.cached_tokens;
    line["generated_tokens"] = answer.last.generated_tokens;
    if (!arguments_.draft.empty()) {
      line["drafted_tokens"] = answer.last.drafted_tokens;
      line["accepted_tokens"] = answer.last.accepted_tokens;
    }
    line["tokens"] = answer.tokens;
    if (!answer.scores.empty()) line["log_probabilities"] = answer.scores;
    return line.dump();
  }

  const GenerateArguments& arguments_;
  LoadedModel loaded_;
  GenerateOptions options_;
  Generator generator_;
  std::optional<LineReader> in_;
  LineWriter out_;
  std::map<int64_t, Answer> answers_;  // that are not written to their end, by number
  int64_t prompts_ = 0;
  int64_t drafted_ = 0, accepted_ = 0;
  bool at_end_ = false;
  std::exception_ptr failure_;
};

int generate(const GenerateArguments& arguments) {
  if (arguments.chat && arguments.model.ids)
    usage_error("--chat: conversations are text, and --ids is not");
  if (arguments.prompt && arguments.input != "-")
    usage_error("--prompt: the prompts are in the file of --input already");
  if (arguments.alternatives >= 0 && !arguments.json)
    usage_error("--log-probs: only --json writes them");
  const GenerateOptions checked(arguments);  // says what is wrong before a model is loaded
  if (!arguments.draft.empty()) draft_paths(arguments);
  refuse_loss({arguments.input, arguments.schema, arguments.model.model, arguments.model.vocabulary,
               arguments.draft},
              arguments.output);
  Reporter reporter(
      {.live = arguments.output != "-" || !trafo::os::is_terminal(trafo::os::kStandardOutput),
       .quiet = arguments.quiet});
  LoadedModel loaded = load_model(arguments.model, reporter);
  if (arguments.chat && !loaded.tokenizer)
    usage_error("--chat: needs the vocabulary, give --vocab FILE");
  {
    const Reporter::Phase phase(reporter, "preparing the model");
    check(trafo_model_prepare_inference(loaded.model.get()));
  }
  GenerateRun run(arguments, std::move(loaded));
  run.run();
  if (run.drafted() > 0)
    reporter.info(fmt::format(
        "the draft model proposed {} tokens, of which {:.1f} % were accepted",
        grouped(run.drafted()),
        100 * static_cast<double>(run.accepted()) / static_cast<double>(run.drafted())));
  return kDone;
}

void add_text_flags(CLI::App& app, GenerateArguments& a) {
  constexpr const char* kText = "Text";
  CLI::Option* input = app.add_option(
      "-i,--input", a.input, "a prompt in each line, plain or gzip (default - : standard input)");
  input->type_name("FILE")->group(kText);
  app.add_option("-o,--output", a.output,
                 "plain, or gzip if it is named .gz (default - : standard output)")
      ->type_name("FILE")
      ->group(kText);
  app.add_option("-p,--prompt", a.prompt, "the one prompt; it may have several lines")
      ->type_name("TEXT")
      ->group(kText);
  app.add_flag("--chat", a.chat,
               "each line is a conversation, {\"messages\": [...]}: write the assistant's answer")
      ->group(kText);
  app.add_flag("--json", a.json,
               "write a line of JSON for each sequence: text, tokens and why it ends")
      ->group(kText);
  app.add_option("--log-probs", a.alternatives,
                 "with --json: log-probabilities of the tokens, and of the N most probable ones in "
                 "their places")
      ->type_name("N")
      ->check(CLI::Range(0, 1024))
      ->group(kText);
  add_text_arguments(app, a.model, kText);
}

void add_end_flags(CLI::App& app, GenerateArguments& a) {
  constexpr const char* kEnd = "End of a sequence";
  app.add_option("--max-length", a.max_length,
                 "most tokens to generate (default 0: as far as the model has positions)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->group(kEnd);
  app.add_option("--stop", a.stop, "texts that end a sequence, and are not written")
      ->type_name("TEXT")
      ->group(kEnd);
  app.add_option("--stop-tokens", a.stop_tokens,
                 "tokens that end a sequence, as the model's own do")
      ->type_name("ID")
      ->group(kEnd);
  constexpr const char* kSearch = "Search";
  app.add_option("--json-schema", a.schema,
                 "a JSON Schema: only values that it allows are generated")
      ->type_name("FILE")
      ->group(kSearch);
  app.add_flag("--any-json", a.any_json, "only JSON values are generated")->group(kSearch);
  app.add_option("--banned-tokens", a.banned_tokens, "tokens that are never generated")
      ->type_name("ID")
      ->group(kSearch);
  app.add_option("--logit-bias", a.biases, "numbers that are added to the logits of tokens")
      ->type_name("ID=NUMBER")
      ->group(kSearch);
}

}  // namespace

Action add_generate(CLI::App& app) {
  auto arguments = std::make_shared<GenerateArguments>();
  GenerateArguments& a = *arguments;
  add_model_arguments(app, a.model);
  add_text_flags(app, a);
  add_end_flags(app, a);
  std::vector<CLI::Option*> draws;
  for (const SettingSpec& spec : translate_specs()) {
    if (std::ranges::find(kGenerateFlags, std::string_view(spec.name)) == std::end(kGenerateFlags))
      continue;
    CLI::Option* option = add_setting(app, spec, a.values);
    if (!std::string_view(spec.group).starts_with("Sampling")) continue;
    option->group(kSamplingGroup);
    if (std::string_view(spec.name) == "sampling-topk")
      option->description("only the N most probable tokens (default 0: all)");
    if (std::string_view(spec.name) == "sampling-topp")
      option->description("only the fewest tokens with a share P of the probability (default 1)");
    draws.push_back(option);
  }
  app.add_option("-n,--samples", a.samples,
                 "sequences of each prompt; several are drawn (default 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->group(kSamplingGroup);
  constexpr const char* kDraft = "Speculative decoding: the same texts in less time";
  CLI::Option* draft = app.add_option(
      "--draft-model", a.draft, "a smaller model of the same vocabulary, which proposes tokens");
  draft->type_name("FILE|DIR")->group(kDraft);
  app.add_option("--draft-tokens", a.draft_tokens,
                 "tokens that it proposes in a step, at most (default 4)")
      ->type_name("N")
      ->check(CLI::Range(1, 64))
      ->needs(draft)
      ->group(kDraft);
  app.add_option("--parallel", a.parallel,
                 "sequences that are generated together, at least those of a prompt; they do not "
                 "change each other (default 8)")
      ->type_name("N")
      ->check(CLI::Range(1, 4096))
      ->group("Batches");
  app.add_flag("-q,--quiet", a.quiet, "errors and warnings only");
  app.footer(
      "The text of the first prompt appears token by token; those of others follow, in the order "
      "of the input. Without a flag for sampling each token is the most probable one.");
  return [&app, arguments, draws] {
    arguments->settings = given_settings(app, arguments->values);
    arguments->sampling =
        std::ranges::any_of(draws, [](auto* option) { return option->count() > 0; });
    return generate(*arguments);
  };
}

}  // namespace translate_train
