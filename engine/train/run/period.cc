#include "engine/train/run/period.h"

#include <charconv>

#include "engine/core/checked.h"

namespace trafo {
namespace {

int64_t count_of(const Progress& progress, PeriodUnit unit) {
  switch (unit) {
    case PeriodUnit::updates:
      return progress.updates;
    case PeriodUnit::tokens:
      return progress.tokens;
    case PeriodUnit::epochs:
      return progress.epochs;
  }
  return 0;
}

[[noreturn]] void refuse(std::string_view text) {
  fail(ErrorCode::invalid_argument, "period", "'", text,
       "' is not a number of updates (500u), target tokens (2Mt) or epochs (3e)");
}

}  // namespace

Period parse_period(std::string_view text) {
  Period period;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, period.value);
  if (error != std::errc{} || period.value < 0) refuse(text);
  std::string_view suffix(rest, static_cast<size_t>(end - rest));
  int64_t factor = 1;
  if (!suffix.empty()) {
    if (suffix[0] == 'k') factor = 1'000;
    if (suffix[0] == 'M') factor = 1'000'000;
    if (suffix[0] == 'G') factor = 1'000'000'000;
    if (factor != 1) suffix.remove_prefix(1);
  }
  if (suffix == "t")
    period.unit = PeriodUnit::tokens;
  else if (suffix == "e")
    period.unit = PeriodUnit::epochs;
  else if (suffix != "u" && !suffix.empty())
    refuse(text);
  period.value = checked_mul(period.value, factor, "period");
  return period;
}

std::string to_string(const Period& period) {
  const char* unit = period.unit == PeriodUnit::tokens   ? "t"
                     : period.unit == PeriodUnit::epochs ? "e"
                                                         : "u";
  return std::to_string(period.value) + unit;
}

bool is_due(const Period& period, const Progress& before, const Progress& after) {
  if (period.value <= 0) return false;
  return count_of(before, period.unit) / period.value < count_of(after, period.unit) / period.value;
}

}  // namespace trafo
