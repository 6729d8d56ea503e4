#include "engine/text/unicode/properties.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "engine/text/unicode/generated/unicode_data.h"

namespace trafo {
namespace {

CodePointSet categories(std::initializer_list<std::string_view> names) {
  CodePointSet all;
  for (const std::string_view name : names) all = all.united(*category_set(name));
  return all;
}

// Letters that are symbols by their category, such as the circled ones.
const CodePointSet kLetterSymbols = {
    {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

}  // namespace

std::optional<CodePointSet> category_set(std::string_view name) {
  std::vector<CodePointSet::Range> ranges;
  bool known = false;
  for (size_t kind = 0; kind < std::size(unicode_data::kCategoryNames); ++kind) {
    const std::string_view each = unicode_data::kCategoryNames[kind];
    if (each != name && (name.size() != 1 || each[0] != name[0])) continue;
    known = true;
    constexpr auto& kRuns = unicode_data::kCategoryRuns;
    for (size_t i = 0; i < std::size(kRuns); ++i)
      if (kRuns[i] % 32 == kind)
        ranges.push_back({kRuns[i] / 32, i + 1 < std::size(kRuns) ? char32_t{kRuns[i + 1] / 32 - 1}
                                                                  : CodePointSet::kLast});
  }
  if (!known) return std::nullopt;
  return CodePointSet(std::span<const CodePointSet::Range>(ranges));
}

const CodePointSet& white_space_set() {
  static const CodePointSet set = {
      {0x9, 0xd},       {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
      {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};
  return set;
}

const CodePointSet& rust_word_set() {
  static const CodePointSet set =
      categories({"L", "M", "Nd", "Nl", "Pc"}).united(kLetterSymbols).united({{0x200c, 0x200d}});
  return set;
}

const CodePointSet& word_set() {
  // Oniguruma counts the superscripts and fractions of Latin-1 among them, but no joiners.
  static const CodePointSet set = categories({"L", "M", "Nd", "Nl", "Pc"})
                                      .united(kLetterSymbols)
                                      .united({{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}});
  return set;
}

const CodePointSet& old_punctuation_set() {
  static const CodePointSet set = [] {
    std::vector<CodePointSet::Range> ranges = {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}};
    for (const auto& [first, last] : unicode_data::kPunctuation) ranges.push_back({first, last});
    return CodePointSet(std::span<const CodePointSet::Range>(ranges));
  }();
  return set;
}

const CodePointSet& old_nonspacing_set() {
  static const CodePointSet set = [] {
    std::vector<CodePointSet::Range> ranges;
    for (const auto& [first, last] : unicode_data::kNonspacingMarks)
      ranges.push_back({first, last});
    return CodePointSet(std::span<const CodePointSet::Range>(ranges));
  }();
  return set;
}

const CodePointSet& old_other_set() {
  static const CodePointSet set = {
      {0, 0x1f},          {0x7f, 0x9f},        {0xad, 0xad},       {0x600, 0x605},
      {0x61c, 0x61c},     {0x6dd, 0x6dd},      {0x70f, 0x70f},     {0x180e, 0x180e},
      {0x200b, 0x200f},   {0x202a, 0x202e},    {0x2060, 0x2064},   {0x2066, 0x206f},
      {0xe000, 0xf8ff},   {0xfeff, 0xfeff},    {0xfff9, 0xfffb},   {0x110bd, 0x110bd},
      {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},  {0xe0001, 0xe0001}, {0xe0020, 0xe007f},
      {0xf0000, 0xffffd}, {0x100000, 0x10fffd}};
  return set;
}

void append_lower_case(char32_t character, std::u32string& text) {
  if (character == 0x130) {
    text += U"i\u0307";
    return;
  }
  const auto found = std::lower_bound(
      std::begin(unicode_data::kLowerCase), std::end(unicode_data::kLowerCase), character,
      [](const unicode_data::Mapping& mapping, char32_t with) { return mapping.from < with; });
  const bool has = found != std::end(unicode_data::kLowerCase) && found->from == character;
  text += has ? found->to : character;
}

}  // namespace trafo
