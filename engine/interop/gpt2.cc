// The GPT2LMHeadModel directory of transformers: pre-norm, learned positions, biases everywhere but
// in the output layer. Ours has a bias there, which is moved into the output matrix
// (fold_output_bias); the file then holds that matrix beside the embeddings.
#include <algorithm>

#include "engine/interop/directory.h"
#include "engine/interop/formats.h"
#include "engine/interop/spm_pieces.h"
#include "engine/io/atomic_file.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "GPT-2";
constexpr uint64_t kSpmLimit = 256u << 20;

void check_expressible(const ModelConfig& config) {
  if (config.architecture != Architecture::decoder_lm)
    cannot_express(kFormat, "an encoder-decoder (--arch); use hf-marian or ctranslate2");
  if (!config.pre_norm) cannot_express(kFormat, "post-norm layers (--transformer-norm post)");
}

Json config_json(const ModelConfig& config, const Tokenizer& tokenizer) {
  Json json;
  json["architectures"] = {"GPT2LMHeadModel"};
  json["model_type"] = "gpt2";
  json["vocab_size"] = config.vocabulary;
  json["n_positions"] = config.max_positions;
  json["n_embd"] = config.width;
  json["n_layer"] = config.decoder_layers;
  json["n_head"] = config.heads;
  json["n_inner"] = config.ffn_width;
  json["activation_function"] = activation_to_name(config.activation);
  json["layer_norm_epsilon"] = config.norm_epsilon;
  json["embd_pdrop"] = config.dropout;
  json["resid_pdrop"] = config.dropout;
  json["attn_pdrop"] = config.attention_dropout;
  json["scale_attn_weights"] = true;
  json["scale_attn_by_inverse_layer_idx"] = false;
  json["reorder_and_upcast_attn"] = false;
  json["add_cross_attention"] = false;
  json["tie_word_embeddings"] = config.tied_embeddings;
  json["use_cache"] = true;
  json["bos_token_id"] = tokenizer.bos_id() < 0 ? tokenizer.eos_id() : tokenizer.bos_id();
  json["eos_token_id"] = tokenizer.eos_id();
  json["pad_token_id"] = tokenizer.pad_id() < 0 ? tokenizer.eos_id() : tokenizer.pad_id();
  json["torch_dtype"] = "float32";
  return json;
}

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
  }
  return text;
}

// The tokenizer in the format of the `tokenizers` library, for unigram models without byte pieces:
// the normaliser's own character map, spaces as U+2581, the pieces with their scores.
Json fast_tokenizer(const SpmModel& spm, const Tokenizer& tokenizer) {
  Json special = Json::array();
  Json vocabulary = Json::array();
  for (size_t id = 0; id < spm.pieces.size(); ++id) {
    const SpmPiece& piece = spm.pieces[id];
    vocabulary.push_back({piece.text, piece.score});
    if (piece.type == SpmPiece::control || piece.type == SpmPiece::unknown)
      special.push_back({{"id", id},
                         {"content", piece.text},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}});
  }
  Json normalizers = Json::array();
  if (!spm.character_map.empty())
    normalizers.push_back(
        {{"type", "Precompiled"}, {"precompiled_charsmap", base64(spm.character_map)}});
  if (spm.remove_extra_whitespaces) {
    normalizers.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
    normalizers.push_back(
        {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
  }
  const Json metaspace = {{"type", "Metaspace"},
                          {"replacement", "\u2581"},
                          {"prepend_scheme", spm.add_dummy_prefix ? "always" : "never"},
                          {"split", false}};
  Json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = special;
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
  json["pre_tokenizer"] = metaspace;
  json["post_processor"] = nullptr;
  json["decoder"] = metaspace;
  json["model"] = {{"type", "Unigram"},
                   {"unk_id", tokenizer.unk_id()},
                   {"vocab", vocabulary},
                   {"byte_fallback", false}};
  return json;
}

bool has_fast_form(const SpmModel& spm) {
  return spm.is_unigram && spm.escape_whitespaces &&
         std::none_of(spm.pieces.begin(), spm.pieces.end(), [](const SpmPiece& piece) {
           return piece.type == SpmPiece::byte || piece.type == SpmPiece::user_defined ||
                  piece.type == SpmPiece::unused;
         });
}

void write_tokenizer(const Tokenizer& tokenizer, const ModelConfig& config,
                     const fs::path& directory) {
  write_file_atomically(directory / "tokenizer.model", tokenizer.serialized());
  const SpmModel spm = parse_spm(tokenizer.serialized());
  if (!has_fast_form(spm)) return;
  Json json;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  json["model_max_length"] = config.max_positions;
  json["clean_up_tokenization_spaces"] = false;
  const auto name = [&](const char* key, int32_t id) {
    if (id >= 0) json[key] = tokenizer.piece(id);
  };
  name("unk_token", tokenizer.unk_id());
  name("bos_token", tokenizer.bos_id());
  name("eos_token", tokenizer.eos_id());
  name("pad_token", tokenizer.pad_id());
  write_json(directory / "tokenizer_config.json", json);
  write_json(directory / "tokenizer.json", fast_tokenizer(spm, tokenizer));
}

// GPT-2 files of the hub name tensors without "transformer."; fine-tuned ones with it.
std::string stored_name(const SafetensorsReader& reader, const std::string& name) {
  constexpr std::string_view kPrefix = "transformer.";
  if (reader.find("transformer.wte.weight") != nullptr || !name.starts_with(kPrefix)) return name;
  return name.substr(kPrefix.size());
}

// Causal masks that old versions saved with every layer.
bool is_mask(const TensorInfo& info) {
  return info.name.ends_with(".attn.bias") || info.name.ends_with(".attn.masked_bias");
}

}  // namespace

