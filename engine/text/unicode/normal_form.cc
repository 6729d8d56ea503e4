#include "engine/text/unicode/normal_form.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include "engine/text/unicode/generated/unicode_data.h"

namespace trafo {
namespace {

// Hangul syllables are computed: L leading consonants, V vowels, T trailing consonants.
constexpr char32_t kSyllable = 0xac00, kL = 0x1100, kV = 0x1161, kT = 0x11a7;
constexpr char32_t kLs = 19, kVs = 21, kTs = 28;

// The first characters that any form changes, or that join with one before them.
constexpr char32_t kFirstCanonical = 0xc0, kFirstCompatible = 0xa0, kFirstComposing = 0x300;

int combining_class(char32_t c) {
  const auto* found = std::upper_bound(
      std::begin(unicode_data::kCombining), std::end(unicode_data::kCombining), c,
      [](char32_t with, const unicode_data::CombiningRange& range) { return with < range.first; });
  if (found == std::begin(unicode_data::kCombining) || (found - 1)->last < c) return 0;
  return (found - 1)->combining_class;
}

char32_t character_of(uint32_t decomposition) {
  return decomposition & 0x1fffff;
}

// decomposition: an element of kDecompositions.
std::span<const char32_t> parts_of(const uint32_t& decomposition) {
  const auto begin = unicode_data::kBegins[&decomposition - unicode_data::kDecompositions];
  return std::span(unicode_data::kDecomposed).subspan(begin, decomposition >> 21 & 31);
}

void decompose(char32_t c, bool compatible, std::u32string& out) {
  if (c >= kSyllable && c < kSyllable + kLs * kVs * kTs) {
    const char32_t index = c - kSyllable;
    out += kL + index / (kVs * kTs);
    out += kV + index / kTs % kVs;
    if (index % kTs != 0) out += kT + index % kTs;
    return;
  }
  const auto* found = std::ranges::lower_bound(unicode_data::kDecompositions, c, {}, character_of);
  if (found == std::end(unicode_data::kDecompositions) || character_of(*found) != c ||
      ((*found & unicode_data::kCompatible) && !compatible)) {
    out += c;
    return;
  }
  for (const char32_t part : parts_of(*found)) decompose(part, compatible, out);
}

struct Composition {
  char32_t first, second, whole;
};

const std::vector<Composition>& compositions() {
  static const std::vector<Composition> all = [] {
    std::vector<Composition> list;
    for (const uint32_t& each : unicode_data::kDecompositions)
      if (each & unicode_data::kComposes)
        list.push_back({parts_of(each)[0], parts_of(each)[1], character_of(each)});
    std::sort(list.begin(), list.end(), [](const Composition& a, const Composition& b) {
      return std::pair(a.first, a.second) < std::pair(b.first, b.second);
    });
    return list;
  }();
  return all;
}

// 0: they do not compose.
char32_t compose(char32_t a, char32_t b) {
  if (a >= kL && a < kL + kLs && b >= kV && b < kV + kVs)
    return kSyllable + ((a - kL) * kVs + (b - kV)) * kTs;
  if (a >= kSyllable && a < kSyllable + kLs * kVs * kTs && (a - kSyllable) % kTs == 0 && b > kT &&
      b < kT + kTs)
    return a + (b - kT);
  const std::vector<Composition>& all = compositions();
  const auto found = std::lower_bound(all.begin(), all.end(), std::pair(a, b),
                                      [](const Composition& each, const auto& with) {
                                        return std::pair(each.first, each.second) < with;
                                      });
  return found != all.end() && found->first == a && found->second == b ? found->whole : 0;
}

void order_marks(std::u32string& text) {
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(
        text.begin() + static_cast<ptrdiff_t>(i), text.begin() + static_cast<ptrdiff_t>(end),
        [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    i = std::max(end, i + 1);
  }
}

// A character composes with the last starter unless one between them has the same class or a
// higher one, or is a starter.
std::u32string composed(const std::u32string& text) {
  std::u32string out;
  size_t starter = std::u32string::npos;
  int before = -1;  // the class of the last character after the starter; -1: there is none
  for (const char32_t c : text) {
    const int order = combining_class(c);
    if (starter != std::u32string::npos && before < order) {
      if (const char32_t whole = compose(out[starter], c); whole != 0) {
        out[starter] = whole;
        continue;
      }
    }
    if (order == 0) starter = out.size();
    before = order == 0 ? -1 : order;
    out += c;
  }
  return out;
}

}  // namespace

std::u32string normalized(const std::u32string& text, NormalForm form) {
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  // Latin-1 letters are composed already, so NFC leaves them.
  const char32_t first = compatible ? kFirstCompatible
                         : composes ? kFirstComposing
                                    : kFirstCanonical;
  if (std::all_of(text.begin(), text.end(), [&](char32_t c) { return c < first; })) return text;
  std::u32string result;
  for (const char32_t c : text) decompose(c, compatible, result);
  order_marks(result);
  return composes ? composed(result) : result;
}

}  // namespace trafo
