// The templates of Jinja that chat models have: an interpreter of the part of the language that
// they use, with bounds for templates that may be hostile. Blocks, text and white space are as
// transformers sets them: trim_blocks, lstrip_blocks, no escapes for HTML, and the tags `break`,
// `continue` and `generation`.
//
// Supported: output, if, for (with a condition and else), set (also of a block and of a member of a
// namespace), macro; all operators and literals but texts with % formats; the filters of
// filters.cc, the tests of value_tests.cc and the methods of methods.cc; range, dict, namespace,
// raise_exception and, with a day, strftime_now. Everything else is refused by its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/strings/json.h"
#include "engine/text/chat_template/budget.h"
#include "engine/text/text_span.h"

namespace trafo::jinja {

struct RenderedTemplate {
  std::string text;
  std::vector<TextSpan> generated;  // the generation blocks, in their order
};

// A day of the Gregorian calendar.
struct Day {
  int year, month, day;  // month and day count from 1
};

struct Syntax;

// Immutable. Copies share the syntax tree.
class JinjaTemplate {
 public:
  // `label` is shown as the file in messages. CORRUPT_FILE: a fault of the syntax. UNSUPPORTED: a
  // tag, filter or test that is not supported. Both name the line.
  JinjaTemplate(std::string_view source, std::string label, const TemplateBounds& bounds = {});

  // Whether it has generation blocks.
  bool marks_generation() const noexcept;
  // The text with these variables, an object. `today` is the day of strftime_now; without one the
  // name is undefined. INVALID_ARGUMENT: the template refuses the variables (raise_exception), an
  // operation cannot be done with its values, or a bound is exceeded. UNSUPPORTED: a function or
  // method that is not supported. All name the line.
  RenderedTemplate render(const Json& variables, const std::optional<Day>& today = {}) const;

 private:
  std::string label_;
  TemplateBounds bounds_;
  std::shared_ptr<const Syntax> syntax_;
};

// The day as strftime writes it in the C locale. None: the format has a part that is no day.
std::optional<std::string> format_day(const Day& day, std::string_view format);
// "2026-11-29". None: it is no such day.
std::optional<Day> parse_day(std::string_view text);

}  // namespace trafo::jinja
