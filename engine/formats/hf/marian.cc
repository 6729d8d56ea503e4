// The directories of MarianMTModel (post-norm) and PegasusForConditionalGeneration (pre-norm) of
// transformers. Both have sinusoidal positions (which are computed, not stored), embeddings scaled
// by the square root of the width, and layer norms with epsilon 1e-5. Pegasus adds a norm behind
// the layers of each stack.
//
// The decoder starts with the token `decoder_start_token_id`. For models trained here that is <s>.
// Models trained by Marian start with <pad>, whose embedding is the last row and all zeros. Import
// turns this token into <s>, and the model has no <pad>; the function is the same. Export turns it
// back into <pad>.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/core/limits.h"
#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/hf/lm_files.h"
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/io/atomic_file.h"
#include "engine/io/safetensors_header.h"
#include "engine/ops/embedding/embedding.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr double kEpsilon = 1e-5;  // torch.nn.LayerNorm's default, which both classes keep

struct MarianForm {
  const char* architecture;
  const char* model_type;
  bool pre_norm;
};
constexpr MarianForm kMarianMt{"MarianMTModel", "marian", false};
constexpr MarianForm kPegasus{"PegasusForConditionalGeneration", "pegasus", true};

Expressible marian_expressible(const char* format, const char* norm_placement) {
  return {format,
          {{{"positions", "sinusoidal"},
            {"embedding_scale", "sqrt(width)"},
            {"norm placement", norm_placement},
            {"activation", "*"},
            {"norm_epsilon", "1e-05"},
            {"output_bias", "*"}}}};
}

