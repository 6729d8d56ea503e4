#include "engine/formats/tokenizers/spelled_tokens.h"

#include <algorithm>
#include <set>

#include "engine/core/strings/utf8.h"

namespace trafo::interop {
namespace {

using Characters = std::u32string;

// Stands for a character that the vocabulary lacks. No text should have it, see fast_tokenizer.cc.
constexpr char32_t kUnknown = 0xfdd0;

Characters characters_of(std::string_view text) {
  const std::vector<char32_t> characters = to_code_points(text);
  return {characters.begin(), characters.end()};
}

// The characters of normal subwords, and the pairs that are neighbours in one.
struct Alphabet {
  std::set<char32_t> characters;
  std::set<std::pair<char32_t, char32_t>> neighbours;

  explicit Alphabet(const SpmModel& spm) {
    for (const ScoredSubword& subword : spm.subwords) {
      if (subword.type != SubwordType::normal) continue;
      const Characters text = characters_of(subword.text);
      characters.insert(text.begin(), text.end());
      for (size_t i = 1; i < text.size(); ++i) neighbours.emplace(text[i - 1], text[i]);
    }
  }
};

std::string pattern_of(const Characters& text) {
  std::string utf8;
  for (const char32_t character : text) append_utf8(character, utf8);
  return interop::pattern_of(utf8);
}

// The first part of a token up to the place, followed by the rest.
std::string place_in(const std::string& first, const std::string& rest) {
  return first + "(?=" + rest + ")";
}

}  // namespace

std::string pattern_of(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}-#&~").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::optional<SpelledTokens> keep_spelled(const SpmModel& spm) {
  SpelledTokens steps;
  const Alphabet alphabet(spm);
  const auto cuts = [&](char32_t left, char32_t right) {
    return !alphabet.neighbours.contains({left, right});
  };
  const bool bytes = std::any_of(spm.subwords.begin(), spm.subwords.end(), [](const auto& subword) {
    return subword.type == SubwordType::byte;
  });
  if (!bytes && alphabet.characters.contains(kUnknown)) return std::nullopt;
  std::string places;
  const auto add_place = [&](const std::string& place) {
    places += (places.empty() ? "" : "|") + place;
  };
  for (const ScoredSubword& subword : spm.subwords) {
    if (subword.type != SubwordType::control && subword.type != SubwordType::unknown) continue;
    const Characters text = characters_of(subword.text);
    const auto unknown = std::find_if(text.begin(), text.end(), [&](char32_t character) {
      return !alphabet.characters.contains(character);
    });
    // Without byte tokens all unknown characters give the same id, so another one is as good.
    if (!bytes && unknown != text.end()) {
      const auto at = static_cast<size_t>(unknown - text.begin());
      std::string pattern = pattern_of(text.substr(at, 1)), unknown_text;
      if (at > 0) pattern = "(?<=" + pattern_of(text.substr(0, at)) + ")" + pattern;
      if (at + 1 < text.size()) pattern = place_in(pattern, pattern_of(text.substr(at + 1)));
      append_utf8(kUnknown, unknown_text);
      steps.normalizers.push_back(Json::Object{{"type", "Replace"},
                                               {"pattern", Json::Object{{"Regex", pattern}}},
                                               {"content", unknown_text}});
      continue;
    }
    // A cut where no subword could be loses none.
    size_t at = 1;
    while (at < text.size() && !cuts(text[at - 1], text[at])) ++at;
    if (at >= text.size()) return std::nullopt;
    add_place(place_in(pattern_of(text.substr(0, at)), pattern_of(text.substr(at))));
  }
  if (bytes) {
    const std::string digits = "[0-9A-F]{2}>";
    if (cuts(U'<', U'0'))
      add_place(place_in("<", "0x" + digits));
    else if (cuts(U'0', U'x'))
      add_place(place_in("<0", "x" + digits));
    else
      return std::nullopt;
  }
  if (!places.empty())
    steps.pre_tokenizer = Json::Object{{"type", "Split"},
                                       {"pattern", Json::Object{{"Regex", places}}},
                                       {"behavior", "MergedWithPrevious"},
                                       {"invert", false}};
  return steps;
}

}  // namespace trafo::interop
