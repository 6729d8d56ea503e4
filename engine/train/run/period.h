// A frequency or a duration, as a count of updates, target tokens or epochs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trafo {

// Values are part of the C ABI: never renumber, only append.
enum class PeriodUnit : int32_t { updates = 0, tokens = 1, epochs = 2 };

struct Period {
  int64_t value = 0;  // 0: never
  PeriodUnit unit = PeriodUnit::updates;
  friend bool operator==(const Period&, const Period&) = default;
};

// How far a run has got.
struct Progress {
  int64_t updates = 0;
  int64_t tokens = 0;  // target tokens: labels with a weight
  int64_t epochs = 0;  // complete ones
};

// "500u", "500" (updates), "2Mt" (target tokens; k, M and G are powers of 1000), "3e". Anything
// else is INVALID_ARGUMENT.
Period parse_period(std::string_view text);
std::string to_string(const Period& period);

// True if a multiple of the period is in (before, after]. It depends on the two counts alone, so a
// resumed run does the same work at the same updates.
bool is_due(const Period& period, const Progress& before, const Progress& after);

}  // namespace trafo
