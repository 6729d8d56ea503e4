// The directories of these classes of transformers: MarianMTModel and BartForConditionalGeneration
// (post-norm), PegasusForConditionalGeneration, M2M100ForConditionalGeneration and
// MBartForConditionalGeneration (pre-norm). MarianMT and Pegasus have sinusoidal positions (which
// are computed, not stored) and embeddings scaled by the square root of the width. M2M100 has
// another table of positions, no bias of the logits, and embeddings scaled unless the file says
// otherwise. BART and mBART have learned positions, a norm of the embeddings, and embeddings that
// are scaled or not. All layer norms have the epsilon 1e-5. The pre-norm models have a norm after
// the layers of each stack.
//
// The decoder starts with the token `decoder_start_token_id`. For models trained here that is <s>.
// Models trained by Marian start with <pad>, whose embedding is the last row and all zeros. Import
// turns this token into <s>, and the model has no <pad>; the function is the same. Export turns it
// back into <pad>.
#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "engine/core/limits.h"
#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/hf/lm_files.h"
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/io/atomic_file.h"
#include "engine/io/safetensors_header.h"
#include "engine/text/tokenizer/marian/marian_file.h"
#include "engine/text/tokenizer/marian/marian_tokenizer.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr double kEpsilon = 1e-5;  // torch.nn.LayerNorm's default, which both classes keep

struct MarianForm {
  const char* architecture;
  const char* model_type;
  bool pre_norm;
  PositionTable positions = PositionTable::sinusoidal;

  bool is_m2m100() const { return positions == PositionTable::fairseq; }
  bool is_learned() const { return positions == PositionTable::learned; }
  bool is_mbart() const { return is_learned() && pre_norm; }
  bool is_bart() const { return is_learned() && !pre_norm; }
  bool is_marian() const { return positions == PositionTable::sinusoidal && !pre_norm; }
};
constexpr MarianForm kMarianMt{"MarianMTModel", "marian", false};
constexpr MarianForm kPegasus{"PegasusForConditionalGeneration", "pegasus", true};
constexpr MarianForm kM2m100{"M2M100ForConditionalGeneration", "m2m_100", true,
                             PositionTable::fairseq};
constexpr MarianForm kBart{"BartForConditionalGeneration", "bart", false, PositionTable::learned};
constexpr MarianForm kMbart{"MBartForConditionalGeneration", "mbart", true, PositionTable::learned};

Expressible marian_expressible(const char* format, const MarianForm& form) {
  const Form shared{{"positions", form.is_m2m100()    ? "fairseq"
                                  : form.is_learned() ? "learned"
                                                      : "sinusoidal"},
                    {"embedding_norm", form.is_learned() ? "yes" : "no"},
                    {"embedding_scale", form.is_learned() ? "sqrt(width) 1" : "sqrt(width)"},
                    {"norm placement", form.pre_norm ? "before" : "after"},
                    {"activation", "*"},
                    {"norm_epsilon", "1e-05"},
                    {"output_bias", form.is_m2m100() ? "no" : "*"}};
  if (!form.is_marian()) return {format, {shared}};
  Form separate = shared;
  separate.insert(separate.end(),
                  {{"source_vocabulary", "own"}, {"embeddings", "output separate"}});
  return {format, {shared, separate}};
}

