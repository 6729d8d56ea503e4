#include "engine/formats/interop.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/core/argument_error.h"
#include "engine/core/cancel_scope.h"
#include "engine/core/progress.h"
#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/hf/lm_files.h"
#include "engine/formats/tokenizers/tokenizer_json.h"
#include "engine/io/atomic_file.h"
#include "engine/io/descriptor.h"
#include "engine/io/temporary_name.h"
#include "engine/models/model_io.h"
#include "engine/os/names.h"
#include "engine/text/tokenizer/byte/byte_tokenizer.h"
#include "engine/text/tokenizer/byte_bpe/byte_bpe_tokenizer.h"
#include "engine/text/tokenizer/marian/marian_tokenizer.h"
#include "engine/text/tokenizer/wordpiece/wordpiece_tokenizer.h"

namespace trafo {
namespace {

using interop::HostModel;
using interop::kOrigin;
namespace fs = std::filesystem;

constexpr double kTolerance = 1e-4;

// A temporary directory beside the target. It is removed unless publish() renames it.
class UnfinishedDirectory {
 public:
  explicit UnfinishedDirectory(const fs::path& target) : target_(target) {
    if (target_.filename().empty()) target_ = target_.parent_path();  // "DIR/"
    require(!target_.filename().empty() && target_.filename() != "." && target_.filename() != "..",
            ErrorCode::invalid_argument, kOrigin, "'", target.string(),
            "' is not the name of a new directory");
    std::error_code error;
    const fs::file_status status = fs::symlink_status(target_, error);
    if (fs::exists(status))
      require(fs::is_directory(status) && list_directory(target_).empty(),
              ErrorCode::invalid_argument, kOrigin, target_.string(),
              " exists and is not an empty directory");
    const fs::path parent = target_.parent_path().empty() ? fs::path(".") : target_.parent_path();
    parents_.emplace(parent);
    remove_stale_temporaries(target_);
    path_ = parent / os::path_of(temporary_file_name(target_.filename().string()));  // unique
    make_new_directory(path_);
    try {
      lock_ = lock_temporary(
          try_open(path_, os::Open::read | os::Open::directory | os::Open::no_follow));
    } catch (...) {
      os::remove_tree(path_);
      throw;
    }
  }
  ~UnfinishedDirectory() {
    if (!published_) os::remove_tree(path_);
  }
  UnfinishedDirectory(const UnfinishedDirectory&) = delete;
  UnfinishedDirectory& operator=(const UnfinishedDirectory&) = delete;

  const fs::path& path() const { return path_; }
  void publish() {
    sync_directory(path_);
    rename_path(path_, target_);  // replaces an empty directory
    published_ = true;
    parents_->keep();
    sync_directory(target_.parent_path().empty() ? fs::path(".") : target_.parent_path());
  }

