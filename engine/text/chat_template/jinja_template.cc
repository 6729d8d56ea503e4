#include "engine/text/chat_template/jinja_template.h"

#include <array>
#include <utility>

#include "engine/text/chat_template/evaluator.h"
#include "engine/text/chat_template/syntax.h"

namespace trafo::jinja {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};
constexpr std::array<std::string_view, 7> kWeekdays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                       "Thursday", "Friday", "Saturday"};

int days_of_month(int year, int month) {
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return kDays[month - 1] + (month == 2 && leap ? 1 : 0);
}

// 0 is Sunday. Sakamoto's method.
int weekday(const Day& day) {
  constexpr int kShift[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
  const int year = day.year - (day.month < 3 ? 1 : 0);
  return (year + year / 4 - year / 100 + year / 400 + kShift[day.month - 1] + day.day) % 7;
}

std::string padded(int number, size_t digits) {
  const std::string text = std::to_string(number);
  return std::string(digits - std::min(digits, text.size()), '0') + text;
}

}  // namespace

std::optional<std::string> format_day(const Day& day, std::string_view format) {
  const std::string_view month = kMonths[static_cast<size_t>(day.month - 1)];
  const std::string_view name = kWeekdays[static_cast<size_t>(weekday(day))];
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    const char part = ++i < format.size() ? format[i] : '\0';
    if (part == 'd' || part == 'e')
      out += part == 'e' && day.day < 10 ? concat(" ", day.day) : padded(day.day, 2);
    else if (part == 'm')
      out += padded(day.month, 2);
    else if (part == 'Y')
      out += std::to_string(day.year);
    else if (part == 'y')
      out += padded(day.year % 100, 2);
    else if (part == 'B' || part == 'b' || part == 'h')
      out += part == 'B' ? month : month.substr(0, 3);
    else if (part == 'A' || part == 'a')
      out += part == 'A' ? name : name.substr(0, 3);
    else if (part == 'F')
      out += concat(day.year, "-", padded(day.month, 2), "-", padded(day.day, 2));
    else if (part == '%')
      out += '%';
    else
      return std::nullopt;
  }
  return out;
}

std::optional<Day> parse_day(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  const auto number = [&](size_t begin, size_t digits) {
    int value = 0;
    for (const char c : text.substr(begin, digits)) {
      if (c < '0' || c > '9') return -1;
      value = 10 * value + (c - '0');
    }
    return value;
  };
  const Day day{number(0, 4), number(5, 2), number(8, 2)};
  if (day.year < 1 || day.month < 1 || day.month > 12 || day.day < 1 ||
      day.day > days_of_month(day.year, day.month))
    return std::nullopt;
  return day;
}

JinjaTemplate::JinjaTemplate(std::string_view source, std::string label,
                             const TemplateBounds& bounds)
    : label_(std::move(label)),
      bounds_(bounds),
      syntax_(std::make_shared<const Syntax>(parse_template(source, label_, bounds_))) {}

bool JinjaTemplate::marks_generation() const noexcept {
  return syntax_->marks_generation;
}

RenderedTemplate JinjaTemplate::render(const Json& variables,
                                       const std::optional<Day>& today) const {
  return Evaluator(bounds_, label_, today).render(syntax_->body, variables);
}

}  // namespace trafo::jinja
