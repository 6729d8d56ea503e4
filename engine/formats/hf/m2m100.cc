// The tokenizers of M2M100 and NLLB-200. Their language codes are special tokens, which a caller
// chooses (Tokenizer::with_languages()).
//
// NllbTokenizer has tokenizer.json. M2M100Tokenizer has a SentencePiece model, vocab.json with
// other ids for its subwords, and a list of languages in the class, whose tokens follow after
// vocab.json. Both become one SentencePiece model whose ids are those of the embeddings.
#include <algorithm>
#include <map>
#include <span>

#include "engine/core/limits.h"
#include "engine/core/quote.h"
#include "engine/formats/formats.h"
#include "engine/formats/hf/lm_files.h"
#include "engine/formats/tokenizers/fast_tokenizer.h"
#include "engine/io/atomic_file.h"
#include "engine/text/tokenizer/marian/marian_file.h"
#include "engine/text/tokenizer/sentencepiece/sentencepiece_model.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr const char *kIdsFile = "vocab.json", *kSpmFile = "sentencepiece.bpe.model",
                     *kOptionsFile = "tokenizer_config.json";
constexpr int32_t kM2mPad = 1;  // the class counts positions from the token after it

// The languages of M2M100Tokenizer by its language_codes, in the order of their ids.
struct LanguageList {
  std::string_view name, codes;
};
constexpr LanguageList kLanguageLists[] = {
    {"m2m100",
     "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu "
     "ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr "
     "ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk "
     "ur uz vi wo xh yi yo zh zu"},
    {"wmt21", "en ha is ja cs ru zh de"}};

std::vector<std::string> language_tokens(std::string_view codes) {
  std::vector<std::string> tokens;
  while (!codes.empty()) {
    const size_t end = std::min(codes.find(' '), codes.size());
    tokens.push_back(concat("__", codes.substr(0, end), "__"));
    codes.remove_prefix(std::min(end + 1, codes.size()));
  }
  return tokens;
}

// The languages that tokenizer_config.json asks for.
std::vector<std::string> read_languages(const fs::path& directory) {
  const fs::path file = directory / kOptionsFile;
  std::string name = "m2m100";
  std::error_code ignored;
  if (fs::exists(file, ignored)) {
    const ConfigReader options(file);
    if (options.has("language_codes")) name = options.text("language_codes");
    if (options.has("sp_model_kwargs"))
      options.inside("sp_model_kwargs").allow({});  // subwords are not sampled by a vocabulary
  }
  for (const LanguageList& list : kLanguageLists)
    if (list.name == name) return language_tokens(list.codes);
  fail(ErrorCode::unsupported, kOrigin, file.string(), ": language_codes is ", quote(name),
       "; there are m2m100 and wmt21");
}

// One SentencePiece model with the ids of M2M100Tokenizer.
Tokenizer read_two_files(const fs::path& directory, const SpecialIds& special, int64_t size) {
  const fs::path file = directory / kSpmFile, ids_file = directory / kIdsFile;
  const std::string label = file.string();
  const Tokenizer stored = load_sentencepiece(read_text_file(file, limits::kTokenizerBytes), label);
  const SpmModel model = parse_spm(stored.serialized());
  std::vector<std::string> names =
      read_marian_ids(read_text_file(ids_file, limits::kVocabularyBytes), size, ids_file.string());
  while (!names.empty() && names.back().empty()) names.pop_back();
  const size_t before = names.size();
  for (std::string& token : read_languages(directory)) names.push_back(std::move(token));
  require(std::ssize(names) <= size, ErrorCode::corrupt_file, kOrigin, ids_file.string(), " and ",
          "the languages have ", names.size(), " tokens, vocab_size is ", size);
  std::map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < names.size(); ++id)
    if (!names[id].empty()) ids.emplace(names[id], static_cast<int32_t>(id));
  // Texts have no token that the SentencePiece model lacks.
  std::vector<ScoredSubword> subwords;
  for (size_t id = 0; id < names.size(); ++id)
    subwords.push_back({names[id].empty() ? concat("<unused:", id, ">") : names[id], 0,
                        id >= before ? SubwordType::control : SubwordType::unused});
  for (const ScoredSubword& subword : model.subwords) {
    const auto found = ids.find(subword.text);
    const bool is_text =
        subword.type != SubwordType::control && subword.type != SubwordType::unused;
    require(found != ids.end() || !is_text, ErrorCode::unsupported, kOrigin, ids_file.string(),
            ": it has no ", quote(subword.text), ", which ", kSpmFile, " has");
    if (found != ids.end()) subwords[static_cast<size_t>(found->second)] = subword;
  }
  return load_sentencepiece(serialize_spm(model, std::move(subwords), special, label), label);
}