void write_gpt2(const HostModel& given, const Tokenizer& tokenizer, const fs::path& directory) {
  check_expressible(given.config());
  const bool fold = has_output_bias(given);
  const HostModel folded = fold ? fold_output_bias(given) : HostModel{};
  const HostModel& host = fold ? folded : given;
  const ModelConfig& config = host.config();
  Json generation;
  generation["bos_token_id"] = tokenizer.bos_id() < 0 ? tokenizer.eos_id() : tokenizer.bos_id();
  generation["eos_token_id"] = tokenizer.eos_id();
  generation["pad_token_id"] = tokenizer.pad_id() < 0 ? tokenizer.eos_id() : tokenizer.pad_id();
  Json never = {tokenizer.unk_id()};
  for (const int32_t id : {tokenizer.bos_id(), tokenizer.pad_id()})
    if (id >= 0 && id != tokenizer.eos_id()) never.push_back(id);
  generation["suppress_tokens"] = never;
  write_json(directory / "config.json", config_json(config, tokenizer));
  write_json(directory / "generation_config.json", generation);
  write_tokenizer(tokenizer, config, directory);
  write_tensors(directory / "model.safetensors", host, gpt2_tensors(config));
}

Imported read_gpt2(const fs::path& directory) {
  const ConfigReader json(directory / "config.json");
  json.demand("scale_attn_weights", true, true);
  json.demand("scale_attn_by_inverse_layer_idx", false, false);
  json.demand("add_cross_attention", false, false);
  constexpr int64_t kLargest = 1 << 24;
  ModelConfig config;
  config.architecture = Architecture::decoder_lm;
  config.vocabulary = json.integer("vocab_size", 4, 1 << 22);
  config.max_positions = json.integer("n_positions", 2, kLargest);
  config.width = json.integer("n_embd", 2, kLargest);
  config.decoder_layers = json.integer("n_layer", 1, 1024);
  config.heads = json.integer("n_head", 1, kLargest);
  config.ffn_width = json.has("n_inner") ? json.integer("n_inner", 1, kLargest) : 4 * config.width;
  config.activation = activation_from_name(json, "activation_function");
  config.norm_epsilon = json.number("layer_norm_epsilon", 1e-5);
  config.dropout = json.number("resid_pdrop", 0.1);
  config.attention_dropout = json.number("attn_pdrop", 0.1);
  config.tied_embeddings = json.flag("tie_word_embeddings", true);
  config.pre_norm = true;
  try {
    validate(config);
  } catch (const Error& error) {
    fail(ErrorCode::corrupt_file, kOrigin, json.label(), ": ", error.message());
  }

  const SafetensorsReader reader = open_weights(directory);
  const auto name = [&](const MappedTensor& tensor) { return stored_name(reader, tensor.name); };
  const auto surplus = [&](const TensorInfo& info) {
    return is_mask(info) || (config.tied_embeddings && info.name == "lm_head.weight");
  };
  Imported imported{read_tensors({reader, name, surplus}, config, gpt2_tensors(config)), {}, {}};
  if (config.tied_embeddings)
    check_copy(reader, stored_name(reader, "transformer.wte.weight"), "lm_head.weight");
  const fs::path spm = directory / "tokenizer.model";
  std::error_code ignored;
  if (fs::exists(spm, ignored)) {
    imported.tokenizer = Tokenizer::from_bytes(read_text_file(spm, kSpmLimit), spm.string());
    check_vocabulary(config, *imported.tokenizer);
  } else {
    imported.note =
        "there is no tokenizer.model: the ids are those of the model's own tokenizer, which is no "
        "SentencePiece model";
  }
  return imported;
}

}  // namespace trafo::interop