Json marian_config(const MarianForm& form, const ModelSpec& spec, const Tokenizer& tokenizer,
                   int32_t begin, int32_t pad) {
  const StackSpec &encoder = *spec.encoder, &decoder = spec.decoder;
  Json json;
  json["architectures"] = Json::List{form.architecture};
  json["model_type"] = form.model_type;
  json["is_encoder_decoder"] = true;
  json["vocab_size"] = spec.source_vocabulary();
  json["decoder_vocab_size"] = spec.vocabulary;
  json["d_model"] = spec.width();
  json["encoder_layers"] = encoder.layers();
  json["decoder_layers"] = decoder.layers();
  json["encoder_attention_heads"] = encoder.attention.heads;
  json["decoder_attention_heads"] = decoder.attention.heads;
  json["encoder_ffn_dim"] = encoder.feed_forward.width;
  json["decoder_ffn_dim"] = decoder.feed_forward.width;
  json["activation_function"] = activation_to_name(decoder.feed_forward.activation);
  json["dropout"] = decoder.dropout;
  json["attention_dropout"] = decoder.attention.dropout;
  json["activation_dropout"] = decoder.feed_forward.dropout;
  json["max_position_embeddings"] = spec.max_positions;
  json["scale_embedding"] = spec.embedding.scale != 1;
  json["static_position_embeddings"] = spec.embedding.has_fixed_positions();
  json["normalize_embedding"] = spec.embedding.norm;
  json["normalize_before"] = decoder.pre_norm();
  json["add_final_layer_norm"] = decoder.pre_norm();
  json["share_encoder_decoder_embeddings"] = spec.embedding.shared;
  json["tie_word_embeddings"] = spec.output.tied;
  json["use_cache"] = true;
  json["bos_token_id"] = begin;
  json["eos_token_id"] = tokenizer.eos_id();
  json["pad_token_id"] = pad;
  json["decoder_start_token_id"] = tokenizer.special_tokens().start();
  json["forced_eos_token_id"] = nullptr;
  json["torch_dtype"] = "float32";
  return json;
}

Json generation_json(const ModelSpec& spec, const Tokenizer& tokenizer, int32_t pad) {
  Json json;
  json["bos_token_id"] = tokenizer.special_tokens().start();
  json["eos_token_id"] = tokenizer.eos_id();
  json["pad_token_id"] = pad;
  json["decoder_start_token_id"] = tokenizer.special_tokens().start();
  json["max_length"] = std::min<int64_t>(512, spec.max_positions);
  json["num_beams"] = 5;
  json["early_stopping"] = true;  // without it transformers searches on for longer
  json["suppress_tokens"] = never_generated(tokenizer.special_tokens());
  return json;
}

// ---- the tokenizer of an imported directory ----

struct Vocabulary {
  std::vector<std::string> subwords;  // by id
  int32_t unk = -1, eos = -1, start = -1;
  std::vector<int32_t> ends;  // eos first
};

// The number of ids, up to the last one that has a subword.
int32_t used_ids(const std::vector<std::string>& subwords) {
  const auto used = std::find_if(subwords.rbegin(), subwords.rend(),
                                 [](const std::string& subword) { return !subword.empty(); });
  return static_cast<int32_t>(subwords.rend() - used);
}

Vocabulary read_vocabulary(std::string_view json, const std::string& label,
                           const ConfigReader& config, int64_t size) {
  Vocabulary vocabulary;
  vocabulary.subwords = read_marian_ids(json, size, label);
  const auto id_of = [&](const char* subword) {
    const auto found = std::find(vocabulary.subwords.begin(), vocabulary.subwords.end(), subword);
    require(found != vocabulary.subwords.end(), ErrorCode::corrupt_file, kOrigin, label, " has no ",
            subword);
    return static_cast<int32_t>(found - vocabulary.subwords.begin());
  };
  vocabulary.unk = id_of("<unk>");
  vocabulary.eos = id_of("</s>");
  vocabulary.start = static_cast<int32_t>(config.integer("decoder_start_token_id", 0, size - 1));
  vocabulary.ends = read_end_ids(config);
  require(!vocabulary.ends.empty() && vocabulary.ends.front() == vocabulary.eos,
          ErrorCode::corrupt_file, kOrigin, config.label(),
          ": eos_token_id is not the id of </s> in ", label);
  // A vocabulary that was padded ends with rows that have no subword.
  const int64_t needed = std::max<int64_t>(
      used_ids(vocabulary.subwords),
      1 + std::max(vocabulary.start,
                   *std::max_element(vocabulary.ends.begin(), vocabulary.ends.end())));
  vocabulary.subwords.resize(static_cast<size_t>(std::min(size, needed)));
  return vocabulary;
}

