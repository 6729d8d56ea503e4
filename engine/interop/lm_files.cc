#include "engine/interop/lm_files.h"

#include <algorithm>

#include "engine/interop/spm_subwords.h"
#include "engine/io/atomic_file.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

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

// The tokenizer in the format of the `tokenizers` library, for unigram models without byte tokens:
// the character map of the normaliser, spaces as U+2581, the subwords with their scores.
Json fast_tokenizer(const SpmModel& spm, const Tokenizer& tokenizer) {
  Json::List special, vocabulary;
  for (size_t id = 0; id < spm.subwords.size(); ++id) {
    const ScoredSubword& subword = spm.subwords[id];
    vocabulary.push_back(Json::List{subword.text, subword.score});
    if (subword.type == SubwordType::control || subword.type == SubwordType::unknown)
      special.push_back(Json::Object{{"id", id},
                                     {"content", subword.text},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", false},
                                     {"special", true}});
  }
  Json::List normalizers;
  if (!spm.character_map.empty())
    normalizers.push_back(
        Json::Object{{"type", "Precompiled"}, {"precompiled_charsmap", base64(spm.character_map)}});
  if (spm.remove_extra_whitespaces) {
    normalizers.push_back(
        Json::Object{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
    normalizers.push_back(Json::Object{
        {"type", "Replace"}, {"pattern", Json::Object{{"Regex", " {2,}"}}}, {"content", " "}});
  }
  const Json metaspace = Json::Object{{"type", "Metaspace"},
                                      {"replacement", "\u2581"},
                                      {"prepend_scheme", spm.add_dummy_prefix ? "always" : "never"},
                                      {"split", false}};
  Json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = special;
  json["normalizer"] = Json::Object{{"type", "Sequence"}, {"normalizers", normalizers}};
  json["pre_tokenizer"] = metaspace;
  json["post_processor"] = nullptr;
  json["decoder"] = metaspace;
  json["model"] = Json::Object{{"type", "Unigram"},
                               {"unk_id", tokenizer.unk_id()},
                               {"vocab", vocabulary},
                               {"byte_fallback", false}};
  return json;
}

bool has_fast_form(const SpmModel& spm) {
  return spm.is_unigram && spm.escape_whitespaces &&
         std::none_of(spm.subwords.begin(), spm.subwords.end(), [](const ScoredSubword& subword) {
           return subword.type == SubwordType::byte || subword.type == SubwordType::user_defined ||
                  subword.type == SubwordType::unused;
         });
}

}  // namespace

void put_special_ids(const Tokenizer& tokenizer, Json& json) {
  json["bos_token_id"] = tokenizer.bos_id() < 0 ? tokenizer.eos_id() : tokenizer.bos_id();
  json["eos_token_id"] = tokenizer.eos_id();
  json["pad_token_id"] = tokenizer.pad_id() < 0 ? tokenizer.eos_id() : tokenizer.pad_id();
}

void write_generation(const Tokenizer& tokenizer, const fs::path& directory) {
  Json generation;
  put_special_ids(tokenizer, generation);
  Json::List never{tokenizer.unk_id()};
  for (const int32_t id : {tokenizer.bos_id(), tokenizer.pad_id()})
    if (id >= 0 && id != tokenizer.eos_id()) never.push_back(id);
  generation["suppress_tokens"] = never;
  write_json(directory / "generation_config.json", generation);
}

void write_lm_tokenizer(const Tokenizer& tokenizer, const ModelConfig& config,
                        const fs::path& directory) {
  write_file_atomically(directory / "tokenizer.model", tokenizer.serialized());
  const SpmModel spm = parse_spm(tokenizer.serialized());
  if (!has_fast_form(spm)) return;
  Json json;
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  json["model_max_length"] = config.max_positions;
  json["clean_up_tokenization_spaces"] = false;
  const auto name = [&](const char* key, int32_t id) {
    if (id >= 0) json[key] = tokenizer.token(id);
  };
  name("unk_token", tokenizer.unk_id());
  name("bos_token", tokenizer.bos_id());
  name("eos_token", tokenizer.eos_id());
  name("pad_token", tokenizer.pad_id());
  write_json(directory / "tokenizer_config.json", json);
  write_json(directory / "tokenizer.json", fast_tokenizer(spm, tokenizer));
}

void read_lm_tokenizer(const fs::path& directory, const ModelConfig& config, Imported& imported) {
  const fs::path spm = directory / "tokenizer.model";
  std::error_code ignored;
  if (!fs::exists(spm, ignored)) {
    imported.note =
        "there is no tokenizer.model: the ids are those of the model's own tokenizer, which is no "
        "SentencePiece model";
    return;
  }
  imported.tokenizer =
      Tokenizer::from_bytes(read_text_file(spm, limits::kTokenizerBytes), spm.string());
  check_vocabulary(config, *imported.tokenizer);
}

}  // namespace trafo::interop
