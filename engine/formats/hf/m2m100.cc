// The tokenizers of M2M100, NLLB-200, mBART-50 and BART, whose texts begin with a token. Their
// language codes are special tokens, which a caller chooses (Tokenizer::with_languages()).
//
// NllbTokenizer has tokenizer.json, which becomes a SentencePiece model. M2M100Tokenizer has a
// SentencePiece model, vocab.json with other ids for its subwords and without some of them, and a
// list of languages in the class. These files stay as they came, in a vocabulary of the kind
// `marian`. MBart50Tokenizer has a SentencePiece model of unigrams in another order, and a list of
// languages in the class; it becomes a SentencePiece model with these tokens.
#include <algorithm>

#include "engine/core/limits.h"
#include "engine/core/strings/quote.h"
#include "engine/formats/formats.h"
#include "engine/formats/hf/lm_files.h"
#include "engine/formats/tokenizers/fast_tokenizer.h"
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/io/atomic_file.h"
#include "engine/text/tokenizer/byte_bpe/byte_bpe_tokenizer.h"
#include "engine/text/tokenizer/marian/marian_file.h"
#include "engine/text/tokenizer/marian/marian_tokenizer.h"
#include "engine/text/tokenizer/sentencepiece/sentencepiece_model.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr const char *kIdsFile = "vocab.json", *kOptionsFile = "tokenizer_config.json";
constexpr const char* kMbartClass = "MBart50Tokenizer";
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

// The languages that tokenizer_config.json asks for.
std::string_view read_languages(const fs::path& file) {
  std::string name = "m2m100";
  std::error_code ignored;
  if (fs::exists(file, ignored))
    if (const ConfigReader options(file); options.has("language_codes"))
      name = options.text("language_codes");
  for (const LanguageList& list : kLanguageLists)
    if (list.name == name) return list.codes;
  fail(ErrorCode::unsupported, kOrigin, file.string(), ": language_codes is ", quote(name),
       "; there are m2m100 and wmt21");
}

// The files of M2M100Tokenizer as they are.
Tokenizer read_two_files(const fs::path& directory, const SpecialIds& special, int64_t size) {
  const fs::path spm_file = directory / kM2m100Model, ids_file = directory / kIdsFile,
                 options_file = directory / kOptionsFile;
  const std::string ids = read_text_file(ids_file, limits::kVocabularyBytes),
                    spm = read_text_file(spm_file, limits::kTokenizerBytes);
  load_sentencepiece(spm, spm_file.string());  // so that an error names this file
  std::string options;
  std::error_code ignored;
  if (fs::exists(options_file, ignored))
    options = read_text_file(options_file, limits::kConfigBytes);
  std::vector<std::string> subwords = read_marian_ids(ids, size, ids_file.string());
  while (!subwords.empty() && subwords.back().empty()) subwords.pop_back();
  // The class gives the languages the ids from the number of subwords on.
  const auto gap = std::find(subwords.begin(), subwords.end(), std::string());
  require(gap == subwords.end(), ErrorCode::corrupt_file, kOrigin, ids_file.string(),
          " has no subword with the id ", gap - subwords.begin());
  require(std::ssize(subwords) > kM2mPad && subwords[kM2mPad] == "<pad>", ErrorCode::unsupported,
          kOrigin, ids_file.string(), ": the id ", kM2mPad, " is not that of <pad>");
  MarianParts parts;
  parts.languages = read_languages(options_file);
  const int64_t tokens = std::ssize(subwords) + std::ssize(language_tokens(parts.languages));
  require(tokens <= size, ErrorCode::corrupt_file, kOrigin, ids_file.string(), " and ",
          "the languages have ", tokens, " tokens, vocab_size is ", size);
  parts.tokens = static_cast<int32_t>(tokens);
  parts.start = special.bos;
  parts.ends = special.eos;
  parts.files = {ids, spm, spm, options};
  return load_marian(serialize_marian(parts), directory.string());
}

// The languages of MBart50Tokenizer, in the order of their ids. <mask> comes after them.
constexpr std::string_view kMbartCodes =
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT "
    "lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL "
    "hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN "
    "th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI";
using Subwords = std::vector<ScoredSubword>;

Subwords mbart_end() {
  Subwords end;
  for (std::string_view codes = kMbartCodes; !codes.empty();) {
    const size_t length = std::min(codes.find(' '), codes.size());
    end.push_back({std::string(codes.substr(0, length)), 0, SubwordType::control});
    codes.remove_prefix(std::min(length + 1, codes.size()));
  }
  end.push_back({"<mask>", 0, SubwordType::control});
  return end;
}

