#include "engine/formats/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <array>

#include "engine/core/strings/quote.h"
#include "engine/core/strings/utf8.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/text/tokenizer/byte_bpe/json_part.h"
#include "engine/text/tokenizer/byte_bpe/merges.h"
#include "engine/text/tokenizer/byte_bpe/pre_tokenizer.h"
#include "engine/text/tokenizer/tokenizer_json_text.h"

namespace trafo::interop {
namespace {

constexpr const char* kFormat = "GGUF";
// The numbers of SentencePiece, which llama.cpp has for every kind.
enum TokenType : int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

uint32_t number(int64_t value) {
  return static_cast<uint32_t>(value);
}

void add(GgufPairs& pairs, const char* key, GgufValue value) {
  pairs.emplace_back(concat("tokenizer.ggml.", key), std::move(value));
}

// The patterns of llama.cpp, with its name for them (tokenizer.ggml.pre). It merges the bytes of
// each word, or takes a word that is a token as it is. Its "gpt-4o" is not here: words with marks
// are cut in other places there (tests/parity/gguf_vocabulary_parity.py).
struct KnownPattern {
  const char* pre;
  bool ignore_merges;
  std::array<std::string_view, 4> steps;  // as step_text() writes them, then empty ones
};
// No patterns: a "*" cannot begin one.
constexpr std::string_view kPlainBytes = "*bytes", kDigits = "*digits", kOtherStep = "*";

constexpr KnownPattern kKnownPatterns[] = {
    {"gpt-2", false, {kGpt2Pattern}},
    {"llama-bpe",
     true,
     {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      kPlainBytes}},
    {"qwen2",
     false,
     {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      kPlainBytes}},
    {"deepseek-v3",
     false,
     {R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}"
      "\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
      kPlainBytes}},
    {"smollm", false, {kDigits, kGpt2Pattern}}};

// The step as kKnownPatterns has it.
std::string_view step_text(const JsonPart& step) {
  const std::string type = step.type();
  if (type == "ByteLevel" && !step.at("add_prefix_space").flag())
    return step.flag("use_regex", true) ? kGpt2Pattern : kPlainBytes;
  if (type == "Digits" && step.at("individual_digits").flag()) return kDigits;
  if (type != "Split") return kOtherStep;
  const std::optional<JsonPart> regex = step.at("pattern").find("Regex");
  // Every character is in a match, so that a match alone and what is not removed are the same.
  const bool inverted = step.at("invert").flag();
  if (!regex || step.at("behavior").text() != (inverted ? "Removed" : "Isolated"))
    return kOtherStep;
  return regex->text();
}

// Whether a text is never a word: in every known pattern, a word with a letter ends with one.
bool is_never_word(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return std::any_of(text.begin(), text.end(), is_letter) &&
         static_cast<unsigned char>(text.back()) < 0x80 && !is_letter(text.back());
}

// Whether merges make the token `entry` of its bytes, or it is never looked for.
bool is_made(const SubwordTable& vocabulary, const Merges& merges, size_t entry) {
  const std::string_view text = vocabulary.text(entry);
  std::vector<int32_t> parts;
  for (size_t at = 0, begin = 0; at < text.size(); begin = at) {
    next_code_point(text, at);
    const uint32_t part = vocabulary.find(text.substr(begin, at - begin));
    if (part == SubwordTable::kNone) return is_never_word(text);
    parts.push_back(static_cast<int32_t>(part));
  }
  merges.apply(parts);
  return (parts.size() == 1 && parts.front() == static_cast<int32_t>(entry)) || is_never_word(text);
}

// llama.cpp takes a word that is a token as it is, or merges its bytes, as the pattern has it. It
// is the same for a vocabulary whose merges make every token.
void check_ignore_merges(const TokenizerText& text, bool ignores, const KnownPattern& known) {
  if (ignores == known.ignore_merges) return;
  Merges merges(text.merges.size());
  for (const Merge& merge : text.merges)
    merges.add(static_cast<int32_t>(merge.left), static_cast<int32_t>(merge.right),
               static_cast<int32_t>(merge.result));
  for (size_t i = 0; i < text.vocabulary.size(); ++i)
    if (!is_made(text.vocabulary, merges, i))
      cannot_express(
          kFormat, concat("a vocabulary with the pattern ", known.pre, " and model: ignore_merges ",
                          ignores ? "true" : "false", ", whose merges do not make the token ",
                          quote(text.vocabulary.text(i))));
}

const KnownPattern& pattern_of(const JsonPart& file, const TokenizerText& text) {
  const JsonPart part = file.at("pre_tokenizer");
  std::vector<std::string_view> steps;
  for (const JsonPart& step : part.steps("pretokenizers")) steps.push_back(step_text(step));
  if (steps.size() < kKnownPatterns[0].steps.size()) steps.resize(kKnownPatterns[0].steps.size());
  const auto is_it = [&](const KnownPattern& known) {
    return std::equal(steps.begin(), steps.end(), known.steps.begin(), known.steps.end());
  };
  const auto* const found =
      std::find_if(std::begin(kKnownPatterns), std::end(kKnownPatterns), is_it);
  if (found == std::end(kKnownPatterns)) {
    std::string names;
    for (const KnownPattern& known : kKnownPatterns)
      names.append(names.empty() ? "" : ", ").append(known.pre);
    cannot_express(kFormat,
                   concat("a vocabulary whose ", part.path(),
                          " is none of the patterns that have a name there (", names, ")"));
  }
  check_ignore_merges(text, file.at("model").flag("ignore_merges", false), *found);
  if (const auto normalizer = file.find("normalizer"))
    for (const JsonPart& step : normalizer->steps("normalizers"))
      if (step.type() != "NFC")
        cannot_express(kFormat, concat("a vocabulary with ", step.path(), ": ", step.type()));
  return *found;
}

GgufPairs byte_bpe_pairs(const Tokenizer& tokenizer) {
  constexpr const char* kLabel = "tokenizer.json";
  const TokenizerText text = read_tokenizer_text(tokenizer.serialized(), kOrigin, kLabel);
  const JsonPart file(kLabel, text.rest);
  const SubwordTable& vocabulary = text.vocabulary;
  GgufPairs pairs;
  add(pairs, "model", "gpt2");
  add(pairs, "pre", pattern_of(file, text).pre);
  std::vector<std::string> tokens;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) tokens.push_back(tokenizer.token(id));
  std::vector<int32_t> types(tokens.size(), kUnused);
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    tokens[vocabulary.id(i)] = vocabulary.text(i);
    types[vocabulary.id(i)] = kNormal;
  }
  if (const auto added = file.find("added_tokens"))
    for (const JsonPart& token : added->list()) {
      for (const char* key : {"lstrip", "rstrip", "single_word"})
        if (token.at(key).flag())
          cannot_express(kFormat, concat("the added token ", quote(token.at("content").text()),
                                         " with ", key));
      const auto id = static_cast<size_t>(token.at("id").integer(0, tokenizer.vocab_size() - 1));
      tokens[id] = token.at("content").text();
      types[id] = token.at("special").flag() ? kControl : kUserDefined;
    }
  std::vector<std::string> merges;
  for (const Merge& merge : text.merges)
    merges.push_back(concat(vocabulary.text(merge.left), " ", vocabulary.text(merge.right)));
  add(pairs, "tokens", std::move(tokens));
  add(pairs, "token_type", std::move(types));
  add(pairs, "merges", std::move(merges));
  return pairs;
}

