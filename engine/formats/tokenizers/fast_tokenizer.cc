#include "engine/formats/tokenizers/fast_tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>

#include "engine/core/strings/utf8.h"
#include "engine/formats/tokenizers/spelled_tokens.h"
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/text/tokenizer/sentencepiece/character_map_entries.h"

namespace trafo::interop {
namespace {

Json replace_step(const char* pattern_type, const std::string& pattern,
                  const std::string& content) {
  return Json::Object{{"type", "Replace"},
                      {"pattern", Json::Object{{pattern_type, pattern}}},
                      {"content", content}};
}

// ---- the character map ----

// SentencePiece replaces the longest entry of the map that begins at each place. The library's
// Precompiled looks up whole grapheme clusters of less than six bytes, takes the shortest entry
// that they begin with and loses the rest of the cluster. Other clusters it takes apart into
// characters. So it is exact for characters that stand alone, and never composes right.
//
// These steps let it see characters that stand alone, and compose with NFC. U+FDD0, which no text
// should have, closes what SentencePiece replaces at once: NFC does not compose or reorder across
// it. Two of them separate characters until each has been replaced.
//
//   1. U+FDD0 of the text becomes U+FDD0 U+FDD1.
//   2. U+FDD0 before each character that may compose and is not in the entry before it.
//   3. U+FDD0 U+FDD0 before the others of these.
//   4. Precompiled.
//   5. Without U+FDD0 U+FDD0.   6. NFC.   7. Without U+FDD0.   8. U+FDD0 U+FDD1 is U+FDD0.
//
// The library's NFC is that of Unicode 12. Compositions that came later are steps before these.

constexpr size_t kEntries = size_t{1} << 18;  // SentencePiece's have 225,000 to 235,000
constexpr size_t kLongest = 4;                // characters of an entry

struct Range {
  char32_t first, last;
};
// Characters that never compose with one before them, are never reordered and begin a grapheme
// cluster: most letters, signs and pictures. tests/parity/tokenizer_cases.py compares the list with
// Unicode. U+0300 is the first character that does otherwise, but for the line feed of CR LF. The
// two characters of ours are among these.
constexpr Range kAlone[] = {
    {0x0, 0x9},         {0xb, 0x2ff},       {0x370, 0x482},     {0x48a, 0x590},    {0x5d0, 0x5ea},
    {0x620, 0x64a},     {0x904, 0x939},     {0xe01, 0xe30},     {0x1e00, 0x1fff},  {0x2010, 0x2027},
    {0x2030, 0x205e},   {0x2100, 0x2cee},   {0x3041, 0x3096},   {0x30a1, 0x3130},  {0x3190, 0xa66e},
    {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfdd0, 0xfdef},   {0xfe30, 0xfefe},  {0xff00, 0xff9d},
    {0x1d400, 0x1d7ff}, {0x1f000, 0x1f3fa}, {0x1f400, 0x1faff}, {0x20000, 0x2ffff}};

bool is_in(std::span<const Range> ranges, char32_t character) {
  return std::any_of(ranges.begin(), ranges.end(), [character](const Range& range) {
    return range.first <= character && character <= range.last;
  });
}

// NFC replaces these as they stand, so a map must do so as well. One of each kind.
constexpr char32_t kReplacedByNfc[] = {0x340, 0x958, 0x2126, 0x212b, 0xf900, 0xfb1d, 0x2f800};

// Where compositions came after Unicode 12. Those of a sign with itself, in three scripts of 2024,
// are left out: they would need the order that SentencePiece replaces in.
constexpr Range kLate[] = {{0x105c0, 0x105ff},
                           {0x11380, 0x113ff},
                           {0x11930, 0x1193f},
                           {0x16100, 0x1613f},
                           {0x16d40, 0x16d7f}};

using Characters = std::u32string;

std::string normal_form(const CharacterMap& map, std::string_view text) {
  std::string normal;
  for (size_t position = 0; position < text.size();) normal += map.next(text, position);
  return normal;
}

std::string utf8(const Characters& characters) {
  std::string text;
  for (const char32_t character : characters) append_utf8(character, text);
  return text;
}

// Entries of several characters, sorted.
struct LongEntries {
  std::vector<Characters> composed, late;
};
std::optional<LongEntries> long_entries(std::string_view blob, std::string_view name) {
  LongEntries entries;
  const bool whole = visit_entries(blob, name, kEntries, [&](std::string_view text) {
    if (!is_valid_utf8(text)) return false;
    Characters characters;
    bool late = false;
    for (size_t position = 0; position < text.size();) {
      if (characters.size() == kLongest) return false;
      characters += next_code_point(text, position);
      late |= is_in(kLate, characters.back());
    }
    if (characters.size() > 1)
      (late ? entries.late : entries.composed).push_back(std::move(characters));
    return true;
  });
  if (!whole) return std::nullopt;
  std::sort(entries.composed.begin(), entries.composed.end());
  return entries;
}

// Replacements of late entries, in the order of the map.
Json::List late_steps(const CharacterMap& map, const std::vector<Characters>& late) {
  Characters lasts;
  for (const Characters& entry : late) lasts += entry.substr(1);
  Json::List steps;
  for (const Characters& entry : late)
    if (entry.size() == 2 && lasts.find(entry.front()) == Characters::npos) {
      const std::string text = utf8(entry);
      steps.push_back(replace_step("String", text, normal_form(map, text)));
    }
  return steps;
}

// Whether the steps are right for it, as far as the map tells.
bool is_composing(const CharacterMap& map, const std::vector<Characters>& entries) {
  for (const char32_t character : kReplacedByNfc)
    if (const std::string text = utf8({character}); normal_form(map, text) == text) return false;
  const auto has = [&](const Characters& entry) {
    return std::binary_search(entries.begin(), entries.end(), entry);
  };
  for (const Characters& entry : entries) {
    if (entry.size() > 2 && !has(entry.substr(0, entry.size() - 1))) return false;
    if (is_in(kAlone, entry.back())) return false;
    const auto longer =
        std::lower_bound(entries.begin(), entries.end(), Characters(1, entry.back()));
    if (longer != entries.end() && longer->front() == entry.back()) return false;

    std::string parts;
    for (const char32_t character : entry) parts += normal_form(map, utf8({character}));
    const std::string text = utf8(entry), value = normal_form(map, text);
    if (parts != text ? normal_form(map, parts) != value : to_code_points(value).size() != 1)
      return false;
  }
  return true;
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

// ---- regular expressions ----

std::string in_class(char32_t character) {
  std::string text;
  const bool plain = character >= 0x80 || (character >= '0' && character <= '9') ||
                     (character >= 'A' && character <= 'Z') ||
                     (character >= 'a' && character <= 'z');
  if (plain) {
    append_utf8(character, text);
  } else {
    char digits[16];
    std::snprintf(digits, sizeof digits, "\\x{%x}", static_cast<unsigned>(character));
    text = digits;
  }
  return text;
}

void add_range(Range range, std::string& text) {
  text += in_class(range.first);
  if (range.last > range.first + 1) text += '-';
  if (range.last > range.first) text += in_class(range.last);
}

// Sorted characters, without brackets.
std::string class_of(const Characters& characters) {
  std::string text;
  for (size_t begin = 0, end; begin < characters.size(); begin = end) {
    for (end = begin + 1; end < characters.size() && characters[end] == characters[end - 1] + 1;)
      ++end;
    add_range({characters[begin], characters[end - 1]}, text);
  }
  return text;
}

// Patterns that match these sorted texts of one length and no others.
std::vector<std::string> patterns_of(const std::vector<Characters>& texts) {
  if (texts.front().size() == 1) {
    Characters all;
    for (const Characters& text : texts) all += text;
    return {"[" + class_of(all) + "]"};
  }
  std::map<std::vector<Characters>, Characters> firsts;  // by what follows them
  for (size_t begin = 0, end; begin < texts.size(); begin = end) {
    std::vector<Characters> rest;
    for (end = begin; end < texts.size() && texts[end].front() == texts[begin].front(); ++end)
      rest.push_back(texts[end].substr(1));
    firsts[std::move(rest)] += texts[begin].front();
  }
  std::vector<std::string> patterns;
  for (const auto& [rest, first] : firsts)
    for (const std::string& pattern : patterns_of(rest))
      patterns.push_back("[" + class_of(first) + "]" + pattern);
  return patterns;
}

// At each place where something ends that SentencePiece replaces at once, before a character that
// may compose: it is none of an entry's, or no entry ends with it here.
std::string boundaries(const std::vector<Characters>& entries, const std::string& may_compose) {
  std::map<char32_t, std::vector<Characters>> before;  // the last characters of entries
  for (const Characters& entry : entries)
    before[entry.back()].push_back(entry.substr(0, entry.size() - 1));
  std::map<std::vector<Characters>, Characters> lasts;  // by what may stand before them
  Characters all;
  for (auto& [last, texts] : before) {
    std::sort(texts.begin(), texts.end(), [](const Characters& a, const Characters& b) {
      return std::pair(a.size(), a) < std::pair(b.size(), b);
    });
    lasts[std::move(texts)] += last;
    all += last;
  }
  std::string pattern = "(?!\\A)(?=" + may_compose + ")(?=[^" + class_of(all) + "]";
  for (const auto& [texts, last] : lasts) {
    std::string allowed;
    for (size_t begin = 0, end; begin < texts.size(); begin = end) {
      for (end = begin; end < texts.size() && texts[end].size() == texts[begin].size();) ++end;
      const std::vector<Characters> same(texts.begin() + static_cast<ptrdiff_t>(begin),
                                         texts.begin() + static_cast<ptrdiff_t>(end));
      for (const std::string& each : patterns_of(same))
        allowed += (allowed.empty() ? "" : "|") + each;
    }
    pattern += "|(?<!" + allowed + ")[" + class_of(last) + "]";
  }
  return pattern + ")";
}

std::optional<Json::List> steps_of_map(const std::string& character_map, std::string_view name) {
  const std::optional<LongEntries> entries = long_entries(character_map, name);
  const CharacterMap map(character_map, name);
  if (!entries || entries->composed.empty() || !is_composing(map, entries->composed))
    return std::nullopt;
  std::string may_compose = "[^";
  for (const Range& range : kAlone) add_range(range, may_compose);
  may_compose += "]";
  const std::string close = "\ufdd0", escape = "\ufdd1";
  Json::List steps = late_steps(map, entries->late);
  steps.insert(
      steps.end(),
      {replace_step("String", close, close + escape),
       replace_step("Regex", boundaries(entries->composed, may_compose), close),
       replace_step("Regex", "(?!\\A)(?<!" + close + ")(?=" + may_compose + ")", close + close),
       Json::Object{{"type", "Precompiled"}, {"precompiled_charsmap", base64(character_map)}},
       replace_step("String", close + close, ""), Json::Object{{"type", "NFC"}},
       replace_step("Regex", close + "(?!" + escape + ")", ""),
       replace_step("String", close + escape, close)});
  return steps;
}

// ---- the parts of a file ----

// None: the library cannot apply the map exactly.
std::optional<Json> normalizer(const SpmModel& spm, const Json::List& last) {
  Json::List steps;
  if (!spm.character_map.empty()) {
    std::optional<Json::List> of_map = normalizer_steps(spm.character_map, "the tokenizer");
    if (!of_map) return std::nullopt;
    steps = std::move(*of_map);
  }
  if (spm.remove_extra_whitespaces) {
    steps.push_back(replace_step("Regex", kEdgeSpaces, ""));
    steps.push_back(replace_step("Regex", kSeveralSpaces, " "));
  }
  if (spm.add_dummy_prefix) steps.push_back(Json::Object{{"type", "Prepend"}, {"prepend", kSpace}});
  steps.push_back(replace_step("String", " ", kSpace));
  steps.insert(steps.end(), last.begin(), last.end());
  return Json::Object{{"type", "Sequence"}, {"normalizers", steps}};
}

// Special tokens give no text.
Json decoder(const SpmModel& spm, bool bytes) {
  std::string special;
  for (const ScoredSubword& subword : spm.subwords)
    if (subword.type == SubwordType::control)
      special += (special.empty() ? "" : "|") + pattern_of(subword.text);
  Json::List steps;
  if (!special.empty()) steps.push_back(replace_step("Regex", "\\A(?:" + special + ")\\z", ""));
  steps.push_back(replace_step("String", kSpace, " "));
  if (bytes) steps.push_back(Json::Object{{"type", "ByteFallback"}});
  steps.push_back(Json::Object{{"type", "Fuse"}});
  if (spm.add_dummy_prefix)
    steps.push_back(Json::Object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return Json::Object{{"type", "Sequence"}, {"decoders", steps}};
}

bool is_special(const ScoredSubword& subword) {
  return subword.type == SubwordType::control || subword.type == SubwordType::unknown;
}

// It lists all special tokens. They are no `added_tokens`: the library would find those in a text.
Json post_processor(const SpmModel& spm, const Tokenizer& tokenizer, const TextFrame& frame) {
  // A token that is an ordinary subword has another name here than the special tokens.
  const auto name_of = [&](int32_t id, const char* otherwise) {
    const ScoredSubword& subword = spm.subwords[static_cast<size_t>(id)];
    return is_special(subword) ? subword.text : otherwise;
  };
  const std::string end = name_of(tokenizer.eos_id(), "end of a text");
  const std::string begin =
      frame.begin ? name_of(tokenizer.bos_id(), "begin of a text") : std::string();
  Json::Object tokens;
  for (size_t id = 0; id < spm.subwords.size(); ++id) {
    const bool is_end = static_cast<int32_t>(id) == tokenizer.eos_id();
    const bool is_begin = frame.begin && static_cast<int32_t>(id) == tokenizer.bos_id();
    if (!is_special(spm.subwords[id]) && !is_end && !is_begin) continue;
    const std::string& token = spm.subwords[id].text;
    const std::string& name = is_end ? end : is_begin ? begin : token;
    tokens.push_back(
        {name, Json::Object{{"id", name}, {"ids", Json::List{id}}, {"tokens", Json::List{token}}}});
  }
  return frame_template(frame, begin, end, std::move(tokens));
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

Json frame_template(const TextFrame& frame, const std::string& begin, const std::string& end,
                    Json::Object listed) {
  const auto add_text = [&](const char* id, int type, Json::List& list) {
    const auto special = [&](const std::string& name) {
      list.push_back(Json::Object{{"SpecialToken", Json::Object{{"id", name}, {"type_id", type}}}});
    };
    if (frame.begin) special(begin);
    list.push_back(Json::Object{{"Sequence", Json::Object{{"id", id}, {"type_id", type}}}});
    if (frame.end) special(end);
  };
  Json::List single, pair;
  add_text("A", 0, single);
  add_text("A", 0, pair);
  add_text("B", 1, pair);
  return Json::Object{{"type", "TemplateProcessing"},
                      {"single", std::move(single)},
                      {"pair", std::move(pair)},
                      {"special_tokens", std::move(listed)}};
}

std::optional<Json::List> normalizer_steps(const std::string& character_map,
                                           std::string_view name) {
  // Nearly all tokenizers have the same map, and its 225,000 entries take half a second.
  static std::mutex mutex;
  static std::string last_map;
  static std::optional<Json::List> last_steps;
  const std::lock_guard lock(mutex);
  if (last_map != character_map) {
    last_map.clear();
    last_steps = steps_of_map(character_map, name);
    last_map = character_map;
  }
  return last_steps;
}

std::optional<Json> fast_tokenizer(const Tokenizer& tokenizer, const TextFrame& frame) {
  const SpmModel spm = parse_spm(tokenizer.serialized());
  if (!spm.escape_whitespaces) return std::nullopt;
  bool bytes = false;
  for (const ScoredSubword& subword : spm.subwords) {
    bytes |= subword.type == SubwordType::byte;
    if (subword.type == SubwordType::user_defined || subword.type == SubwordType::unused)
      return std::nullopt;
  }
  std::optional<Json> model;
  std::optional<SpelledTokens> spelled = SpelledTokens();  // merges give no special token
  if (tokenizer.as_sentencepiece()->model_kind() == SpmKind::unigram) {
    model = unigram(spm, tokenizer, bytes);
    spelled = keep_spelled(spm);
  }
  if (tokenizer.as_sentencepiece()->model_kind() == SpmKind::bpe)
    model = bpe(spm, tokenizer, bytes);
  if (!model || !spelled) return std::nullopt;
  std::optional<Json> normal = normalizer(spm, spelled->normalizers);
  if (!normal) return std::nullopt;
  Json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = Json::List();
  json["normalizer"] = std::move(*normal);
  json["pre_tokenizer"] = std::move(spelled->pre_tokenizer);
  json["post_processor"] = post_processor(spm, tokenizer, frame);
  json["decoder"] = decoder(spm, bytes);
  json["model"] = std::move(*model);
  return json;
}

}  // namespace trafo::interop