// Whether the model of sources, which is also the model of targets, has the ids of the vocabulary.
bool is_same(const Vocabulary& vocabulary, const Tokenizer& tokenizer) {
  if (tokenizer.vocab_size() != static_cast<int64_t>(vocabulary.subwords.size()) ||
      tokenizer.special_tokens().start() != vocabulary.start ||
      tokenizer.eos_id() != vocabulary.eos || tokenizer.unk_id() != vocabulary.unk ||
      tokenizer.further_end_ids().size() + 1 != vocabulary.ends.size() ||
      !std::equal(vocabulary.ends.begin() + 1, vocabulary.ends.end(),
                  tokenizer.further_end_ids().begin()))
    return false;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool start_is_pad = id == vocabulary.start && tokenizer.pad_id() < 0;
    if (!start_is_pad && tokenizer.token(id) != vocabulary.subwords[static_cast<size_t>(id)])
      return false;
  }
  return true;
}

// The tokenizer of spiece.model as PegasusTokenizer reads it: <pad> and </s> keep their ids, <unk>
// and all subwords after it have ids higher by `offset`, and texts never have the tokens between.
Tokenizer shifted_tokenizer(const fs::path& directory, const SpecialIds& ids, int64_t size) {
  const fs::path file = directory / "spiece.model", options = directory / "tokenizer_config.json";
  const Tokenizer stored =
      load_sentencepiece(read_text_file(file, limits::kTokenizerBytes), file.string());
  const SpmModel model = parse_spm(stored.serialized());
  constexpr int32_t kPad = 0, kEos = 1, kUnk = 2;
  require(stored.pad_id() == kPad && stored.eos_id() == kEos && stored.unk_id() == kUnk,
          ErrorCode::unsupported, kOrigin, file.string(),
          ": Pegasus has the ids 0, 1 and 2 for <pad>, </s> and <unk>");
  std::error_code ignored;
  int64_t offset = 103;
  if (fs::exists(options, ignored)) {
    const ConfigReader json(options);
    if (json.has("offset")) offset = json.integer("offset", 0, limits::kVocabulary);
  }
  const int64_t tokens = std::ssize(model.subwords) + offset;
  require(tokens <= size, ErrorCode::corrupt_file, kOrigin, file.string(), " has ",
          model.subwords.size(), " subwords and an offset of ", offset,
          ", more than the vocab_size of ", size);
  std::vector<ScoredSubword> subwords(model.subwords.begin(), model.subwords.begin() + kUnk);
  for (int64_t id = kUnk; id < kUnk + offset; ++id)
    subwords.push_back({concat("<unused:", id, ">"), 0, SubwordType::unused});
  subwords.insert(subwords.end(), model.subwords.begin() + kUnk, model.subwords.end());
  return load_sentencepiece(serialize_spm(model, std::move(subwords), ids, file.string()),
                            file.string());
}

// The rows of the embeddings that a file has; `sources` 0: one matrix for both sides.
struct StoredRows {
  int64_t targets, sources = 0;
};