// The number of ids before the languages of the list, or -1 if the vocabulary has not all of them,
// one after the other and the last of all tokens.
int32_t tokens_before(const Tokenizer& tokenizer, const std::vector<std::string>& languages) {
  const int32_t first = tokenizer.vocab_size() - static_cast<int32_t>(languages.size());
  for (size_t i = 0; i < languages.size(); ++i)
    if (first <= 0 || tokenizer.token(first + static_cast<int32_t>(i)) != languages[i]) return -1;
  return first;
}

}  // namespace

ReadTokenizer read_m2m100_tokenizer(const fs::path& directory, const ConfigReader& config,
                                    int64_t stored) {
  const auto id_in = [&](const char* key, int32_t otherwise) {
    return config.has(key) ? static_cast<int32_t>(config.integer(key, 0, stored - 1)) : otherwise;
  };
  SpecialIds ids = read_special_ids(directory, config);
  ids.bos = id_in("decoder_start_token_id", 2);
  ids.pad = id_in("pad_token_id", kM2mPad);
  require(ids.pad == kM2mPad, ErrorCode::unsupported, kOrigin, config.label(), ": pad_token_id is ",
          ids.pad, "; positions here begin after 1");
  require(ids.bos != kM2mPad, ErrorCode::unsupported, kOrigin, config.label(),
          ": decoder_start_token_id is pad_token_id, which has no position");
  if (ids.eos.empty()) ids.eos = {2};
  const fs::path options = directory / kOptionsFile;
  std::error_code ignored;
  if (fs::exists(options, ignored)) ConfigReader(options).demand("legacy_behaviour", false, false);
  if (!fs::exists(directory / kIdsFile, ignored))
    return read_tokenizer_of(directory, config, stored, ids);
  ReadTokenizer read;
  read.tokenizer = read_two_files(directory, ids, stored);
  read.note = spare_rows_note(stored, read.tokenizer->vocab_size());
  return read;
}

void write_m2m100_tokenizer(const Tokenizer& tokenizer, int64_t max_positions,
                            const fs::path& directory) {
  if (tokenizer.pad_id() != kM2mPad)
    cannot_express("M2M100", "a vocabulary whose <pad> is not token 1");
  Json options;
  options["model_max_length"] = max_positions;
  options["clean_up_tokenization_spaces"] = false;
  for (const auto& [key, id] : {std::pair{"unk_token", tokenizer.unk_id()},
                                {"eos_token", tokenizer.eos_id()},
                                {"sep_token", tokenizer.eos_id()},
                                {"pad_token", tokenizer.pad_id()}})
    options[key] = tokenizer.token(id);
  for (const LanguageList& list : kLanguageLists) {
    const int32_t first = tokens_before(tokenizer, language_tokens(list.codes));
    if (first < 0) continue;
    options["tokenizer_class"] = "M2M100Tokenizer";
    options["language_codes"] = std::string(list.name);
    std::map<std::string, int32_t> sorted;
    for (int32_t id = 0; id < first; ++id) sorted.emplace(tokenizer.token(id), id);
    Json::Object ids;
    for (const auto& [name, id] : sorted) ids.push_back({name, id});
    write_json(directory / kOptionsFile, options);
    write_file_atomically(directory / kIdsFile, Json(ids).dump(0) + "\n");
    write_file_atomically(directory / kSpmFile, tokenizer.serialized());
    return;
  }
  const std::optional<Json> fast = fast_tokenizer(tokenizer, {.begin = false, .end = true});
  if (!fast) cannot_express("M2M100", "a vocabulary with user-defined or unused subwords");
  Json::List languages;
  for (const std::string& code : tokenizer.languages()) languages.push_back(code);
  options["tokenizer_class"] = "NllbTokenizer";
  options["extra_special_tokens"] = std::move(languages);
  write_json(directory / kOptionsFile, options);
  write_json(directory / "tokenizer.json", *fast);
}

}  // namespace trafo::interop
