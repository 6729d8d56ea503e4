#include "engine/metrics/bleu_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>

#include "engine/core/status.h"
#include "engine/core/strings/utf8.h"
#include "engine/metrics/generated/unicode_categories.h"
#include "engine/os/shared_library.h"

namespace trafo {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_point(char c) {
  return c == '.' || c == ',';
}

// ASCII punctuation other than ' , - . (mteval-v13a's list).
bool is_separate(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
         (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// Replaces each pair of neighbours with matches(first, second) by `before first between second
// behind`. Pairs do not overlap and are found from left to right.
template <class Text, class Predicate>
Text rewrite_pairs(const Text& text, Predicate matches, const Text& before, const Text& between,
                   const Text& behind) {
  Text result;
  result.reserve(text.size() + text.size() / 4);
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      result.append(before).push_back(text[i]);
      result.append(between).push_back(text[i + 1]);
      result.append(behind);
      ++i;
    } else {
      result.push_back(text[i]);
    }
  }
  return result;
}

// Common part of 13a and zh. The rules look at ASCII only, so they may work on UTF-8 bytes: a byte
// above 0x7f is neither digit nor punctuation.
std::string separate_ascii(std::string_view text) {
  std::string spaced;
  for (const char c : text) {
    if (is_separate(c)) {
      spaced += {' ', c, ' '};
    } else {
      spaced += c;
    }
  }
  const std::string nothing, space = " ";
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return !is_digit(a) && is_point(b); }, nothing, space, space);
  spaced = rewrite_pairs(
      spaced, [](char a, char b) { return is_point(a) && !is_digit(b); }, space, space, nothing);
  return rewrite_pairs(
      spaced, [](char a, char b) { return is_digit(a) && b == '-'; }, nothing, space, space);
}

std::string tokenize_13a(std::string text) {
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  return separate_ascii(" " + text + " ");
}

// The code points that the reference implementation of zh sets apart. Two of its ranges were meant
// to be the ideographs from U+20000 and U+2F800 on. As they are written there, they are these two,
// and Chinese text beyond U+FFFF is not set apart. Equal numbers need the same ranges.
bool is_chinese(char32_t c) {
  static constexpr struct {
    char32_t first, last;
  } kRanges[] = {
      {0x2001, 0x2a6d},  // also: punctuation, arrows, symbols, dingbats
      {0x2e80, 0x2fdf},  // radicals
      {0x2ff0, 0x303f},  // description characters, CJK punctuation
      {0x3100, 0x312f}, {0x31a0, 0x31bf}, {0x31c0, 0x31ef}, {0x3200, 0x33ff},
      {0x3400, 0x4db5}, {0x4e00, 0x9fbb}, {0xf900, 0xfa2d}, {0xfa30, 0xfa6a},
      {0xfa70, 0xfad9}, {0xfe10, 0xfe1f}, {0xfe30, 0xfe4f}, {0xff00, 0xffef},
  };
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const auto& range) { return c >= range.first && c <= range.last; });
}

std::string_view strip_left(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    size_t behind = position;
    if (!is_unicode_space(next_code_point(text, behind))) break;
    position = behind;
  }
  return text.substr(position);
}

std::string tokenize_zh(std::string_view line) {
  const std::string_view text = strip_left(line);
  std::string spaced;
  for (size_t position = 0; position < text.size();) {
    const size_t at = position;
    const bool apart = is_chinese(next_code_point(text, position));
    if (apart) spaced += ' ';
    spaced += text.substr(at, position - at);
    if (apart) spaced += ' ';
  }
  return separate_ascii(spaced);
}

UnicodeCategory category(char32_t c) {
  const auto* range =
      std::upper_bound(std::begin(unicode::kCategories), std::end(unicode::kCategories), c,
                       [](char32_t value, const UnicodeRange& r) { return value < r.first; });
  if (range == std::begin(unicode::kCategories)) return UnicodeCategory::other;
  --range;
  return c <= range->last ? range->category : UnicodeCategory::other;
}

std::string to_utf8(std::u32string_view text) {
  std::string result;
  for (const char32_t c : text) append_utf8(c, result);
  return result;
}

