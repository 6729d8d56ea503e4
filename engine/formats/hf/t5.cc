// The directories of T5ForConditionalGeneration (T5, T5 1.1, Flan-T5, ByT5, MADLAD-400) and
// MT5ForConditionalGeneration: pre-norm RMS norms, no biases, relative position biases, scores that
// are not scaled, and embeddings that are not scaled.
//
// T5's output matrix is the embedding, and its last hidden states are multiplied by d_model^-0.5.
// The other models have an output matrix `lm_head`, whose hidden states are not multiplied. The
// configuration says this by tie_word_embeddings. transformers 5 forces that to be true, writes
// scale_decoder_outputs beside it, and never multiplies in MT5ForConditionalGeneration.
//
// The decoder starts with <pad>, which becomes the token that starts a translation here.
#include <algorithm>
#include <cmath>

#include "engine/core/limits.h"
#include "engine/core/strings/quote.h"
#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/hf/lm_files.h"
#include "engine/formats/tokenizers/fast_tokenizer.h"
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/io/atomic_file.h"
#include "engine/text/tokenizer/byte/byte_tokenizer.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr const char *kMt5 = "mt5", *kSpmFile = "spiece.model", *kByteClass = "ByT5Tokenizer";
constexpr const char *kBuckets = "relative_attention_num_buckets",
                     *kDistance = "relative_attention_max_distance",
                     *kProjection = "feed_forward_proj", *kGated = "is_gated_act",
                     *kActivation = "dense_act_fn", *kTied = "tie_word_embeddings",
                     *kScaled = "scale_decoder_outputs", *kDecoderStart = "decoder_start_token_id";
constexpr std::string_view kGatedPrefix = "gated-";
constexpr const char *kHead = "lm_head.weight", *kShared = "shared.weight";
// Other names of the embedding.
constexpr const char* kCopies[] = {"decoder.embed_tokens.weight", "encoder.embed_tokens.weight"};
constexpr int64_t kUsualPositions = 4096;  // the class has no limit

// ---- config.json ----

std::string projection_name(const FeedForwardSpec& spec) {
  if (!spec.gated) return activation_to_name(spec.activation);
  return std::string(kGatedPrefix).append(spec.activation == Activation::gelu ? "gelu" : "silu");
}

Json t5_config(const ModelSpec& spec, const Tokenizer& tokenizer) {
  const StackSpec &encoder = *spec.encoder, &decoder = spec.decoder;
  const FeedForwardSpec& feed_forward = decoder.feed_forward;
  if (encoder.feed_forward.width != feed_forward.width)
    cannot_express("T5", "an encoder with another feed-forward width than the decoder");
  const bool is_scaled = spec.output.divisor != 1;
  const int32_t start = tokenizer.special_tokens().start();
  Json json;
  json["architectures"] = Json::List{"T5ForConditionalGeneration"};
  json["model_type"] = "t5";
  json["is_encoder_decoder"] = true;
  json["vocab_size"] = spec.vocabulary;
  json["d_model"] = spec.width();
  json["d_kv"] = decoder.attention.head_dim;
  json["d_ff"] = feed_forward.width;
  json["num_heads"] = decoder.attention.heads;
  json["num_layers"] = encoder.layers();
  json["num_decoder_layers"] = decoder.layers();
  json[kBuckets] = decoder.attention.relative->buckets;
  json[kDistance] = decoder.attention.relative->most_distance;
  json[kProjection] = projection_name(feed_forward);
  json[kActivation] = activation_to_name(feed_forward.activation);
  json[kGated] = feed_forward.gated;
  json["dropout_rate"] = decoder.dropout;
  json["layer_norm_epsilon"] = decoder.norm.epsilon;
  json["n_positions"] = spec.max_positions;
  json[kTied] = is_scaled;
  json[kScaled] = is_scaled;
  json["use_cache"] = true;
  json["eos_token_id"] = tokenizer.eos_id();
  json["pad_token_id"] = tokenizer.pad_id() >= 0 ? tokenizer.pad_id() : start;
  json[kDecoderStart] = start;
  json["torch_dtype"] = "float32";
  return json;
}