// The vocabulary is one SentencePiece model where that has the ids of vocab.json, as in what was
// exported here, and of the kind `marian` otherwise. With separate_vocabs, vocab.json has the ids
// of sources, and target_vocab.json those of targets.
ReadTokenizer read_marian_tokenizer(const fs::path& directory, const ConfigReader& config,
                                    const StoredRows& rows) {
  std::string files[kMarianFiles];
  MarianParts parts;
  std::error_code ignored;
  const auto path = [&](MarianFile file) { return directory / kMarianFileNames[file]; };
  const auto read_file = [&](MarianFile file, uint64_t most) {
    files[file] = read_text_file(path(file), most);
    parts.files[file] = files[file];
  };
  read_file(kMarianIds, limits::kVocabularyBytes);
  read_file(kMarianSource, limits::kTokenizerBytes);
  read_file(kMarianTarget, limits::kTokenizerBytes);
  if (fs::exists(path(kMarianConfig), ignored)) read_file(kMarianConfig, limits::kConfigBytes);
  const std::string options = path(kMarianConfig).string();
  const bool is_separate = has_separate_vocabs(files[kMarianConfig], options);
  require(!is_separate || rows.sources > 0, ErrorCode::unsupported, kOrigin, options,
          ": separate_vocabs is true, and share_encoder_decoder_embeddings of ", config.label(),
          " is not false");
  require(is_separate || rows.sources == 0 || rows.sources == rows.targets, ErrorCode::unsupported,
          kOrigin, options,
          ": separate_vocabs is not true, and vocab_size and decoder_vocab_size of ",
          config.label(), " differ");
  if (is_separate) {
    read_file(kMarianTargetIds, limits::kVocabularyBytes);
    parts.source_tokens =
        used_ids(read_marian_ids(files[kMarianIds], rows.sources, path(kMarianIds).string()));
  }
  const MarianFile of_targets = is_separate ? kMarianTargetIds : kMarianIds;
  const Vocabulary vocabulary =
      read_vocabulary(files[of_targets], path(of_targets).string(), config, rows.targets);
  ReadTokenizer read;
  if (!is_separate && files[kMarianSource] == files[kMarianTarget]) {
    Tokenizer source = load_sentencepiece(files[kMarianSource],
                                          (directory / kMarianFileNames[kMarianSource]).string());
    if (is_same(vocabulary, source)) read.tokenizer = std::move(source);
  }
  if (!read.tokenizer) {
    parts.tokens = static_cast<int32_t>(vocabulary.subwords.size());
    parts.start = vocabulary.start;
    parts.ends = vocabulary.ends;
    read.tokenizer = load_marian(serialize_marian(parts), directory.string());
  }
  read.note = spare_rows_note(rows.targets, read.tokenizer->vocab_size());
  if (read.note.empty() && rows.sources > 0)
    read.note = spare_rows_note(rows.sources, read.tokenizer->source_vocab_size());
  return read;
}

// As MarianTokenizer's, or else of tokenizer.json, tokenizer.model or spiece.model. The decoder
// starts with a token that the configuration names, usually <pad>.
ReadTokenizer read_pegasus_tokenizer(const fs::path& directory, const ConfigReader& config,
                                     int64_t size) {
  std::error_code ignored;
  if (fs::exists(directory / "vocab.json", ignored))
    return read_marian_tokenizer(directory, config, {size});
  SpecialIds ids = read_special_ids(directory, config);
  ids.bos = static_cast<int32_t>(config.integer("decoder_start_token_id", 0, size - 1));
  ids.pad = -1;
  if (fs::exists(directory / "tokenizer.json", ignored) ||
      !fs::exists(directory / "spiece.model", ignored))
    return read_tokenizer_of(directory, config, size, ids);
  ReadTokenizer read{shifted_tokenizer(directory, ids, size), {}};
  read.note = spare_rows_note(size, read.tokenizer->vocab_size());
  return read;
}

// Embeddings here are multiplied by the square root of the width. A model whose embeddings are not
// is the same function with embeddings divided by that root, and the last norm before the output,
// if that has the embeddings as its matrix, multiplied by it.
void undo_embedding_scale(HostModel& host) {
  const ModelSpec& spec = host.spec();
  const double root = spec.embedding.scale;
  const auto scale = [&](const std::string& parameter, int64_t count, double factor) {
    float* values = host.values(parameter.c_str());
    for (int64_t i = 0; i < count; ++i)
      values[i] = static_cast<float>(static_cast<double>(values[i]) * factor);
  };
  const std::string last = spec.decoder.pre_norm()
                               ? std::string("decoder.norm")
                               : concat("decoder.", spec.decoder.layers() - 1, ".ffn_norm");
  scale("embedding.weight", spec.vocabulary * spec.width(), 1 / root);
  if (!spec.embedding.shared)
    scale("source_embedding.weight", spec.source_vocabulary() * spec.width(), 1 / root);
  if (!spec.output.tied) return;
  scale(last + ".weight", spec.width(), root);
  scale(last + ".bias", spec.width(), root);
}

// The one matrix of the embeddings and the output is stored under one of these names or several.
constexpr const char* kEmbeddings[] = {"model.shared.weight", "model.encoder.embed_tokens.weight",
                                       "model.decoder.embed_tokens.weight", "lm_head.weight"};