// mteval-v14: punctuation is set apart unless numbers stand on both sides of it, symbols always.
std::string tokenize_international(std::string_view line) {
  using enum UnicodeCategory;
  const std::vector<char32_t> code_points = to_code_points(line);
  std::u32string text(code_points.begin(), code_points.end());
  const std::u32string nothing, space = U" ";
  text = rewrite_pairs(
      text, [](char32_t a, char32_t b) { return category(a) != N && category(b) == P; }, nothing,
      space, space);
  text = rewrite_pairs(
      text, [](char32_t a, char32_t b) { return category(a) == P && category(b) != N; }, space,
      space, nothing);
  std::u32string spaced;
  for (const char32_t c : text) {
    if (category(c) == S) {
      spaced += {U' ', c, U' '};
    } else {
      spaced += c;
    }
  }
  return to_utf8(spaced);
}

std::string tokenize_characters(std::string_view line) {
  std::string spaced;
  for (size_t position = 0; position < line.size();) {
    const size_t at = position;
    next_code_point(line, position);
    spaced.append(line.substr(at, position - at)).push_back(' ');
  }
  return spaced;
}

std::string join(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line.append(word).push_back(' ');
  return line;
}

std::string_view strip_right(std::string_view text) {
  size_t end = 0;
  for (size_t position = 0; position < text.size();)
    if (!is_unicode_space(next_code_point(text, position))) end = position;
  return text.substr(0, end);
}

constexpr const char* kMecabOrigin = "ja-mecab";
constexpr const char* kMecabLibrary = "libmecab.so.2";
constexpr const char* kMecabHint =
    "; Debian has both in libmecab2 and mecab-ipadic-utf8. The tokenizer char needs neither";
// Of the IPADIC that sacreBLEU takes. Debian's has one word more.
constexpr unsigned kIpadicWords = 392126;

// As in mecab.h of MeCab 0.996.
struct MecabDictionary {
  const char* file;
  const char* charset;
  unsigned size;
  int type;
  unsigned left_size, right_size;
  unsigned short version;
  MecabDictionary* next;
};

struct MecabFunctions {
  void* (*create)(int, char**) = nullptr;
  void (*destroy)(void*) = nullptr;
  const char* (*error)(void*) = nullptr;
  const char* (*parse)(void*, const char*, size_t) = nullptr;
  const MecabDictionary* (*dictionary)(void*) = nullptr;
  const char* (*version)() = nullptr;
};

template <class Function>
void find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(os::find_symbol(library, name));
  require(function != nullptr, ErrorCode::unsupported, kMecabOrigin, kMecabLibrary, " has no ",
          name);
}

const MecabFunctions& mecab_functions() {
  static const MecabFunctions functions = [] {
    std::string why;
    void* library = os::open_library(kMecabLibrary, why);
    require(library != nullptr, ErrorCode::unsupported, kMecabOrigin,
            "MeCab cannot be loaded: ", why, kMecabHint);
    MecabFunctions found;
    find_function(library, "mecab_new", found.create);
    find_function(library, "mecab_destroy", found.destroy);
    find_function(library, "mecab_strerror", found.error);
    find_function(library, "mecab_sparse_tostr2", found.parse);
    find_function(library, "mecab_dictionary_info", found.dictionary);
    find_function(library, "mecab_version", found.version);
    return found;
  }();
  return functions;
}

std::string ipadic_folder() {
  if (const char* given = std::getenv("TRAFO_MECAB_DICTIONARY"); given && *given) return given;
  const std::string usual = "/var/lib/mecab/dic/ipadic-utf8";
  std::error_code ignored;
  require(std::filesystem::exists(usual, ignored), ErrorCode::unsupported, kMecabOrigin,
          "there is no dictionary in ", usual,
          ": TRAFO_MECAB_DICTIONARY names the folder of IPADIC in UTF-8", kMecabHint);
  return usual;
}

