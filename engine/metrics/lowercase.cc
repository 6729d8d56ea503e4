#include "engine/metrics/lowercase.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "engine/core/strings/utf8.h"
#include "engine/metrics/lowercase_table.h"

namespace trafo {
namespace {

constexpr char32_t kCapitalSigma = 0x3a3, kSigma = 0x3c3, kFinalSigma = 0x3c2;
constexpr char32_t kCapitalDottedI = 0x130, kCombiningDot = 0x307;

char32_t lowercase(char32_t c) {
  const auto* run =
      std::upper_bound(std::begin(kLowercaseRuns), std::end(kLowercaseRuns), c,
                       [](char32_t value, const LowercaseRun& r) { return value < r.first; });
  if (run == std::begin(kLowercaseRuns)) return c;
  --run;
  if (c > run->last || (c - run->first) % run->step != 0) return c;
  return static_cast<char32_t>(static_cast<int32_t>(c) + run->distance);
}

bool is_cased(char32_t c) {
  if (lowercase(c) != c || (c >= 0xdf && c <= 0x24f && c != 0xf7)) return true;
  return std::any_of(
      std::begin(kLowercaseRuns), std::end(kLowercaseRuns), [c](const LowercaseRun& run) {
        const auto capital = static_cast<char32_t>(static_cast<int32_t>(c) - run.distance);
        return capital >= run.first && capital <= run.last && (capital - run.first) % run.step == 0;
      });
}

bool is_case_ignorable(char32_t c) {
  return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xa8 || c == 0xad ||
         c == 0xaf || c == 0xb4 || c == 0xb7 || c == 0xb8 || c == 0x2019 ||
         (c >= 0x2b0 && c <= 0x36f);
}

bool is_final_sigma(const std::vector<char32_t>& text, size_t position) {
  size_t before = position;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t behind = position + 1;
  while (behind < text.size() && is_case_ignorable(text[behind])) ++behind;
  return behind == text.size() || !is_cased(text[behind]);
}

}  // namespace

std::string lowercase_utf8(std::string_view text) {
  const std::vector<char32_t> code_points = to_code_points(text);
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < code_points.size(); ++i) {
    const char32_t c = code_points[i];
    if (c == kCapitalSigma) {
      append_utf8(is_final_sigma(code_points, i) ? kFinalSigma : kSigma, result);
    } else if (c == kCapitalDottedI) {
      append_utf8('i', result);
      append_utf8(kCombiningDot, result);
    } else {
      append_utf8(lowercase(c), result);
    }
  }
  return result;
}

}  // namespace trafo
