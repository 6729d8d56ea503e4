#include "engine/core/option_field.h"

#include "engine/core/argument_error.h"

namespace trafo {
namespace {

// "at least 1 and below 1e+06", "above 0 and at most 1e+12"
std::string real_bounds(const OptionField& f) {
  std::string text = concat(f.low_inside ? "at least " : "above ", f.low);
  if (f.high < kNoLimit) text += concat(" and ", f.high_inside ? "at most " : "below ", f.high);
  return text;
}

}  // namespace

void check_option(const char* origin, const OptionField& field, int64_t value) {
  const auto low = static_cast<int64_t>(field.low);
  const auto high = static_cast<int64_t>(field.high);
  if (value >= low && value <= high) return;
  const std::string zero = field.zero != nullptr ? concat("0 (", field.zero, ") or ") : "";
  if (field.high >= kNoLimit)
    refuse_argument(origin, field.name, " must be ",
                    zero.empty() ? concat("at least ", low) : zero + "above", ", got ", value);
  refuse_argument(origin, field.name, " must be ", low, " to ", high, ", got ", value);
}

void check_option(const char* origin, const OptionField& field, double value) {
  const bool inside = (field.low_inside ? value >= field.low : value > field.low) &&
                      (field.high_inside ? value <= field.high : value < field.high);
  if (inside || (field.zero != nullptr && value == 0)) return;
  refuse_argument(origin, field.name, " must be ",
                  field.zero != nullptr ? concat("0 (", field.zero, ") or ") : "",
                  real_bounds(field), ", got ", value);
}

void refuse_enum(const char* origin, const char* name, const char* const* names, size_t count,
                 int64_t value) {
  std::string known;
  for (size_t i = 0; i < count; ++i)
    known += concat(i == 0 ? "" : i + 1 == count ? " or " : ", ", i, " (", names[i], ")");
  refuse_argument(origin, name, " must be ", known, ", got ", value);
}

}  // namespace trafo