void check_subwords(const Tokenizer& tokenizer, const SpmModel& spm) {
  constexpr const char* kHint =
      "; train a vocabulary with `translate-train vocab --bpe "
      "--byte-fallback`";
  if (tokenizer.as_sentencepiece()->model_kind() != SpmKind::bpe)
    cannot_express(kFormat, concat(tokenizer.as_sentencepiece()->model_kind() == SpmKind::unigram
                                       ? "a unigram vocabulary"
                                       : "a vocabulary that is not BPE",
                                   kHint));
  int bytes = 0;
  for (const ScoredSubword& subword : spm.subwords) {
    if (subword.type == SubwordType::byte) ++bytes;
    if (subword.type == SubwordType::unused)
      cannot_express(kFormat, concat("the unused subword ", quote(subword.text), kHint));
  }
  if (bytes != 256) cannot_express(kFormat, concat("a vocabulary without byte tokens", kHint));
  if (!spm.escape_whitespaces)
    cannot_express(kFormat, concat("a vocabulary that keeps spaces as they are", kHint));
}

// llama.cpp reads unigrams in the vocabularies of encoder-decoders alone ("t5"). It has no bytes
// there, writes a space in front of every text, and finds unused subwords.
void check_unigrams(const SpmModel& spm) {
  constexpr const char* kWhose = "a unigram vocabulary ";
  for (const ScoredSubword& subword : spm.subwords) {
    if (subword.type == SubwordType::byte)
      cannot_express(kFormat, concat(kWhose, "with byte tokens"));
    if (subword.type == SubwordType::unused)
      cannot_express(kFormat, concat(kWhose, "with the unused subword ", quote(subword.text)));
  }
  if (!spm.add_dummy_prefix || !spm.remove_extra_whitespaces || !spm.escape_whitespaces)
    cannot_express(kFormat, concat(kWhose, "that keeps spaces as they are, or adds none"));
}