// The names of the matrix of target embeddings: those, or without that of sources, or without the
// output, which is another matrix then.
std::span<const char* const> target_embeddings(const ModelConfig& config) {
  const std::span all(kEmbeddings);
  if (config.source_vocabulary == 0) return all;
  return config.tied_embeddings ? all.last(2) : all.subspan(2, 1);
}

// Files of a base class, such as BartModel, have names without "model.".
std::string name_in_files(const WeightFiles& weights, const std::string& name) {
  constexpr std::string_view kPrefix = "model.";
  const auto is_bare = [&](std::string_view embedding) {
    return embedding.starts_with(kPrefix) &&
           weights.has(std::string(embedding.substr(kPrefix.size())));
  };
  const bool strip = name.starts_with(kPrefix) &&
                     std::any_of(std::begin(kEmbeddings), std::end(kEmbeddings), is_bare);
  return strip ? name.substr(kPrefix.size()) : name;
}

// transformers computes the table of positions or reads it, in the type of the weights. Refuses one
// that was trained.
void check_positions(const HostModel& host, const WeightFiles& weights) {
  constexpr float kRounding = 1.0f / 128;  // of bfloat16, twice
  const ModelSpec& spec = host.spec();
  for (const char* full :
       {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"}) {
    const std::string name = name_in_files(weights, full);
    if (!weights.has(name)) continue;
    const auto [file, info] = weights.at(name);
    const std::vector<int64_t> wanted{spec.max_positions, spec.width()};
    require_weight_type(file->label(), *info);
    require(info->shape == wanted, ErrorCode::corrupt_file, kOrigin, file->label(), ": ", name,
            " is no table of ", spec.max_positions, " positions of the width ", spec.width());
    const std::vector<float> values = read_floats(*file, *info);
    const Tensor table = fixed_positions(*host.context, spec, DType::f32);
    const bool same = std::equal(values.begin(), values.end(), table.data<float>(),
                                 [](float a, float b) { return std::abs(a - b) <= kRounding; });
    require(same, ErrorCode::unsupported, kOrigin, file->label(), ": ", name,
            " has not the sinusoidal positions that models here have");
  }
}

void write_marian_config(const MarianForm& form, const ModelSpec& spec, const Tokenizer& tokenizer,
                         const fs::path& directory) {
  if (form.is_m2m100()) write_m2m100_tokenizer(tokenizer, spec.max_positions, directory);
  if (form.is_mbart()) write_mbart_tokenizer(tokenizer, spec.max_positions, directory);
  const int32_t begin = form.is_bart() ? write_bart_tokenizer(tokenizer, directory)
                                       : tokenizer.special_tokens().start();
  // In a vocabulary without <pad>, <s> takes its place, as in models of Marian; without both, </s>
  // does.
  const bool has_pad = tokenizer.pad_id() >= 0;
  int32_t pad = has_pad ? tokenizer.pad_id() : tokenizer.special_tokens().start();
  // The class has it as a row of both embeddings.
  if (pad >= spec.source_vocabulary()) pad = tokenizer.eos_id();
  write_json(directory / "config.json", marian_config(form, spec, tokenizer, begin, pad));
  if (form.is_bart()) return;  // whose generation_config.json came with the tokenizer
  write_json(directory / "generation_config.json", generation_json(spec, tokenizer, pad));
  if (form.is_m2m100() || form.is_mbart()) return;
  if (tokenizer.kind() == MarianTokenizer::kKind)
    return write_marian_vocabulary(tokenizer, directory);
  const bool renamed = !has_pad && pad != tokenizer.eos_id();
  std::map<std::string, int32_t> ids;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    ids[id == pad && renamed ? "<pad>" : tokenizer.token(id)] = id;
  Json::Object vocabulary;
  for (const auto& [subword, id] : ids) vocabulary.push_back({subword, id});
  Json tokens;
  tokens["tokenizer_class"] = "MarianTokenizer";
  tokens["unk_token"] = tokenizer.token(tokenizer.unk_id());
  tokens["eos_token"] = tokenizer.token(tokenizer.eos_id());
  tokens["pad_token"] = renamed ? "<pad>" : tokenizer.token(pad);
  tokens["separate_vocabs"] = false;
  tokens["model_max_length"] = spec.max_positions;
  tokens["clean_up_tokenization_spaces"] = false;
  tokens["split_special_tokens"] = true;  // "</s>" in a text is no token, as in SentencePiece
  write_json(directory / "tokenizer_config.json", tokens);
  write_file_atomically(directory / "vocab.json", Json(vocabulary).dump(0) + "\n");
  write_file_atomically(directory / "source.spm", tokenizer.serialized());
  write_file_atomically(directory / "target.spm", tokenizer.serialized());
}

void write_marian_form(const MarianForm& form, const HostModel& host, const Tokenizer& tokenizer,
                       const fs::path& directory) {
  write_marian_config(form, host.spec(), tokenizer, directory);
  write_tensors(directory / "model.safetensors", host, marian_tensors(host.config()));
}

// Refuses keys that change what the class computes and that have no counterpart here. Whether both
// sides share their embeddings.
bool check_marian_keys(const MarianForm& form, const ConfigReader& json,
                       const fs::path& directory) {
  const bool shares = !form.is_marian() || json.flag("share_encoder_decoder_embeddings", true);
  if (!form.is_marian()) json.demand("share_encoder_decoder_embeddings", true, true);
  if (shares) json.demand("tie_word_embeddings", true, true);
  json.demand("static_position_embeddings", !form.is_learned(), !form.is_learned());
  json.demand("normalize_embedding", form.is_learned(), form.is_learned());
  if (!form.is_m2m100() && !form.is_learned())
    generation_options(directory, json)
        .refuse("forced_bos_token_id", "translations here begin with any token");
  for (const auto& [other, field] : {std::pair{"hidden_size", "d_model"},
                                     {"num_attention_heads", "encoder_attention_heads"},
                                     {"num_hidden_layers", "encoder_layers"}})
    json.demand_same(other, field);
  // The class has one order of the norms, whatever the file says.
  for (const char* field : {"normalize_before", "add_final_layer_norm"})
    require(json.flag(field, form.pre_norm) == form.pre_norm, ErrorCode::unsupported, kOrigin,
            json.label(), ": ", field, " is ", form.pre_norm ? "false" : "true", ", which ",
            form.architecture, " does not do; ", form.pre_norm ? "post" : "pre",
            "-norm models have the model_type ",
            form.is_learned() ? (form.pre_norm ? "bart" : "mbart")
            : form.pre_norm   ? "marian"
                              : "pegasus");
  return shares;
}

int64_t same_for_both_sides(const ConfigReader& json, const char* encoder, const char* decoder) {
  const int64_t value = json.integer(encoder, 1, limits::kModelDimension);
  require(json.integer(decoder, 1, limits::kModelDimension) == value, ErrorCode::unsupported,
          kOrigin, json.label(), ": ", encoder, " and ", decoder,
          " differ, models here have one for both");
  return value;
}

StoredRows stored_rows(const ConfigReader& json, bool shares) {
  StoredRows rows{json.integer("vocab_size", 4, limits::kVocabulary)};
  if (!shares) {
    rows.sources = rows.targets;
    if (json.has("decoder_vocab_size"))
      rows.targets = json.integer("decoder_vocab_size", 4, limits::kVocabulary);
  } else if (json.has("decoder_vocab_size")) {
    same_for_both_sides(json, "vocab_size", "decoder_vocab_size");
  }
  return rows;
}

// Without the vocabularies, whose sizes the tokenizer decides.
ModelConfig marian_form_config(const MarianForm& form, const ConfigReader& json, bool shares) {
  ModelConfig config;
  if (!shares) config.tied_embeddings = json.flag("tie_word_embeddings", true);
  config.width = json.integer("d_model", 2, limits::kModelDimension);
  config.heads = same_for_both_sides(json, "encoder_attention_heads", "decoder_attention_heads");
  config.ffn_width = json.integer("decoder_ffn_dim", 1, limits::kModelDimension);
  const int64_t encoder_ffn = json.integer("encoder_ffn_dim", 1, limits::kModelDimension);
  if (encoder_ffn != config.ffn_width) config.encoder_ffn_width = encoder_ffn;
  config.encoder_layers = json.integer("encoder_layers", 1, limits::kLayers);
  config.decoder_layers = json.integer("decoder_layers", 1, limits::kLayers);
  config.max_positions = json.integer("max_position_embeddings", 2, limits::kModelDimension);
  config.activation = activation_from_name(json, "activation_function");
  config.dropout = json.number("dropout", 0.1);
  config.attention_dropout = json.number("attention_dropout", form.is_m2m100() ? 0.1 : 0);
  config.ffn_dropout = json.number("activation_dropout", 0);
  config.pre_norm = form.pre_norm;
  config.norm_epsilon = kEpsilon;
  config.fairseq_positions = form.is_m2m100();
  config.learned_positions = form.is_learned();
  config.output_bias = !form.is_m2m100();
  return config;
}

// Names of the stored embeddings of targets, the first of which is read.
std::vector<std::string> stored_embeddings(const WeightFiles& weights,
                                           std::span<const char* const> names) {
  std::vector<std::string> embeddings;
  for (const char* each : names)
    if (std::string stored_as = name_in_files(weights, each); weights.has(stored_as))
      embeddings.push_back(std::move(stored_as));
  if (embeddings.empty()) embeddings.emplace_back(names.front());  // an error names it
  return embeddings;
}

HostModel read_marian_tensors(const fs::path& directory, const ModelConfig& config,
                              const StoredRows& rows, const ReadTarget& target) {
  const WeightFiles weights = WeightFiles::open(directory);
  const std::span<const char* const> names = target_embeddings(config);
  const std::vector<std::string> embeddings = stored_embeddings(weights, names);
  const auto name = [&](const MappedTensor& tensor) {
    const bool missing_bias = tensor.name == "final_logits_bias" && !weights.has(tensor.name);
    return missing_bias                   ? std::string()
           : tensor.name == names.front() ? embeddings.front()
                                          : name_in_files(weights, tensor.name);
  };
  const auto surplus = [&](const TensorInfo& info) {
    static constexpr const char* kPositions[] = {
        "model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight",
        // Old files of M2M100, whose class does not read them.
        "model.encoder.embed_positions.weights", "model.decoder.embed_positions.weights"};
    const auto is_it = [&](const char* each) { return name_in_files(weights, each) == info.name; };
    return std::any_of(std::begin(kPositions), std::end(kPositions), is_it) ||
           std::find(embeddings.begin(), embeddings.end(), info.name) != embeddings.end();
  };
  std::vector<MappedTensor> tensors = marian_tensors(config);
  set_stored_vocabulary(tensors, config, rows.targets, rows.sources);
  HostModel host = read_tensors({weights, name, surplus}, config, tensors, target);
  for (size_t copy = 1; copy < embeddings.size(); ++copy)
    check_copy(weights, embeddings.front(), embeddings[copy]);
  if (host.spec().embedding.has_fixed_positions()) check_positions(host, weights);
  return host;
}

Imported read_marian_form(const MarianForm& form, const fs::path& directory,
                          const ReadTarget& target) {
  const ConfigReader json(directory / "config.json");
  const bool shares = check_marian_keys(form, json, directory);
  const StoredRows rows = stored_rows(json, shares);
  ModelConfig config = marian_form_config(form, json, shares);
  // M2M100's class scales embeddings unless the file says otherwise.
  const bool is_scaled = json.flag("scale_embedding", form.is_m2m100());
  if (!is_scaled && form.is_learned()) config.embedding_scale = 1;
  const int64_t stored = shares ? rows.targets : rows.sources;
  ReadTokenizer read = form.is_m2m100()  ? read_m2m100_tokenizer(directory, json, stored)
                       : form.is_mbart() ? read_mbart_tokenizer(directory, json, stored)
                       : form.is_bart()  ? read_bart_tokenizer(directory, json, stored)
                       : form.pre_norm   ? read_pegasus_tokenizer(directory, json, stored)
                                         : read_marian_tokenizer(directory, json, rows);
  config.vocabulary = read.tokenizer ? read.tokenizer->vocab_size() : stored;
  if (!shares) config.source_vocabulary = read.tokenizer->source_vocab_size();
  validate_read(config, json);

  const bool rescales = !is_scaled && !form.is_learned();
  const ReadTarget into{target.context, rescales ? nullptr : target.written, target.memory};
  Imported imported{read_marian_tensors(directory, config, rows, into), std::move(read.tokenizer),
                    std::move(read.note)};
  if (rescales) undo_embedding_scale(imported.host);
  return imported;
}

}  // namespace