void read_feed_forward(const ConfigReader& json, bool is_mt5, ModelConfig& config) {
  const std::string projection = json.has(kProjection) ? json.text(kProjection)
                                 : is_mt5              ? "gated-gelu"
                                                       : "relu";
  const bool has_prefix = projection.starts_with(kGatedPrefix);
  std::string name = has_prefix ? projection.substr(kGatedPrefix.size()) : projection;
  require(name.find('-') == std::string::npos, ErrorCode::corrupt_file, kOrigin, json.label(), ": ",
          kProjection, " is ", quote(projection.substr(0, 64)),
          ", it is ACTIVATION or gated-ACTIVATION");
  if (projection == "gated-gelu") name = "gelu_new";
  // transformers writes what it made of feed_forward_proj, and reads it again.
  if (json.has(kActivation)) name = json.text(kActivation);
  const bool gated = json.flag(kGated, has_prefix);
  const char* key = json.has(kActivation) ? kActivation : kProjection;
  config.activation = activation_named(json, key, name);
  if (!gated) return;
  const bool known = config.activation == Activation::gelu || config.activation == Activation::silu;
  require(known, ErrorCode::unsupported, kOrigin, json.label(), ": ", key, " is ",
          quote(name.substr(0, 64)),
          " of a gated unit (is_gated_act); there are gelu_new (gated-gelu) and silu");
  config.ffn = config.activation == Activation::gelu ? FeedForward::geglu : FeedForward::swiglu;
}

// Whether the last hidden states are multiplied by d_model^-0.5.
bool read_scaled(const ConfigReader& json, bool is_mt5) {
  if (is_mt5) return false;
  const bool is_tied = !json.has(kTied) || json.flag(kTied, true);
  return json.flag(kScaled, is_tied && !json.names(kScaled));  // null: transformers does not scale
}

// Without the vocabulary and the output matrix.
ModelConfig read_t5_config(const ConfigReader& json) {
  const bool is_mt5 = json.text("model_type") == kMt5;
  json.demand("is_decoder", false, false);
  json.demand("is_encoder_decoder", true, true);
  for (const auto& [other, field] : {std::pair{"hidden_size", "d_model"},
                                     {"num_attention_heads", "num_heads"},
                                     {"num_hidden_layers", "num_layers"},
                                     {"head_dim", "d_kv"}})
    json.demand_same(other, field);
  const auto integer = [&](const char* key, int64_t high, int64_t otherwise, int64_t low = 1) {
    return otherwise > 0 && !json.has(key) ? otherwise : json.integer(key, low, high);
  };
  ModelConfig config;
  config.norm = Norm::rms;
  config.biases = config.output_bias = false;
  config.embedding_scale = config.attention_scale = 1;
  config.width = integer("d_model", limits::kModelDimension, 0, 2);
  config.heads = integer("num_heads", limits::kModelDimension, 0);
  config.head_width = integer("d_kv", limits::kModelDimension, 0);
  if (config.head_width * config.heads == config.width) config.head_width = 0;
  config.ffn_width = integer("d_ff", limits::kModelDimension, 0);
  config.encoder_layers = integer("num_layers", limits::kLayers, 0);
  config.decoder_layers = integer("num_decoder_layers", limits::kLayers, config.encoder_layers);
  config.max_positions = integer("n_positions", limits::kModelDimension, kUsualPositions, 2);
  config.relative_buckets = integer(kBuckets, 65536, 32, 4);
  config.relative_distance = integer(kDistance, limits::kModelDimension, 128);
  require(config.relative_distance > config.relative_buckets / 2, ErrorCode::corrupt_file, kOrigin,
          json.label(), ": ", kDistance, " is ", config.relative_distance,
          ", it must be above half of ", kBuckets, " (", config.relative_buckets, ")");
  config.norm_epsilon = json.number("layer_norm_epsilon", 1e-6);
  config.dropout = config.attention_dropout = config.ffn_dropout = json.number("dropout_rate", 0.1);
  read_feed_forward(json, is_mt5, config);
  if (read_scaled(json, is_mt5))
    config.logits_divisor = std::sqrt(static_cast<double>(config.width));
  return config;
}

// ---- the tokenizer ----

// spiece.model with the sentinels that T5Tokenizer adds: <extra_id_0> is the last token.
Tokenizer read_spm(const fs::path& directory, const SpecialIds& ids, int64_t stored) {
  const fs::path file = directory / kSpmFile, options = directory / "tokenizer_config.json";
  const std::string label = file.string();
  const Tokenizer tokenizer =
      load_sentencepiece(read_text_file(file, limits::kTokenizerBytes), label);
  const SpmModel model = parse_spm(tokenizer.serialized());
  constexpr const char* kExtra = "extra_ids";
  int64_t extra = 100;
  std::error_code ignored;
  if (fs::exists(options, ignored))
    if (const ConfigReader json(options); json.has(kExtra))
      extra = json.integer(kExtra, 0, 1 << 16);
  std::vector<ScoredSubword> subwords = model.subwords;
  if (std::ssize(subwords) + extra <= stored)  // mT5 and MADLAD-400 have no rows for more
    for (int64_t number = extra - 1; number >= 0; --number)
      subwords.push_back({concat("<extra_id_", number, ">"), 0, SubwordType::control});
  return load_sentencepiece(serialize_spm(model, std::move(subwords), ids, label), label);
}