// The first tokens of a SentencePiece model that MBart50Tokenizer reads, and those that it has
// instead of these.
Subwords mbart_begin(bool is_stored) {
  const ScoredSubword unk{"<unk>", 0, SubwordType::unknown}, bos{"<s>", 0, SubwordType::control},
      eos{"</s>", 0, SubwordType::control}, pad{"<pad>", 0, SubwordType::control};
  return is_stored ? Subwords{unk, bos, eos} : Subwords{bos, pad, eos, unk};
}

// Whether a SentencePiece model has these special tokens and no others, and reads texts as the
// class does, whatever its file says: unigrams, single spaces, and one in front.
bool is_of_mbart(const SpmModel& model, const Subwords& begin, const Subwords& end) {
  const Subwords& all = model.subwords;
  if (!model.is_unigram || !model.add_dummy_prefix || !model.remove_extra_whitespaces ||
      all.size() < begin.size() + end.size())
    return false;
  const auto same = [](const ScoredSubword& a, const ScoredSubword& b) {
    return a.text == b.text && a.type == b.type;
  };
  const auto first = all.begin() + std::ssize(begin), last = all.end() - std::ssize(end);
  return std::equal(begin.begin(), begin.end(), all.begin(), same) &&
         std::equal(end.begin(), end.end(), last, same) &&
         std::all_of(first, last, [](const ScoredSubword& subword) {
           return subword.type == SubwordType::normal;
         });
}

// sentencepiece.bpe.model with the tokens that a class gives it, of which `end` come last.
Tokenizer read_mbart_model(const fs::path& file, const SpecialIds& ids, int64_t size,
                           const char* class_name, const Subwords& end) {
  const std::string label = file.string();
  const Tokenizer stored = load_sentencepiece(read_text_file(file, limits::kTokenizerBytes), label);
  const SpmModel model = parse_spm(stored.serialized());
  const Subwords begin = mbart_begin(true);
  require(
      is_of_mbart(model, begin, {}), ErrorCode::unsupported, kOrigin, label, ": ", class_name,
      " has unigrams with one space in front of each word, and the special tokens <unk>, <s> and "
      "</s> with the ids 0, 1 and 2");
  Subwords subwords = mbart_begin(false);
  subwords.insert(subwords.end(), model.subwords.begin() + std::ssize(begin), model.subwords.end());
  subwords.insert(subwords.end(), end.begin(), end.end());
  require(std::ssize(subwords) <= size, ErrorCode::corrupt_file, kOrigin, label, " and ",
          "the tokens of ", class_name, " are ", subwords.size(), " tokens, vocab_size is ", size);
  return load_sentencepiece(serialize_spm(model, std::move(subwords), ids, label), label);
}

// The class of the tokenizer. transformers reads the first of these files that names it.
std::string tokenizer_class(const fs::path& directory, const ConfigReader& config) {
  constexpr const char* kKey = "tokenizer_class";
  std::error_code ignored;
  if (const fs::path file = directory / kOptionsFile; fs::exists(file, ignored))
    if (const ConfigReader options(file); options.has(kKey)) return options.text(kKey);
  return config.has(kKey) ? config.text(kKey) : "MBartTokenizer";
}

// The special tokens of a directory; the decoder starts with bos.
SpecialIds special_ids(const fs::path& directory, const ConfigReader& config, int64_t stored) {
  const auto id_in = [&](const char* key, int32_t otherwise) {
    return config.has(key) ? static_cast<int32_t>(config.integer(key, 0, stored - 1)) : otherwise;
  };
  SpecialIds ids = read_special_ids(directory, config);
  ids.bos = read_decoder_start(config, stored, true);
  ids.pad = id_in("pad_token_id", kM2mPad);
  if (ids.eos.empty()) ids.eos = {2};
  ids.bos_starts_decoder = true;
  return ids;
}

// The token with which transformers begins translations, unless its caller says otherwise. Here a
// caller chooses the language.
void add_forced_note(const fs::path& directory, const ConfigReader& config, int64_t stored,
                     ReadTokenizer& read, const char* chosen = "target language") {
  constexpr const char* kKey = "forced_bos_token_id";
  const ConfigReader options = generation_options(directory, config);
  if (!options.has(kKey)) return;
  const std::optional<Tokenizer>& tokenizer = read.tokenizer;
  const int64_t tokens = tokenizer ? tokenizer->vocab_size() : stored;
  const auto id = static_cast<int32_t>(options.integer(kKey, 0, tokens - 1));
  read.note.append(read.note.empty() ? "" : "; ")
      .append(concat(options.label(), ": ", kKey, " is ", id,
                     tokenizer ? concat(", ", quote(tokenizer->token(id))) : std::string(),
                     ": translations begin with the ", chosen, " that you choose"));
}

}  // namespace