 private:
  std::optional<MadeDirectory> parents_;
  fs::path target_, path_;
  Descriptor lock_;  // see lock_temporary()
  bool published_ = false;
};

struct Job {
  const HostModel& host;
  const interop::ExportVocabulary& vocabulary;
  ExportWeights weights;
  const fs::path& directory;
};

// The formats. `weights`: the types that matrices can be stored in; the first is the usual one.
struct Format {
  ExportFormat format;
  bool needs_tokenizer;
  std::vector<ExportWeights> weights;
  const interop::Expressible& (*expressible)();
  HostModel (*write_and_read)(const Job& job);
};

// A format of transformers, whose directories are read as an import reads them. A writer that takes
// a Tokenizer needs one.
template <auto write, auto read>
Format of_transformers(ExportFormat format, const interop::Expressible& (*expressible)()) {
  constexpr bool needs_tokenizer =
      !std::is_invocable_v<decltype(write), const HostModel&, const interop::ExportVocabulary&,
                           const fs::path&>;
  return {format, needs_tokenizer, {ExportWeights::float32}, expressible, [](const Job& job) {
            if constexpr (needs_tokenizer)
              write(job.host, *job.vocabulary.tokenizer, job.directory);
            else
              write(job.host, job.vocabulary, job.directory);
            return read(job.directory, {.written = &job.host, .memory = job.directory}).host;
          }};
}

const std::vector<Format>& formats() {
  using enum ExportWeights;
  static const std::vector<Format> all = {
      of_transformers<interop::write_marian, interop::read_marian>(ExportFormat::hf_marian,
                                                                   interop::hf_marian_expressible),
      of_transformers<interop::write_pegasus, interop::read_pegasus>(
          ExportFormat::hf_pegasus, interop::hf_pegasus_expressible),
      of_transformers<interop::write_m2m100, interop::read_m2m100>(ExportFormat::hf_m2m100,
                                                                   interop::hf_m2m100_expressible),
      of_transformers<interop::write_mbart, interop::read_mbart>(ExportFormat::hf_mbart,
                                                                 interop::hf_mbart_expressible),
      of_transformers<interop::write_bart, interop::read_bart>(ExportFormat::hf_bart,
                                                               interop::hf_bart_expressible),
      of_transformers<interop::write_t5, interop::read_t5>(ExportFormat::hf_t5,
                                                           interop::hf_t5_expressible),
      of_transformers<interop::write_gpt2, interop::read_gpt2>(ExportFormat::hf_gpt2,
                                                               interop::hf_gpt2_expressible),
      of_transformers<interop::write_bert, interop::read_bert>(ExportFormat::hf_bert,
                                                               interop::hf_bert_expressible),
      of_transformers<interop::write_llama, interop::read_llama>(ExportFormat::hf_llama,
                                                                 interop::hf_llama_expressible),
      {ExportFormat::ctranslate2,
       true,
       {float32, float16, bfloat16, int16, int8},
       interop::ctranslate2_expressible,
       [](const Job& job) {
         interop::write_ctranslate2(job.host, *job.vocabulary.tokenizer, job.weights,
                                    job.directory);
         return interop::read_back_ctranslate2(job.host, job.weights, job.directory);
       }},
      {ExportFormat::onnx,
       true,
       {float32, int8},
       interop::onnx_expressible,
       [](const Job& job) {
         interop::write_onnx(job.host, job.vocabulary, job.weights, job.directory);
         return interop::read_back_onnx(job.host, job.weights, job.directory);
       }},
      {ExportFormat::gguf,
       true,
       {float16, float32, q8_0, q4_0},
       interop::gguf_expressible,
       [](const Job& job) {
         interop::write_gguf(job.host, job.vocabulary, job.weights, job.directory);
         return interop::read_back_gguf(job.host, job.vocabulary, job.weights, job.directory);
       }},
      {ExportFormat::hf_compressed,
       false,
       {int8, int4},
       interop::hf_compressed_expressible,
       [](const Job& job) {
         interop::write_compressed_tensors(job.host, job.vocabulary, job.weights, job.directory);
         return interop::read_back_compressed_tensors(job.host, job.weights, job.directory);
       }},
  };
  return all;
}

struct DirectoryReader {
  const char* model_type;
  interop::Imported (*read)(const fs::path& directory, const interop::ReadTarget& target);
};
constexpr DirectoryReader kDirectoryReaders[] = {{"marian", interop::read_marian},
                                                 {"pegasus", interop::read_pegasus},
                                                 {"m2m_100", interop::read_m2m100},
                                                 {"mbart", interop::read_mbart},
                                                 {"bart", interop::read_bart},
                                                 {"t5", interop::read_t5},
                                                 {"mt5", interop::read_t5},
                                                 {"gpt2", interop::read_gpt2},
                                                 {"llama", interop::read_llama},
                                                 {"mistral", interop::read_llama},
                                                 {"qwen2", interop::read_llama},
                                                 {"qwen3", interop::read_llama},
                                                 {"phi3", interop::read_llama},
                                                 {"hunyuan_v1_dense", interop::read_llama},
                                                 {"smollm3", interop::read_llama},
                                                 {"granite", interop::read_llama},
                                                 {"olmo2", interop::read_llama},
                                                 {"gemma2", interop::read_llama},
                                                 {"gemma3_text", interop::read_llama},
                                                 {"ministral3", interop::read_llama},
                                                 {"bert", interop::read_bert},
                                                 {"roberta", interop::read_bert},
                                                 {"xlm-roberta", interop::read_bert},
                                                 {"modernbert", interop::read_bert}};

const Format* find_format(int32_t value) {
  for (const Format& format : formats())
    if (static_cast<int32_t>(format.format) == value) return &format;
  return nullptr;
}

constexpr const char* kNoWindow =
    "layers of this kind attend to all positions, or to those of sliding_window";

// Kinds of models that are refused, and the part that models here lack.
struct RefusedKind {
  std::string_view model_types;  // between spaces
  const char* lacking;
};
constexpr RefusedKind kRefusedKinds[] = {
    {" mixtral qwen2_moe qwen3_moe gpt_oss granitemoe granitemoeshared olmoe phimoe deepseek_v2 "
     "deepseek_v3 hunyuan_v1_moe ernie4_5_moe glm4_moe llama4 llama4_text nllb-moe minimax ",
     "mixtures of experts"},
    {" qwen3_next qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text kimi_linear olmo_hybrid ",
     "gated delta nets"},
    {" lfm2 lfm2_moe lfm2_vl ", "short convolutions"},
    {" mamba mamba2 falcon_mamba falcon_h1 jamba bamba zamba2 nemotron_h granitemoehybrid ",
     "state spaces"},
    {" gemma ", "scaled norms of inputs alone"},
    {" gemma3 gemma3n gemma3n_text gemma4 gemma4_text ",
     "images, embeddings of layers and shared keys (Gemma 3 is imported from its text model, "
     "gemma3_text)"},
    {" mistral3 ", "images (Ministral 3 is imported from its text model, ministral3)"},
    {" cohere2 exaone4 olmo3 ", "the rotary positions of their layers with an attention window"},
    {" umt5 longt5 switch_transformers udop pop2piano ",
     "T5's other kinds of attention and layers"},
    {" gpt_neox falcon gptj phi cohere ", "blocks with attention and feed-forward in parallel"},
    {" bloom mpt ", "ALiBi positions"}};

// "; mixtures of experts are not supported" of such a kind, else empty.
std::string refused_kind(const std::string& model_type) {
  for (const RefusedKind& kind : kRefusedKinds)
    if (kind.model_types.find(concat(" ", model_type, " ")) != std::string_view::npos)
      return concat(", and ", kind.lacking, " are not supported");
  return {};
}

// The type of the weights. UNSUPPORTED lists what the format has.
ExportWeights weights_of(const Format& format, ExportWeights wanted) {
  if (wanted == ExportWeights::by_format) return format.weights.front();
  std::string known;
  for (const ExportWeights each : format.weights) {
    if (each == wanted) return wanted;
    known.append(known.empty() ? "" : ", ").append(enum_name(each));
  }
  interop::cannot_express(
      enum_name(format.format),
      concat("weights of the type ", enum_name(wanted), " (--weights), it has ", known));
}

// Whether a format has the type of the model's weights unless its caller names one: directories of
// transformers.
bool keeps_types(const Format& format) {
  return format.weights == std::vector{ExportWeights::float32};
}

// Whether the files of a format have vocabularies of this kind. All formats have SentencePiece
// models. GGUF, BART, encoders and the decoder-only models of transformers have byte-level BPE as
// well, the latter two also WordPiece, T5 bytes, and encoder-decoders a marian vocabulary: one with
// languages is M2M100's.
bool takes_kind(const Tokenizer& tokenizer, const ModelSpec& spec, const Format& format) {
  using enum ExportFormat;
  const std::string_view kind = tokenizer.kind();
  const bool takes_wordpiece = format.format == hf_gpt2 || format.format == hf_llama ||
                               format.format == hf_compressed || format.format == hf_bert;
  if (kind == WordPieceTokenizer::kKind) return takes_wordpiece;
  if (kind == ByteBpeTokenizer::kKind)
    return takes_wordpiece || format.format == hf_bart || format.format == gguf ||
           (format.format == onnx && !spec.has_encoder());
  if (kind == ByteTokenizer::kKind) return format.format == hf_t5;
  if (kind != MarianTokenizer::kKind) return tokenizer.as_sentencepiece() != nullptr;
  return tokenizer.languages().empty()
             ? format.format == hf_marian || format.format == hf_pegasus ||
                   (spec.has_encoder() && (format.format == onnx || format.format == ctranslate2))
             : format.format == hf_m2m100 || (spec.has_encoder() && format.format == onnx);
}

// The vocabulary in the files of a format. BPE with byte fallback stays as it came where byte-level
// BPE is taken, except in GGUF; other formats get its SentencePiece model. None: the format has no
// such vocabularies.
std::optional<Tokenizer> written_form(const Tokenizer& tokenizer, const ModelSpec& spec,
                                      const Format& format) {
  const bool takes = takes_kind(tokenizer, spec, format);
  if (!takes || format.format == ExportFormat::gguf)
    if (std::optional<Tokenizer> form = interop::sentencepiece_form(tokenizer)) return form;
  return takes ? std::optional(tokenizer) : std::nullopt;
}

// Whether a format has a form of this vocabulary or, without one, needs none.
bool takes_vocabulary(const std::optional<Tokenizer>& tokenizer, const ModelSpec& spec,
                      const Format& format) {
  if (!tokenizer) return !format.needs_tokenizer;
  try {
    return written_form(*tokenizer, spec, format).has_value();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return false;  // a SentencePiece model has not all of it
  }
}

// UNSUPPORTED names the kind of a vocabulary that the format does not have.
Tokenizer written_vocabulary(const Tokenizer& tokenizer, const ModelSpec& spec,
                             const Format& format) {
  std::optional<Tokenizer> form = written_form(tokenizer, spec, format);
  if (!form)
    interop::cannot_express(enum_name(format.format),
                            concat("a ", tokenizer.kind(), " vocabulary",
                                   tokenizer.kind() != MarianTokenizer::kKind ? ""
                                   : tokenizer.languages().empty()            ? " without languages"
                                                                              : " with languages"));
  return *std::move(form);
}

// UNSUPPORTED names the first setting of the model that the format does not have, and the formats
// that have all, and vocabularies of this kind.
void refuse_what_is_not(const ModelSpec& spec, const std::optional<Tokenizer>& tokenizer,
                        const Format& format) {
  const interop::Match match = interop::match(spec, format.expressible());
  if (match.form >= 0) return;
  std::string others;
  for (const Format& each : formats())
    if (interop::match(spec, each.expressible()).form >= 0 &&
        takes_vocabulary(tokenizer, spec, each))
      others.append(others.empty() ? "; use " : " or ").append(enum_name(each.format));
  interop::cannot_express(format.expressible().format, match.refused + others);
}

// The largest difference between logits of the model and of what was written.
double write_and_check(const Format& format, const Job& job) {
  const HostModel& host = job.host;
  // Each weight is written, and read back to be compared.
  WorkProgress progress(Work::convert_weights, 2 * host.parameters().parameter_count());
  const HostModel again = format.write_and_read(job);
  progress.finish();
  if (host.is_bfloat16) interop::write_weight_type(job.directory);
  if (again.model == host.model) return 0;  // every weight and setting of the files is the model's
  const double difference = interop::logit_difference(host, again);
  // Rounded weights may give any logits, so the model with the same rounded weights is compared: it
  // differs if the files do not say all that the model's configuration does.
  const bool rounded = job.weights != ExportWeights::float32;
  const double error =
      !rounded ? difference
      : interop::are_same_function(again.config(), host.config())
          ? 0
          : interop::logit_difference(interop::with_weights_of(host.config(), again, job.directory),
                                      again);
  require(error <= kTolerance && std::isfinite(difference), ErrorCode::non_finite, kOrigin,
          "what was written as ", enum_name(format.format),
          " gives logits that differ from the model's",
          rounded ? " with the same rounded weights" : "", " by ", error,
          "; nothing is left of it");
  return difference;
}

HostModel without_output_bias(const HostModel& host, const fs::path& directory) {
  HostModel folded = interop::fold_output_bias(host, directory);
  const double difference = interop::logit_difference(host, folded);
  require(difference <= kTolerance, ErrorCode::non_finite, kOrigin,
          "without its output bias the model gives logits that differ from its own by ", difference,
          "; nothing is left of it");
  return folded;
}

}  // namespace

double export_model(Context& context, const Model& model, const std::optional<Tokenizer>& tokenizer,
                    ExportFormat format, const fs::path& directory, ExportWeights weights) {
  const Format* found = find_format(static_cast<int32_t>(format));
  require(found != nullptr, ErrorCode::invalid_argument, kOrigin, "unknown format ",
          static_cast<int32_t>(format));
  require(is_known(weights), ErrorCode::invalid_argument, kOrigin, "unknown type of weights ",
          static_cast<int32_t>(weights));
  const bool keeps_type = weights == ExportWeights::by_format && keeps_types(*found);
  weights = weights_of(*found, weights);
  require_argument(tokenizer || !found->needs_tokenizer, interop::kOrigin, "tokenizer",
                   " is missing, and ", enum_name(format), " has one in its files");
  std::optional<Tokenizer> written;
  if (tokenizer) {
    interop::check_vocabulary(model.spec(), *tokenizer);
    written = written_vocabulary(*tokenizer, model.spec(), *found);
  }
  refuse_what_is_not(model.spec(), tokenizer, *found);
  UnfinishedDirectory unfinished(directory);
  const interop::ExportVocabulary vocabulary(written, tokens_of(model, tokenizer));
  // The models that are made for it, whose memory lies in the directory, are gone after this.
  const double difference = [&] {
    HostModel host = interop::host_model_of(context, model, unfinished.path());
    // No architecture of llama.cpp that is written has an output bias.
    if (format == ExportFormat::gguf && host.spec().output.bias)
      host = without_output_bias(host, unfinished.path());
    host.is_bfloat16 = keeps_type && interop::has_bfloat16_values(host);
    return write_and_check(*found, {host, vocabulary, weights, unfinished.path()});
  }();
  stop_if_call_is_cancelled(kOrigin);
  unfinished.publish();
  return difference;
}

ImportedModel import_model(Context& context, const fs::path& directory) {
  const interop::ConfigReader config(directory / "config.json");
  const std::string type = config.text("model_type");
  const DirectoryReader* reader =
      std::find_if(std::begin(kDirectoryReaders), std::end(kDirectoryReaders),
                   [&](const DirectoryReader& each) { return type == each.model_type; });
  if (reader == std::end(kDirectoryReaders)) {
    std::string known;
    for (const DirectoryReader& each : kDirectoryReaders)
      known.append(known.empty()                              ? ""
                   : &each + 1 == std::end(kDirectoryReaders) ? " and "
                                                              : ", ")
          .append(each.model_type);
    fail(ErrorCode::unsupported, kOrigin, config.label(), ": model_type is ", type.substr(0, 64),
         refused_kind(type), "; ", known, " can be imported");
  }
  config.refuse("quantization_config", "models with float weights can be imported");
  // transformers reads these keys of every configuration, in masks and caches.
  config.demand("is_causal", true, true);
  for (const char* key : {"per_layer_config", "kv_sharing_modes", "attention_chunk_size"})
    config.refuse(key, kNoWindow);
  if (reader->read != interop::read_llama && type != "modernbert")  // which read them
    for (const char* key : {"sliding_window", "layer_types"}) config.refuse(key, kNoWindow);
  WorkProgress progress(Work::convert_weights);
  // A model of a CPU is read to its place.
  const bool in_place = context.device().kind == DeviceKind::cpu && context.backend().keeps_data();
  interop::Imported imported = reader->read(directory, {.context = in_place ? &context : nullptr});
  progress.finish();
  std::unique_ptr<Model> model =
      in_place ? std::move(imported.host.owned) : interop::copy_from_host(context, imported.host);
  imported.host = {};
  std::optional<VocabularyTokens> tokens =
      imported.tokenizer ? imported.tokenizer->tokens()
                         : interop::read_tokens(directory, config, model->spec());
  if (tokens && !model->spec().has_encoder())
    tokens->frame = interop::read_frame(directory, *tokens, imported.tokenizer);
  // Classes of encoders put both around a text, unless tokenizer.json says otherwise.
  std::error_code ignored;
  if (tokens && model->spec().architecture == Architecture::encoder && imported.tokenizer &&
      imported.tokenizer->as_sentencepiece() != nullptr &&
      !fs::exists(directory / "tokenizer.json", ignored))
    tokens->frame = {.begin = tokens->special.bos >= 0, .end = true};
  model->set_tokens(std::move(tokens));
  return {std::move(model), std::move(imported.tokenizer), std::move(imported.note)};
}

}  // namespace trafo