const Expressible& hf_marian_expressible() {
  static const Expressible expressible = marian_expressible("MarianMT", kMarianMt);
  return expressible;
}

const Expressible& hf_pegasus_expressible() {
  static const Expressible expressible = marian_expressible("Pegasus", kPegasus);
  return expressible;
}

const Expressible& hf_m2m100_expressible() {
  static const Expressible expressible = marian_expressible("M2M100", kM2m100);
  return expressible;
}

const Expressible& hf_bart_expressible() {
  static const Expressible expressible = marian_expressible("BART", kBart);
  return expressible;
}

const Expressible& hf_mbart_expressible() {
  static const Expressible expressible = marian_expressible("mBART", kMbart);
  return expressible;
}

void write_marian_vocabulary(const Tokenizer& tokenizer, const fs::path& directory) {
  const MarianParts parts = parse_marian(tokenizer.serialized(), "tokenizer");
  const bool is_m2m100 = !parts.languages.empty();
  for (size_t i = 0; i < kMarianFiles; ++i)
    if (i == kMarianTarget && is_m2m100)
      continue;  // the same model
    else if (i < kMarianConfig || !parts.files[i].empty())
      write_file_atomically(
          directory / (i == kMarianSource && is_m2m100 ? kM2m100Model : kMarianFileNames[i]),
          parts.files[i]);
}