ReadTokenizer read_m2m100_tokenizer(const fs::path& directory, const ConfigReader& config,
                                    int64_t stored) {
  const SpecialIds ids = special_ids(directory, config, stored);
  require(ids.pad == kM2mPad, ErrorCode::unsupported, kOrigin, config.label(), ": pad_token_id is ",
          ids.pad, "; positions here begin after 1");
  require(ids.bos != kM2mPad, ErrorCode::unsupported, kOrigin, config.label(),
          ": decoder_start_token_id is pad_token_id, which has no position");
  const fs::path options = directory / kOptionsFile;
  std::error_code ignored;
  if (fs::exists(options, ignored)) ConfigReader(options).demand("legacy_behaviour", false, false);
  ReadTokenizer read;
  if (fs::exists(directory / kIdsFile, ignored)) {
    read.tokenizer = read_two_files(directory, ids, stored);
    read.note = spare_rows_note(stored, read.tokenizer->vocab_size());
  } else {
    read = read_tokenizer_of(directory, config, stored, ids);
  }
  add_forced_note(directory, config, stored, read);
  return read;
}

ReadTokenizer read_mbart_tokenizer(const fs::path& directory, const ConfigReader& config,
                                   int64_t stored) {
  const SpecialIds ids = special_ids(directory, config, stored);
  const std::string name = tokenizer_class(directory, config);
  const fs::path model = directory / kM2m100Model;
  std::error_code ignored;
  ReadTokenizer read;
  if (name != kMbartClass && name != concat(kMbartClass, "Fast")) {
    read.note = concat("no tokenizer was imported, the ids are those of the model's own: ",
                       "tokenizer_class is ", quote(name.substr(0, 64)), ", and ", kMbartClass,
                       " alone puts the language in front of texts");
  } else if (fs::exists(model, ignored)) {
    read.tokenizer = read_mbart_model(model, ids, stored, kMbartClass, mbart_end());
    read.note = spare_rows_note(stored, read.tokenizer->vocab_size());
  } else {
    read = read_tokenizer_of(directory, config, stored, ids);
  }
  if (!config.has("decoder_start_token_id"))
    read.note.append(read.note.empty() ? "" : "; ")
        .append(concat(config.label(), " has no decoder_start_token_id: the decoder starts with ",
                       ids.bos));
  add_forced_note(directory, config, stored, read);
  return read;
}

ReadTokenizer read_xlm_roberta_tokenizer(const fs::path& directory, const ConfigReader& config,
                                         int64_t stored) {
  SpecialIds ids = read_special_ids(directory, config);
  const fs::path model = directory / kM2m100Model;
  std::error_code ignored;
  if (fs::exists(directory / "tokenizer.json", ignored) || !fs::exists(model, ignored))
    return read_tokenizer_of(directory, config, stored, ids);
  ReadTokenizer read;
  ids = {.bos = 0, .pad = kM2mPad, .eos = {2}};
  read.tokenizer = read_mbart_model(model, ids, stored, "XLMRobertaTokenizer",
                                    {{"<mask>", 0, SubwordType::control}});
  read.note = spare_rows_note(stored, read.tokenizer->vocab_size());
  return read;
}

ReadTokenizer read_bart_tokenizer(const fs::path& directory, const ConfigReader& config,
                                  int64_t stored) {
  constexpr const char* kForced = "forced_bos_token_id";
  const SpecialIds ids = special_ids(directory, config, stored);
  ReadTokenizer read = read_tokenizer_of(directory, config, stored, ids);
  const ConfigReader options = generation_options(directory, config);
  if (!read.tokenizer) {
    add_forced_note(directory, config, stored, read, "prefix");
    return read;
  }
  const Tokenizer& tokenizer = *read.tokenizer;
  require(tokenizer.language() >= 0, ErrorCode::unsupported, kOrigin, directory.string(),
          ": post_processor of tokenizer.json puts no token in front of a text, or ",
          options.label(), " has no decoder_start_token_id");
  require(tokenizer.special_tokens().start() == ids.bos, ErrorCode::unsupported, kOrigin,
          options.label(), ": decoder_start_token_id is another one than in ", config.label());
  const std::string begin = quote(tokenizer.token(tokenizer.language()));
  if (!options.has(kForced))
    read.note.append(read.note.empty() ? "" : "; ")
        .append(concat("translations here begin with ", begin, ", which ", options.label(),
                       " does not force"));
  else
    require(options.integer(kForced, 0, stored - 1) == tokenizer.language(), ErrorCode::unsupported,
            kOrigin, options.label(), ": ", kForced, " is another token than ", begin,
            ", which texts begin with");
  return read;
}