bool is_utf8(std::string charset) {
  std::erase(charset, '-');
  std::transform(charset.begin(), charset.end(), charset.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return charset == "utf8";
}

// MeCab with its dictionary; for one thread at a time.
class Mecab {
 public:
  Mecab();
  ~Mecab() { mecab_functions().destroy(tagger_); }
  Mecab(const Mecab&) = delete;
  Mecab& operator=(const Mecab&) = delete;

  // "0.996-IPA" with the dictionary of sacreBLEU, "0.996-IPA:392127" with another one.
  std::string signature() const {
    const std::string mine = concat(mecab_functions().version(), "-IPA");
    return words_ == kIpadicWords ? mine : concat(mine, ":", words_);
  }
  std::vector<std::string> words(std::string_view line) const {
    const MecabFunctions& mecab = mecab_functions();
    const char* found = mecab.parse(tagger_, line.data(), line.size());
    if (!found) fail(ErrorCode::unsupported, kMecabOrigin, mecab.error(tagger_));
    return split_words(found);
  }

 private:
  void* tagger_ = nullptr;
  unsigned words_ = 0;  // of the dictionary
};

Mecab::Mecab() {
  const MecabFunctions& mecab = mecab_functions();
  std::string folder = ipadic_folder();
  // Without the configuration of the system, which may name other dictionaries.
  std::array<std::string, 6> words{"mecab", "-r", "/dev/null", "-d", folder, "-Owakati"};
  std::array<char*, 6> arguments{};
  std::transform(words.begin(), words.end(), arguments.begin(),
                 [](std::string& word) { return word.data(); });
  tagger_ = mecab.create(static_cast<int>(arguments.size()), arguments.data());
  if (!tagger_) {
    const std::string said = mecab.error(nullptr);
    fail(ErrorCode::unsupported, kMecabOrigin, folder,
         " cannot be used as a dictionary: ", said.empty() ? "it has none" : said, kMecabHint);
  }
  const MecabDictionary* dictionary = mecab.dictionary(tagger_);
  if (dictionary && dictionary->charset && is_utf8(dictionary->charset)) {
    words_ = dictionary->size;
    return;
  }
  const std::string charset = dictionary && dictionary->charset ? dictionary->charset : "nothing";
  mecab.destroy(tagger_);
  fail(ErrorCode::unsupported, kMecabOrigin, "the dictionary in ", folder, " is in ", charset,
       ", not in UTF-8", kMecabHint);
}

}  // namespace

std::string separate_words(std::string_view line, BleuTokenizer tokenizer,
                           const SubwordFunction& subwords) {
  const std::string_view text = strip_right(line);
  switch (tokenizer) {
    case BleuTokenizer::mteval_13a:
      return tokenize_13a(std::string(text));
    case BleuTokenizer::none:
      return std::string(text);
    case BleuTokenizer::zh:
      return tokenize_zh(text);
    case BleuTokenizer::intl:
      return tokenize_international(text);
    case BleuTokenizer::character:
      return tokenize_characters(text);
    case BleuTokenizer::flores200:
      require(subwords != nullptr, ErrorCode::invalid_argument, "BLEU",
              "the tokenizer flores200 needs a SentencePiece model");
      return join(subwords(text));
    case BleuTokenizer::ja_mecab:
      require(subwords != nullptr, ErrorCode::invalid_argument, "BLEU",
              "the tokenizer ja-mecab needs MeCab");
      return join(subwords(strip_left(text)));
  }
  fail(ErrorCode::invalid_argument, "BLEU", "unknown tokenizer ", static_cast<int32_t>(tokenizer));
}

std::vector<std::string> split_words(std::string_view line) {
  std::vector<std::string> words;
  size_t begin = 0, position = 0;
  while (position < line.size()) {
    const size_t at = position;
    if (!is_unicode_space(next_code_point(line, position))) continue;
    if (at > begin) words.emplace_back(line.substr(begin, at - begin));
    begin = position;
  }
  if (begin < line.size()) words.emplace_back(line.substr(begin));
  return words;
}

JapaneseWords load_japanese_words() {
  const auto mecab = std::make_shared<Mecab>();
  return {[mecab](std::string_view line) { return mecab->words(line); }, mecab->signature()};
}

}  // namespace trafo
