#include "engine/interop/fast_tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "engine/core/utf8.h"
#include "engine/interop/spm_subwords.h"

namespace trafo::interop {
namespace {

constexpr const char* kSpace = "\u2581";

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

Json replace(const char* pattern_type, const std::string& pattern, const std::string& content) {
  return Json::Object{{"type", "Replace"},
                      {"pattern", Json::Object{{pattern_type, pattern}}},
                      {"content", content}};
}

// The library looks up clusters of characters in the map, and the characters of those it does not
// find. It looks up no cluster of six bytes, which half-width katakana with a voicing mark has, and
// not a letter with the first of its two marks. Composed text has one character for each of these.
void compose(const Tokenizer& tokenizer, Json::List& steps) {
  const auto normal_form = [&](const std::string& text) {
    std::string normal;
    for (const NormalizedRun& run : tokenizer.normalize(text)) normal += run.text;
    return normal.starts_with(kSpace) ? normal.substr(std::string_view(kSpace).size()) : normal;
  };
  constexpr char32_t kFirst = U'\uff66', kLast = U'\uff9d';  // half-width katakana
  for (const char32_t voicing : {U'\uff9e', U'\uff9f'})
    for (char32_t character = kFirst; character <= kLast; ++character) {
      std::string letter, mark;
      append_utf8(character, letter);
      append_utf8(voicing, mark);
      const std::string together = normal_form(letter + mark);
      if (together != normal_form(letter) + normal_form(mark))
        steps.push_back(replace("String", letter + mark, together));
    }
  steps.push_back(Json::Object{{"type", "NFC"}});
}

Json normalizer(const SpmModel& spm, const Tokenizer& tokenizer) {
  Json::List steps;
  if (!spm.character_map.empty()) {
    compose(tokenizer, steps);
    steps.push_back(
        Json::Object{{"type", "Precompiled"}, {"precompiled_charsmap", base64(spm.character_map)}});
  }
  if (spm.remove_extra_whitespaces) {
    steps.push_back(Json::Object{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
    steps.push_back(replace("Regex", " {2,}", " "));
  }
  if (spm.add_dummy_prefix) steps.push_back(Json::Object{{"type", "Prepend"}, {"prepend", kSpace}});
  steps.push_back(replace("String", " ", kSpace));
  return Json::Object{{"type", "Sequence"}, {"normalizers", steps}};
}

Json decoder(const SpmModel& spm, bool bytes) {
  Json::List steps{replace("String", kSpace, " ")};
  if (bytes) steps.push_back(Json::Object{{"type", "ByteFallback"}});
  steps.push_back(Json::Object{{"type", "Fuse"}});
  if (spm.add_dummy_prefix)
    steps.push_back(Json::Object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return Json::Object{{"type", "Sequence"}, {"decoders", steps}};
}

Json post_processor(const Tokenizer& tokenizer) {
  const std::string& end = tokenizer.token(tokenizer.eos_id());
  const auto text = [](const char* id, int type) {
    return Json(Json::Object{{"Sequence", Json::Object{{"id", id}, {"type_id", type}}}});
  };
  const auto special = [&](int type) {
    return Json(Json::Object{{"SpecialToken", Json::Object{{"id", end}, {"type_id", type}}}});
  };
  const Json token = Json::Object{
      {"id", end}, {"ids", Json::List{tokenizer.eos_id()}}, {"tokens", Json::List{end}}};
  return Json::Object{{"type", "TemplateProcessing"},
                      {"single", Json::List{text("A", 0), special(0)}},
                      {"pair", Json::List{text("A", 0), special(0), text("B", 1), special(1)}},
                      {"special_tokens", Json::Object{{end, token}}}};
}

Json added_tokens(const SpmModel& spm) {
  Json::List special;
  for (size_t id = 0; id < spm.subwords.size(); ++id) {
    const ScoredSubword& subword = spm.subwords[id];
    if (subword.type == SubwordType::control || subword.type == SubwordType::unknown)
      special.push_back(Json::Object{{"id", id},
                                     {"content", subword.text},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", false},
                                     {"special", true}});
  }
  return special;
}

Json unigram(const SpmModel& spm, const Tokenizer& tokenizer, bool bytes) {
  Json::List vocabulary;
  for (const ScoredSubword& subword : spm.subwords)
    vocabulary.push_back(Json::List{subword.text, subword.score});
  return Json::Object{{"type", "Unigram"},
                      {"unk_id", tokenizer.unk_id()},
                      {"vocab", vocabulary},
                      {"byte_fallback", bytes}};
}

// Every way to make a subword of two others, the subwords by falling score: SentencePiece merges
// the two neighbours whose subword has the best score, the library those of the first merge in its
// list. Empty if a subword cannot be made, or if two have the same score.
std::optional<Json::List> merges_of(const SpmModel& spm) {
  std::unordered_map<std::string_view, size_t> ids;
  std::vector<size_t> longer;  // than a character
  for (size_t id = 0; id < spm.subwords.size(); ++id) {
    const ScoredSubword& subword = spm.subwords[id];
    if (subword.type != SubwordType::normal) continue;
    ids.emplace(subword.text, id);
    const auto starts = std::count_if(subword.text.begin(), subword.text.end(),
                                      [](char c) { return (c & 0xc0) != 0x80; });
    if (starts > 1) longer.push_back(id);
  }
  std::stable_sort(longer.begin(), longer.end(), [&](size_t a, size_t b) {
    return spm.subwords[a].score > spm.subwords[b].score;
  });
  Json::List merges;
  const ScoredSubword* before = nullptr;
  for (const size_t id : longer) {
    const ScoredSubword& subword = spm.subwords[id];
    const std::string_view text = subword.text;
    if (before != nullptr && before->score == subword.score) return std::nullopt;
    before = &subword;
    std::vector<std::pair<size_t, size_t>> pairs;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = ids.find(text.substr(0, cut)), right = ids.find(text.substr(cut));
      if (left != ids.end() && right != ids.end()) pairs.emplace_back(left->second, right->second);
    }
    if (pairs.empty()) return std::nullopt;
    std::sort(pairs.begin(), pairs.end());
    for (const auto& [left, right] : pairs)
      merges.push_back(Json::List{spm.subwords[left].text, spm.subwords[right].text});
  }
  return merges;
}

std::optional<Json> bpe(const SpmModel& spm, const Tokenizer& tokenizer, bool bytes) {
  std::optional<Json::List> merges = merges_of(spm);
  if (!merges) return std::nullopt;
  Json::Object vocabulary;
  for (size_t id = 0; id < spm.subwords.size(); ++id)
    vocabulary.push_back({spm.subwords[id].text, id});
  return Json::Object{{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", tokenizer.token(tokenizer.unk_id())},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", true},
                      {"byte_fallback", bytes},
                      {"ignore_merges", false},
                      {"vocab", std::move(vocabulary)},
                      {"merges", std::move(*merges)}};
}

}  // namespace

std::optional<Json> fast_tokenizer(const Tokenizer& tokenizer) {
  const SpmModel spm = parse_spm(tokenizer.serialized());
  if (!spm.escape_whitespaces) return std::nullopt;
  bool bytes = false;
  for (const ScoredSubword& subword : spm.subwords) {
    bytes |= subword.type == SubwordType::byte;
    if (subword.type == SubwordType::user_defined || subword.type == SubwordType::unused)
      return std::nullopt;
  }
  std::optional<Json> model;
  if (tokenizer.kind() == SpmKind::unigram) model = unigram(spm, tokenizer, bytes);
  if (tokenizer.kind() == SpmKind::bpe) model = bpe(spm, tokenizer, bytes);
  if (!model) return std::nullopt;
  Json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = added_tokens(spm);
  json["normalizer"] = normalizer(spm, tokenizer);
  json["pre_tokenizer"] = nullptr;
  json["post_processor"] = post_processor(tokenizer);
  json["decoder"] = decoder(spm, bytes);
  json["model"] = std::move(*model);
  return json;
}

}  // namespace trafo::interop