Json marian_config(const MarianForm& form, const ModelSpec& spec, const Tokenizer& tokenizer,
                   int32_t pad) {
  const StackSpec &encoder = *spec.encoder, &decoder = spec.decoder;
  Json json;
  json["architectures"] = Json::List{form.architecture};
  json["model_type"] = form.model_type;
  json["is_encoder_decoder"] = true;
  json["vocab_size"] = spec.vocabulary;
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
  json["scale_embedding"] = true;
  json["static_position_embeddings"] = true;
  json["normalize_embedding"] = false;
  json["normalize_before"] = decoder.pre_norm();
  json["add_final_layer_norm"] = decoder.pre_norm();
  json["share_encoder_decoder_embeddings"] = spec.embedding.shared;
  json["tie_word_embeddings"] = spec.output.tied;
  json["use_cache"] = true;
  json["bos_token_id"] = tokenizer.special_tokens().start();
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

// Reads {"subword": id, ...} without a JSON value, which would be many times as large.
class VocabularyHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  VocabularyHandler(const std::string& label, std::vector<std::string>& subwords)
      : label_(label), subwords_(subwords) {}

  bool start_object(std::size_t) override { return std::exchange(inside_, true) ? refuse() : true; }
  bool end_object() override { return true; }
  bool key(string_t& text) override {
    subword_ = std::move(text);
    return true;
  }
  bool number_unsigned(number_unsigned_t id) override {
    if (!inside_ || id >= subwords_.size() || subword_.empty() ||
        subword_.size() > limits::kSubwordBytes)
      refuse_id();
    std::string& place = subwords_[id];
    require(place.empty(), ErrorCode::corrupt_file, kOrigin, label_, ": id ", id,
            " has two subwords");
    place = std::move(subword_);
    return true;
  }
  bool null() override { return refuse(); }
  bool boolean(bool) override { return refuse(); }
  bool number_integer(number_integer_t) override { return refuse(); }
  bool number_float(number_float_t, const string_t&) override { return refuse(); }
  bool string(string_t&) override { return refuse(); }
  bool binary(binary_t&) override { return refuse(); }
  bool start_array(std::size_t) override { return refuse(); }
  bool end_array() override { return refuse(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    fail(ErrorCode::corrupt_file, kOrigin, label_, " is not a JSON object, see byte ", position);
  }

 private:
  [[noreturn]] bool refuse() const {
    if (subword_.empty()) fail(ErrorCode::corrupt_file, kOrigin, label_, " is not a JSON object");
    refuse_id();
  }
  [[noreturn]] void refuse_id() const {
    fail(ErrorCode::corrupt_file, kOrigin, label_, ": the id of ", quote(subword_),
         " is not one of the ", subwords_.size(), " of the model");
  }
  const std::string& label_;
  std::vector<std::string>& subwords_;
  std::string subword_;
  bool inside_ = false;
};

Vocabulary read_vocabulary(const fs::path& file, const ConfigReader& config, int64_t size) {
  const std::string text = read_text_file(file, limits::kVocabularyBytes);
  const std::string label = file.string();
  // An entry has at least six bytes. The model may have some embeddings without a subword.
  constexpr uint64_t kLeastEntry = 6, kSpareRows = 65536;
  require(static_cast<uint64_t>(size) <= text.size() / kLeastEntry + kSpareRows,
          ErrorCode::corrupt_file, kOrigin, label, " is too short for the ", size,
          " tokens of the model");
  require(text.find('\0') == std::string::npos, ErrorCode::corrupt_file, kOrigin, label,
          " has a NUL byte");
  Vocabulary vocabulary;
  vocabulary.subwords.resize(static_cast<size_t>(size));
  VocabularyHandler handler(label, vocabulary.subwords);
  nlohmann::json::sax_parse(text, &handler);
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
  const auto used = std::find_if(vocabulary.subwords.rbegin(), vocabulary.subwords.rend(),
                                 [](const std::string& subword) { return !subword.empty(); });
  const int64_t needed = std::max<int64_t>(
      vocabulary.subwords.rend() - used,
      1 + std::max(vocabulary.start,
                   *std::max_element(vocabulary.ends.begin(), vocabulary.ends.end())));
  vocabulary.subwords.resize(static_cast<size_t>(std::min(size, needed)));
  return vocabulary;
}

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

// A SentencePiece model with the ids of the vocabulary. A subword of both sides gets the better of
// its two scores.
Tokenizer joined_tokenizer(const Vocabulary& vocabulary, const SpmModel& source,
                           const SpmModel& target, const std::string& label) {
  std::map<std::string_view, ScoredSubword> known;
  for (const SpmModel* model : {&source, &target})
    for (const ScoredSubword& subword : model->subwords) {
      const auto [place, added] = known.try_emplace(subword.text, subword);
      if (!added) place->second.score = std::max(place->second.score, subword.score);
    }
  // The decoder may start with a subword that texts have as well.
  const auto start = known.find(vocabulary.subwords[static_cast<size_t>(vocabulary.start)]);
  const bool starts_with_subword =
      start != known.end() && start->second.type == SubwordType::normal;
  std::vector<ScoredSubword> subwords;
  for (size_t id = 0; id < vocabulary.subwords.size(); ++id) {
    const std::string& text = vocabulary.subwords[id];
    const auto number = static_cast<int32_t>(id);
    const auto found = known.find(text);
    if (number == vocabulary.unk)
      subwords.push_back({"<unk>", 0, SubwordType::unknown});
    else if (number == vocabulary.start && !starts_with_subword)
      subwords.push_back({"<s>", 0, SubwordType::control});
    else if (number == vocabulary.eos)
      subwords.push_back({"</s>", 0, SubwordType::control});
    else if (text == "<s>" || text.empty())  // not the start token, or a row without a subword
      subwords.push_back({concat("<unused:", id, ">"), 0, SubwordType::unused});
    else if (found != known.end())
      subwords.push_back(found->second);
    else if (text.starts_with(">>") && text.ends_with("<<"))  // language of a multilingual model
      subwords.push_back({text, 0, SubwordType::user_defined});
    else
      subwords.push_back({text, 0, SubwordType::unused});
  }
  const SpecialIds special{vocabulary.start, -1, vocabulary.ends};
  return load_sentencepiece(serialize_spm(source, std::move(subwords), special, label), label);
}

// The tokenizer of spiece.model as PegasusTokenizer reads it: <pad> and </s> keep their ids, <unk>
// and all subwords behind it have ids higher by `offset`, and texts never have the tokens between.
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

ReadTokenizer read_marian_tokenizer(const fs::path& directory, const ConfigReader& config,
                                    int64_t size) {
  const auto spm = [&](const char* name) {
    const fs::path file = directory / name;
    return load_sentencepiece(read_text_file(file, limits::kTokenizerBytes), file.string());
  };
  const Tokenizer source = spm("source.spm"), target = spm("target.spm");
  const Vocabulary vocabulary = read_vocabulary(directory / "vocab.json", config, size);
  const bool one = source.serialized() == target.serialized();
  if (one && is_same(vocabulary, source)) {
    return {source, spare_rows_note(size, source.vocab_size())};
  }
  const SpmModel a = parse_spm(source.serialized()), b = parse_spm(target.serialized());
  require(one || (a.is_unigram && b.is_unigram), ErrorCode::unsupported, kOrigin,
          directory.string(),
          ": source.spm and target.spm differ and are not both unigram models; ",
          "models here have one tokenizer for both sides");
  ReadTokenizer read{joined_tokenizer(vocabulary, a, b, directory.string()), {}};
  read.note = spare_rows_note(size, read.tokenizer->vocab_size());
  if (!one)
    read.note =
        "source.spm and target.spm were joined into one tokenizer with the model's ids; it may cut "
        "some words otherwise than they did, which fine-tuning makes up for";
  return read;
}

// As MarianTokenizer's, or else of tokenizer.json, tokenizer.model or spiece.model. The decoder
// starts with a token that the configuration names, usually <pad>.
ReadTokenizer read_pegasus_tokenizer(const fs::path& directory, const ConfigReader& config,
                                     int64_t size) {
  std::error_code ignored;
  if (fs::exists(directory / "vocab.json", ignored))
    return read_marian_tokenizer(directory, config, size);
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
// which has the embeddings as its matrix, multiplied by it.
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
  scale(last + ".weight", spec.width(), root);
  scale(last + ".bias", spec.width(), root);
}

// transformers computes the table of positions or reads it, in the type of the weights. Refuses one
// that was trained.
void check_positions(const HostModel& host, const WeightFiles& weights) {
  constexpr float kRounding = 1.0f / 128;  // of bfloat16, twice
  const ModelSpec& spec = host.spec();
  for (const char* name :
       {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"}) {
    if (!weights.has(name)) continue;
    const auto [file, info] = weights.at(name);
    const std::vector<int64_t> wanted{spec.max_positions, spec.width()};
    require_weight_type(file->label(), *info);
    require(info->shape == wanted, ErrorCode::corrupt_file, kOrigin, file->label(), ": ", name,
            " is no table of ", spec.max_positions, " positions of the width ", spec.width());
    const std::vector<float> values = read_floats(*file, *info);
    const Tensor table =
        sinusoidal_positions(*host.context, spec.max_positions, spec.width(), DType::f32);
    const bool same = std::equal(values.begin(), values.end(), table.data<float>(),
                                 [](float a, float b) { return std::abs(a - b) <= kRounding; });
    require(same, ErrorCode::unsupported, kOrigin, file->label(), ": ", name,
            " has not the sinusoidal positions that models here have");
  }
}

void write_marian_config(const MarianForm& form, const ModelSpec& spec, const Tokenizer& tokenizer,
                         const fs::path& directory) {
  // In a vocabulary without <pad>, <s> takes its place, as in models of Marian; without both, </s>
  // does.
  const bool has_pad = tokenizer.pad_id() >= 0;
  const int32_t pad = has_pad ? tokenizer.pad_id() : tokenizer.special_tokens().start();
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
  write_json(directory / "config.json", marian_config(form, spec, tokenizer, pad));
  write_json(directory / "generation_config.json", generation_json(spec, tokenizer, pad));
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

Imported read_marian_form(const MarianForm& form, const fs::path& directory) {
  const ConfigReader json(directory / "config.json");
  for (const char* field :
       {"share_encoder_decoder_embeddings", "tie_word_embeddings", "static_position_embeddings"})
    json.demand(field, true, true);
  json.demand("normalize_embedding", false, false);
  for (const auto& [other, field] : {std::pair{"hidden_size", "d_model"},
                                     {"num_attention_heads", "encoder_attention_heads"},
                                     {"num_hidden_layers", "encoder_layers"}})
    json.demand_same(other, field);
  // The class has one order of the norms, whatever the file says.
  for (const char* field : {"normalize_before", "add_final_layer_norm"})
    require(json.flag(field, form.pre_norm) == form.pre_norm, ErrorCode::unsupported, kOrigin,
            json.label(), ": ", field, " is ", form.pre_norm ? "false" : "true", ", which ",
            form.architecture, " does not do; ",
            form.pre_norm ? "post-norm models have the model_type marian"
                          : "pre-norm models have the model_type pegasus");
  ModelConfig config;
  const auto both = [&](const char* encoder, const char* decoder) {
    const int64_t value = json.integer(encoder, 1, limits::kModelDimension);
    require(json.integer(decoder, 1, limits::kModelDimension) == value, ErrorCode::unsupported,
            kOrigin, json.label(), ": ", encoder, " and ", decoder,
            " differ, models here have one for both");
    return value;
  };
  const int64_t stored = json.integer("vocab_size", 4, limits::kVocabulary);
  if (json.has("decoder_vocab_size")) both("vocab_size", "decoder_vocab_size");
  config.width = json.integer("d_model", 2, limits::kModelDimension);
  config.heads = both("encoder_attention_heads", "decoder_attention_heads");
  config.ffn_width = json.integer("decoder_ffn_dim", 1, limits::kModelDimension);
  const int64_t encoder_ffn = json.integer("encoder_ffn_dim", 1, limits::kModelDimension);
  if (encoder_ffn != config.ffn_width) config.encoder_ffn_width = encoder_ffn;
  config.encoder_layers = json.integer("encoder_layers", 1, limits::kLayers);
  config.decoder_layers = json.integer("decoder_layers", 1, limits::kLayers);
  config.max_positions = json.integer("max_position_embeddings", 2, limits::kModelDimension);
  config.activation = activation_from_name(json, "activation_function");
  config.dropout = json.number("dropout", 0.1);
  config.attention_dropout = json.number("attention_dropout", 0);
  config.ffn_dropout = json.number("activation_dropout", 0);
  config.pre_norm = form.pre_norm;
  config.norm_epsilon = kEpsilon;
  ReadTokenizer read = form.pre_norm ? read_pegasus_tokenizer(directory, json, stored)
                                     : read_marian_tokenizer(directory, json, stored);
  config.vocabulary = read.tokenizer ? read.tokenizer->vocab_size() : stored;
  validate_read(config, json);

  const WeightFiles weights = WeightFiles::open(directory);
  const auto name = [&](const MappedTensor& tensor) {
    const bool missing_bias = tensor.name == "final_logits_bias" && !weights.has(tensor.name);
    return missing_bias ? std::string() : tensor.name;
  };
  const auto surplus = [](const TensorInfo& info) {
    static constexpr const char* kCopies[] = {
        "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight",
        "model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"};
    return std::find(std::begin(kCopies), std::end(kCopies), info.name) != std::end(kCopies);
  };
  std::vector<MappedTensor> tensors = marian_tensors(config);
  set_stored_vocabulary(tensors, config, stored);
  Imported imported{read_tensors({weights, name, surplus}, config, tensors),
                    std::move(read.tokenizer), std::move(read.note)};
  for (const char* copy :
       {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"})
    check_copy(weights, "model.shared.weight", copy);
  check_positions(imported.host, weights);
  if (!json.flag("scale_embedding", false)) undo_embedding_scale(imported.host);
  return imported;
}

}  // namespace

const Expressible& hf_marian_expressible() {
  static const Expressible expressible = marian_expressible("MarianMT", "after");
  return expressible;
}

const Expressible& hf_pegasus_expressible() {
  static const Expressible expressible = marian_expressible("Pegasus", "before");
  return expressible;
}

void write_marian_files(const ModelSpec& spec, const Tokenizer& tokenizer,
                        const fs::path& directory) {
  write_marian_config(kMarianMt, spec, tokenizer, directory);
}

void write_marian(const HostModel& host, const Tokenizer& tokenizer, const fs::path& directory) {
  write_marian_form(kMarianMt, host, tokenizer, directory);
}

void write_pegasus(const HostModel& host, const Tokenizer& tokenizer, const fs::path& directory) {
  write_marian_form(kPegasus, host, tokenizer, directory);
}

Imported read_marian(const fs::path& directory) {
  return read_marian_form(kMarianMt, directory);
}

Imported read_pegasus(const fs::path& directory) {
  return read_marian_form(kPegasus, directory);
}

}  // namespace trafo::interop