GgufPairs sentencepiece_pairs(const SpmModel& spm) {
  GgufPairs pairs;
  add(pairs, "model", spm.is_unigram ? "t5" : "llama");
  add(pairs, "pre", "default");
  std::vector<std::string> subwords;
  std::vector<float> scores;
  std::vector<int32_t> types;
  for (const ScoredSubword& subword : spm.subwords) {
    subwords.push_back(subword.text);
    scores.push_back(subword.score);
    types.push_back(static_cast<int32_t>(subword.type));
  }
  add(pairs, "tokens", std::move(subwords));
  add(pairs, "scores", std::move(scores));
  add(pairs, "token_type", std::move(types));
  if (spm.is_unigram && !spm.character_map.empty())
    add(pairs, "precompiled_charsmap",
        std::vector<uint8_t>(spm.character_map.begin(), spm.character_map.end()));
  return pairs;
}

}  // namespace

GgufPairs tokenizer_pairs(const Tokenizer& tokenizer, const VocabularyTokens& tokens,
                          bool has_encoder) {
  std::optional<SpmModel> spm;
  if (const auto* model = tokenizer.as_sentencepiece(); model != nullptr) {
    spm = parse_spm(tokenizer.serialized());
    spm->is_unigram = model->model_kind() == SpmKind::unigram;
    if (has_encoder && spm->is_unigram)
      check_unigrams(*spm);
    else
      check_subwords(tokenizer, *spm);
  }
  GgufPairs pairs = spm ? sentencepiece_pairs(*spm) : byte_bpe_pairs(tokenizer);
  const SpecialTokens& special = tokens.special;
  // llama.cpp takes another id for a missing <s>, which may be any subword.
  const auto id_of = [&](int32_t id) { return number(id < 0 ? special.eos : id); };
  add(pairs, "bos_token_id", id_of(special.bos));
  add(pairs, "eos_token_id", number(special.eos));
  if (special.unk >= 0) add(pairs, "unknown_token_id", number(special.unk));
  // The decoder of a T5 starts with <pad>.
  add(pairs, "padding_token_id",
      has_encoder && special.pad < 0 ? number(special.start()) : id_of(special.pad));
  add(pairs, "add_bos_token", tokens.frame.begin);
  add(pairs, "add_eos_token", has_encoder);  // of a decoder-lm, llama-cli refuses true
  add(pairs, "add_space_prefix", spm && spm->add_dummy_prefix);
  if (spm) add(pairs, "remove_extra_whitespaces", spm->remove_extra_whitespaces);
  return pairs;
}

}  // namespace trafo::interop
