// Edges of the interpreter of chat templates: mutations that the other cases did not show, and the
// steps that a template is charged.
#include <gtest/gtest.h>

#include <string>

#include "engine/core/strings/json.h"
#include "engine/text/chat_template/jinja_template.h"

namespace trafo::jinja {
namespace {

std::string edge_text(const std::string& source, const TemplateBounds& bounds = {}) {
  const Json variables = parse_json(R"({"l": [3, 1, 2]})", "test", "variables");
  try {
    return JinjaTemplate(source, "test.jinja", bounds).render(variables).text;
  } catch (const Error& error) {
    return error.message();
  }
}

// The texts are those of jinja2 3.1.
TEST(JinjaEdges, RenderAsJinja) {
  struct {
    const char *source, *text;
  } const cases[] = {
      // A part that overlaps itself.
      {"{{ 'aaab'.find('aab') }}|{{ 'aaab'.replace('aab', 'x') }}|{{ 'aab' in 'aaab' }}",
       "1|ax|True"},
      // The same where a table finds it, from the front and from the back.
      {"{% set p = 'aab' ~ 'c' * 20 %}{% set q = 'c' * 20 ~ 'baa' %}"
       "{{ ('a' ~ p).find(p) }}|{{ (q ~ 'a').rfind(q) }}|{{ ('a' ~ q).rfind(p) }}",
       "1|0|-1"},
      {"{{ 'a\\nb\\n'.splitlines() }}|{{ ''.splitlines() }}", "['a', 'b']|[]"},
      {"{{ '-'.join(['a', 'b']) }}|{{ '-'.join([]) }}", "a-b|"},
      {"{{ [1] == [1, 2] }}|{{ [[1]] == [[1, 2]] }}|{{ [1, 2] == [1, 2] }}", "False|False|True"},
      {"{{ 2 ** 0 }}|{{ 2 ** -1 }}", "1|0.5"},
      {"{{ '\\U0001F600!' }}|{{ '\\u00e91' }}", "\U0001F600!|\u00e91"},
      {"{{ l|sort(true) }}|{{ ['a', 'B']|sort(false, true) }}|{{ ['a', 'B']|sort }}",
       "[3, 2, 1]|['B', 'a']|['a', 'B']"},
      {"{{ True }}{{ true }}|{{ False }}{{ false }}|{{ None }}{{ none }}",
       "TrueTrue|FalseFalse|NoneNone"},
      {"{{ ''.isdigit() }}{{ '1'.isupper() }}{{ ''.isspace() }}{{ '1a'.isdigit() }}",
       "FalseFalseFalseFalse"},
      {"{{ 'A1'.isupper() }}{{ 'a1'.islower() }}{{ ' \\n'.isspace() }}{{ 'aB'.islower() }}",
       "TrueTrueTrueFalse"},
  };
  for (const auto& each : cases) EXPECT_EQ(edge_text(each.source), each.text) << each.source;
}

TEST(JinjaEdges, ArgumentsThatAFunctionHasNotAreRefused) {
  EXPECT_EQ(edge_text("{{ l|sort(foo=1) }}"), "test.jinja:1: sort has no argument 'foo'");
  EXPECT_EQ(edge_text("{{ range(1, 2, 3, 4) }}"),
            "test.jinja:1: range takes at most 3 arguments, it has 4");
  const auto with_arguments = [](int count) {
    std::string source = "{{ dict(";
    for (int i = 0; i < count; ++i) source += "a" + std::to_string(i) + "=1, ";
    source += ")|length }}";
    return edge_text(source);
  };
  EXPECT_EQ(with_arguments(255), "255");
  EXPECT_EQ(with_arguments(256), "test.jinja:1: a call has more than 255 arguments");
}

TEST(JinjaEdges, ATooLongTemplateIsRefusedInItsFirstLine) {
  EXPECT_EQ(edge_text("\n\n\n", {.source_bytes = 2}),
            "test.jinja:1: the template has more than 2 bytes");
}

// Gregorian: a year of hundreds is a leap year if 400 divides it.
TEST(JinjaEdges, DaysOfLeapYears) {
  for (const char* day : {"2000-02-29", "2004-02-29", "2400-02-29", "2026-02-28"})
    EXPECT_TRUE(parse_day(day)) << day;
  for (const char* day : {"1900-02-29", "2001-02-29", "2100-02-29", "2004-02-30", "2026-02-29"})
    EXPECT_FALSE(parse_day(day)) << day;
}

// The least bound of steps that a template renders within.
int64_t steps_of(const std::string& source) {
  int64_t low = 0, high = TemplateBounds().steps;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    const std::string text = edge_text(source, {.steps = middle});
    if (text.find("takes more than") == std::string::npos)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// The operand, the operator and its result.
TEST(JinjaEdges, EveryNodeIsAStep) {
  EXPECT_EQ(steps_of("{{ 1 + 1 + 1 }}") - steps_of("{{ 1 + 1 }}"), 3);
}

// 1 step for 16 bytes that are searched or written, 4 for those of a part that is looked for, and
// 2 for each character of a slice.
TEST(JinjaEdges, BytesThatAreReadAreCharged) {
  constexpr int64_t kText = 64000, kPart = 3201;
  const std::string before =
      "{% set s = 'x' * 64000 %}{% set p = 'x' * 3200 ~ 'y' %}{% set q = 0 %}";
  const auto more_than_before = [&](const std::string& expression) {
    return steps_of(before + "{% set q = " + expression + " %}") - steps_of(before);
  };
  const int64_t search = 4 * kPart / 16;
  EXPECT_GE(more_than_before("p in s"), kText / 16 + search);
  EXPECT_GE(more_than_before("s.find(p)"), 2 * kText / 16 + search);
  EXPECT_GE(more_than_before("s[1:2]"), 2 * kText);
  // As many replacements as there may be, also if there are fewer.
  const int64_t written = kText * 10 / 16;
  EXPECT_GE(more_than_before("s.replace('x', 'zzzzzzzzzz')"), written);
  EXPECT_GE(more_than_before("s|replace('x', 'zzzzzzzzzz')"), written);
  const int64_t half = more_than_before("s|replace('xx', 'zzzzzzzzzz')");
  EXPECT_GE(half, written / 2);
  EXPECT_LT(half, written);
}

}  // namespace
}  // namespace trafo::jinja