bool has_user_symbols(const Tokenizer& tokenizer) {
  const SpmModel model = parse_spm(tokenizer.serialized());
  return std::any_of(
      model.subwords.begin(), model.subwords.end(),
      [](const ScoredSubword& subword) { return subword.type == SubwordType::user_defined; });
}

// With the notes on a SentencePiece model that was read.
ReadTokenizer with_notes(Tokenizer tokenizer, std::string note) {
  if (has_user_symbols(tokenizer))
    note.append(note.empty() ? "" : "; ")
        .append(
            "the vocabulary has user-defined symbols, such as the languages of MADLAD-400: in "
            "front "
            "of one that begins a text or follows a space, SentencePiece gives a space as a token, "
            "which transformers does not");
  return {std::move(tokenizer), std::move(note)};
}

ReadTokenizer read_byte_tokenizer(const ConfigReader& json, const SpecialIds& ids, int64_t stored) {
  const Tokenizer bytes = byte_vocabulary(ids.bos == ByteTokenizer::kPad);
  const SpecialTokens& special = bytes.special_tokens();
  require(special.start() == ids.bos, ErrorCode::unsupported, kOrigin, json.label(), ": ",
          kDecoderStart, " is ", ids.bos, "; with ", kByteClass, " it is 0 or 1");
  require(ids.eos == std::vector<int32_t>{special.eos}, ErrorCode::unsupported, kOrigin,
          json.label(), ": eos_token_id is not 1, which ", kByteClass, " has");
  require(bytes.vocab_size() <= stored, ErrorCode::corrupt_file, kOrigin, json.label(),
          ": vocab_size is ", stored, ", ", kByteClass, " has ", bytes.vocab_size(), " tokens");
  return {bytes, spare_rows_note(stored, bytes.vocab_size())};
}

bool has_byte_class(const fs::path& directory) {
  constexpr const char* kClass = "tokenizer_class";
  const fs::path options = directory / "tokenizer_config.json";
  std::error_code ignored;
  if (!fs::exists(options, ignored)) return false;
  const ConfigReader json(options);
  return json.has(kClass) && json.text(kClass) == kByteClass;
}

ReadTokenizer read_t5_tokenizer(const fs::path& directory, const ConfigReader& json,
                                int64_t stored) {
  SpecialIds ids = read_special_ids(directory, json);
  ids.bos = read_decoder_start(json, stored, false);
  const ConfigReader generation = generation_options(directory, json);
  require(
      !generation.has(kDecoderStart) || generation.integer(kDecoderStart, 0, stored - 1) == ids.bos,
      ErrorCode::unsupported, kOrigin, generation.label(), ": ", kDecoderStart,
      " is another one than in ", json.label());
  generation.refuse("forced_bos_token_id", "translations here begin with any token");
  if (ids.eos.empty()) ids.eos = {1};
  if (ids.pad == ids.bos) ids.pad = -1;
  std::error_code ignored;
  if (has_byte_class(directory)) return read_byte_tokenizer(json, ids, stored);
  if (!fs::exists(directory / "tokenizer.json", ignored) &&
      fs::exists(directory / kSpmFile, ignored)) {
    Tokenizer tokenizer = read_spm(directory, ids, stored);
    std::string note = spare_rows_note(stored, tokenizer.vocab_size());
    return with_notes(std::move(tokenizer), std::move(note));
  }
  ReadTokenizer read = read_tokenizer_of(directory, json, stored, ids);
  if (!read.tokenizer) return read;
  if (read.tokenizer->as_sentencepiece() != nullptr)
    return with_notes(*std::move(read.tokenizer), std::move(read.note));
  return {{},
          concat("no tokenizer was imported, the ids are those of the model's own: it is ",
                 read.tokenizer->kind(), ", and texts of T5 have SentencePiece or bytes")};
}

void write_t5_tokenizer(const Tokenizer& tokenizer, int64_t max_positions,
                        const fs::path& directory) {
  const int32_t pad =
      tokenizer.pad_id() >= 0 ? tokenizer.pad_id() : tokenizer.special_tokens().start();
  Json options;
  options["model_max_length"] = max_positions;
  options["clean_up_tokenization_spaces"] = false;
  for (const auto& [key, id] : {std::pair{"unk_token", tokenizer.unk_id()},
                                {"eos_token", tokenizer.eos_id()},
                                {"pad_token", pad}})
    options[key] = tokenizer.token(id);
  if (tokenizer.kind() == ByteTokenizer::kKind) {
    options["tokenizer_class"] = kByteClass;
    options["extra_ids"] = 0;
  } else {
    write_file_atomically(directory / kSpmFile, tokenizer.serialized());
    if (const std::optional<Json> fast = fast_tokenizer(tokenizer, {.begin = false, .end = true})) {
      options["tokenizer_class"] = "PreTrainedTokenizerFast";
      options["split_special_tokens"] = true;  // "</s>" in a text is no token, as in SentencePiece
      write_json(directory / "tokenizer.json", *fast);
    } else {
      // T5Tokenizer, which takes them from spiece.model, has these ids whatever it says.
      if (!has_user_symbols(tokenizer) || pad != 0 || tokenizer.eos_id() != 1 ||
          tokenizer.unk_id() != 2)
        cannot_express("T5", "a vocabulary that AutoTokenizer cannot read exactly");
      options["tokenizer_class"] = "T5Tokenizer";
      options["extra_ids"] = 0;
    }
  }
  write_json(directory / "tokenizer_config.json", options);
}