void write_marian_files(const ModelSpec& spec, const Tokenizer& tokenizer,
                        const fs::path& directory) {
  const bool is_m2m100 = spec.embedding.positions == PositionTable::fairseq &&
                         !tokenizer.languages().empty() && m2m100_fault(tokenizer).empty();
  write_marian_config(is_m2m100 ? kM2m100 : kMarianMt, spec, tokenizer, directory);
}

void write_marian(const HostModel& host, const Tokenizer& tokenizer, const fs::path& directory) {
  write_marian_form(kMarianMt, host, tokenizer, directory);
}

void write_pegasus(const HostModel& host, const Tokenizer& tokenizer, const fs::path& directory) {
  write_marian_form(kPegasus, host, tokenizer, directory);
}

void write_m2m100(const HostModel& host, const Tokenizer& tokenizer, const fs::path& directory) {
  write_marian_form(kM2m100, host, tokenizer, directory);
}

void write_bart(const HostModel& host, const Tokenizer& tokenizer, const fs::path& directory) {
  write_marian_form(kBart, host, tokenizer, directory);
}

void write_mbart(const HostModel& host, const Tokenizer& tokenizer, const fs::path& directory) {
  write_marian_form(kMbart, host, tokenizer, directory);
}

Imported read_m2m100(const fs::path& directory, const ReadTarget& target) {
  return read_marian_form(kM2m100, directory, target);
}

Imported read_bart(const fs::path& directory, const ReadTarget& target) {
  return read_marian_form(kBart, directory, target);
}

Imported read_mbart(const fs::path& directory, const ReadTarget& target) {
  return read_marian_form(kMbart, directory, target);
}

Imported read_marian(const fs::path& directory, const ReadTarget& target) {
  return read_marian_form(kMarianMt, directory, target);
}

Imported read_pegasus(const fs::path& directory, const ReadTarget& target) {
  return read_marian_form(kPegasus, directory, target);
}

}  // namespace trafo::interop