std::string_view m2m100_fault(const Tokenizer& tokenizer) {
  if (tokenizer.pad_id() != kM2mPad) return "a vocabulary whose <pad> is not token 1";
  if (tokenizer.kind() == MarianTokenizer::kKind) return {};
  // NllbTokenizer builds BPE with a space in front of texts, whatever tokenizer.json says.
  const SpmModel spm = parse_spm(tokenizer.serialized());
  if (spm.is_unigram) return "a vocabulary of unigrams; NllbTokenizer has BPE";
  return spm.add_dummy_prefix ? "" : "a vocabulary without a space in front of texts";
}

namespace {

Json tokenizer_options(const Tokenizer& tokenizer, const char* name, int64_t max_positions) {
  Json options;
  options["model_max_length"] = max_positions;
  options["clean_up_tokenization_spaces"] = false;
  for (const auto& [key, id] : {std::pair{"unk_token", tokenizer.unk_id()},
                                {"eos_token", tokenizer.eos_id()},
                                {"sep_token", tokenizer.eos_id()},
                                {"pad_token", tokenizer.pad_id()}})
    options[key] = tokenizer.token(id);
  options["tokenizer_class"] = name;
  return options;
}

}  // namespace

void write_m2m100_tokenizer(const Tokenizer& tokenizer, int64_t max_positions,
                            const fs::path& directory) {
  if (const std::string_view fault = m2m100_fault(tokenizer); !fault.empty())
    cannot_express("M2M100", std::string(fault));
  if (tokenizer.kind() == MarianTokenizer::kKind)
    return write_marian_vocabulary(tokenizer, directory);
  Json options = tokenizer_options(tokenizer, "NllbTokenizer", max_positions);
  const std::optional<Json> fast = fast_tokenizer(tokenizer, {.begin = false, .end = true});
  if (!fast) cannot_express("M2M100", "a vocabulary with user-defined or unused subwords");
  Json::List languages;
  for (const std::string& code : tokenizer.languages()) languages.push_back(code);
  options["additional_special_tokens"] = std::move(languages);  // transformers 4 has no other list
  write_json(directory / kOptionsFile, options);
  write_json(directory / "tokenizer.json", *fast);
}

int32_t write_bart_tokenizer(const Tokenizer& tokenizer, const fs::path& directory) {
  // `tokenizer` may have languages that a caller chose in place of the token of the file.
  const int32_t begin = tokenizer.kind() == ByteBpeTokenizer::kKind
                            ? Tokenizer::from_bytes(tokenizer.serialized(), tokenizer.file_name(),
                                                    tokenizer.companions())
                                  .language()
                            : -1;
  if (begin < 0)
    cannot_express("BART",
                   "a vocabulary that is not byte-level BPE of an encoder-decoder, with a "
                   "token in front of texts");
  write_file_atomically(directory / tokenizer.file_name(), tokenizer.serialized());
  for (const CompanionFile& file : tokenizer.companions())
    write_file_atomically(directory / file.name, file.content);
  return begin;
}

void write_mbart_tokenizer(const Tokenizer& tokenizer, int64_t max_positions,
                           const fs::path& directory) {
  const SpmModel spm = parse_spm(tokenizer.serialized());
  const Subwords begin = mbart_begin(false), end = mbart_end();
  if (!is_of_mbart(spm, begin, end))
    cannot_express("mBART", concat("a vocabulary that is not one of ", kMbartClass,
                                   ": unigrams, its languages and <mask>"));
  Subwords stored = mbart_begin(true);
  stored.insert(stored.end(), spm.subwords.begin() + std::ssize(begin),
                spm.subwords.end() - std::ssize(end));
  write_file_atomically(directory / kM2m100Model, serialize_spm(spm, stored));
  write_json(directory / kOptionsFile, tokenizer_options(tokenizer, kMbartClass, max_positions));
}

}  // namespace trafo::interop