// Whether the output matrix is another one than the embedding.
bool has_own_head(const WeightFiles& weights, const std::string& embedding) {
  return weights.has(kHead) && weights.has(embedding) &&
         weights.bytes(kHead) != weights.bytes(embedding);
}

}  // namespace

const Expressible& hf_t5_expressible() {
  static const Expressible expressible = [] {
    const Form common = {{"positions", "relative"},
                         {"norm", "rms"},
                         {"feed-forward", "plain gated geglu"},
                         {"norm placement", "before"},
                         {"head_width", "*"},
                         {"biases", "none"},
                         {"attention_scale", "1"},
                         {"embedding_scale", "1"},
                         {"activation", "*"},
                         {"norm_epsilon", "*"},
                         {"output_bias", "no"}};
    Form scaled = common, unscaled = common;
    scaled.insert(scaled.end(), {{"embeddings", "tied"}, {"logits_divisor", "sqrt(width)"}});
    unscaled.insert(unscaled.end(), {{"embeddings", "tied shared"}, {"logits_divisor", "1"}});
    return Expressible{"T5", {scaled, unscaled}};
  }();
  return expressible;
}

void write_t5(const HostModel& host, const Tokenizer& tokenizer, const fs::path& directory) {
  const ModelSpec& spec = host.spec();
  const Json config = t5_config(spec, tokenizer);
  write_json(directory / "config.json", config);
  Json generation;
  for (const char* key : {"eos_token_id", "pad_token_id", kDecoderStart})
    generation[key] = *config.find(key);
  generation["max_length"] = std::min<int64_t>(512, spec.max_positions);
  generation["suppress_tokens"] = never_generated(tokenizer.special_tokens());
  write_json(directory / "generation_config.json", generation);
  write_t5_tokenizer(tokenizer, spec.max_positions, directory);
  std::vector<MappedTensor> tensors = t5_tensors(host.config());
  // transformers 4 wants an output matrix wherever hidden states are not multiplied.
  if (spec.output.tied && spec.output.divisor == 1) {
    tensors.push_back(tensors.front());
    tensors.back().name = kHead;
  }
  write_tensors(directory / "model.safetensors", host, tensors);
}

Imported read_t5(const fs::path& directory, const ReadTarget& target) {
  const ConfigReader json(directory / "config.json");
  ModelConfig config = read_t5_config(json);
  const int64_t stored = json.integer("vocab_size", 4, limits::kVocabulary);
  ReadTokenizer read = read_t5_tokenizer(directory, json, stored);
  config.vocabulary = read.tokenizer ? read.tokenizer->vocab_size() : stored;

  const WeightFiles weights = WeightFiles::open(directory);
  const bool is_scaled = config.logits_divisor != 1;
  std::vector<std::string> embeddings;  // the stored ones
  for (const char* each : {kShared, kCopies[0], kCopies[1]})
    if (weights.has(each)) embeddings.emplace_back(each);
  if (embeddings.empty())
    embeddings.emplace_back(is_scaled && weights.has(kHead) ? kHead : kShared);
  config.separate_output = !is_scaled && has_own_head(weights, embeddings.front());
  validate_read(config, json);
  const auto name = [&](const MappedTensor& tensor) {
    return tensor.name == kShared ? embeddings.front() : tensor.name;
  };
  const auto surplus = [&](const TensorInfo& info) {
    // Old files have a table of the cross-attention, which the class does not read.
    return info.name == kHead ||
           info.name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight" ||
           std::find(embeddings.begin(), embeddings.end(), info.name) != embeddings.end();
  };
  std::vector<MappedTensor> tensors = t5_tensors(config);
  set_stored_vocabulary(tensors, config, stored);
  Imported imported{read_tensors({weights, name, surplus}, config, tensors, target),
                    std::move(read.tokenizer), std::move(read.note)};
  for (size_t copy = 1; copy < embeddings.size(); ++copy)
    check_copy(weights, embeddings.front(), embeddings[copy]);
  if (!config.separate_output) check_copy(weights, embeddings.front(), kHead);
  return imported;
}

}  // namespace trafo::interop
