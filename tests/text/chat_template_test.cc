// The interpreter of chat templates. The expected texts are those of jinja2 3.1 with the settings
// of transformers; tests/parity/chat_parity.py compares templates of models.
#include <gtest/gtest.h>

#include <string>

#include "engine/core/strings/json.h"
#include "engine/text/chat_template/jinja_template.h"

namespace trafo::jinja {
namespace {

// The variables of the cases.
const char* const kVariables =
    R"json({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo", "n": 3}], "s": "a,b, c", "l": [3, 1, 2], "d": {"b": 1, "a": [1, {"x": null}], "c": "q'\"\n"}, "f": 1.5, "t": true, "e": "", "u": "Größe", "big": 12345678901234, "nested": [[1, 2], [3, 4]]})json";

Json variables() {
  return parse_json(kVariables, "test", "variables");
}

std::string rendered(const std::string& source) {
  return JinjaTemplate(source, "test.jinja").render(variables()).text;
}

// The message of the error that parsing or rendering ends in; empty if there is none.
std::string refusal(const std::string& source, const TemplateBounds& bounds = {}) {
  try {
    JinjaTemplate(source, "test.jinja", bounds).render(variables());
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}
ErrorCode refusal_code(const std::string& source) {
  try {
    JinjaTemplate(source, "test.jinja").render(variables());
    return ErrorCode::ok;
  } catch (const Error& error) {
    return error.code();
  }
}

struct JinjaCase {
  const char *source, *text;
};

// clang-format off
const JinjaCase kJinjaCases[] = {
    {"{{ s.split(',') }}|{{ s.split(',', 1) }}|{{ s.rsplit(',',1) }}|{{ \"  a b \".split() }}",
     "['a', 'b', ' c']|['a', 'b, c']|['a,b', ' c']|['a', 'b']"},
    {"{{ l|sort }}|{{ l|sort(reverse=true) }}|{{ l|join('-') }}|{{ l|first }}|{{ l|last }}|{{ l|length }}|{{ l|max }}|{{ l|min }}",
     "[1, 2, 3]|[3, 2, 1]|3-1-2|3|2|3|3|1"},
    {"{{ d }}|{{ d|tojson }}|{{ d|tojson(indent=2) }}|{{ d|dictsort }}|{{ d|items|list }}|{{ d.items()|list }}",
     "{'b': 1, 'a': [1, {'x': None}], 'c': 'q\\'\"\\n'}|{\"b\": 1, \"a\": [1, {\"x\": null}], \"c\": \"q'\\\"\\n\"}|{\n  \"b\": 1,\n  \"a\": [\n    1,\n    {\n      \"x\": null\n    }\n  ],\n  \"c\": \"q'\\\"\\n\"\n}|[('a', [1, {'x': None}]), ('b', 1), ('c', 'q\\'\"\\n')]|[('b', 1), ('a', [1, {'x': None}]), ('c', 'q\\'\"\\n')]|[('b', 1), ('a', [1, {'x': None}]), ('c', 'q\\'\"\\n')]"},
    {"{{ d.b }}|{{ d['a'][1].x }}|{{ d.zz }}|{{ d.zz is defined }}|{{ d.get('zz') }}|{{ d.get('zz', 4) }}",
     "1|None||False|None|4"},
    {"{{ 7 // 2 }}|{{ -7 // 2 }}|{{ -7 % 3 }}|{{ 7 / 2 }}|{{ 2 ** 10 }}|{{ 2 ** -1 }}|{{ 1e20 }}|{{ 1.0 }}|{{ 1e-7 }}|{{ 0.1 + 0.2 }}",
     "3|-4|2|3.5|1024|0.5|1e+20|1.0|1e-07|0.30000000000000004"},
    {"{{ 'ab' * 3 }}|{{ [1] * 2 }}|{{ [1] + [2] }}|{{ 'a' ~ 1 ~ none ~ true }}",
     "ababab|[1, 1]|[1, 2]|a1NoneTrue"},
    {"{{ u[1:3] }}|{{ u[::-1] }}|{{ u[-1] }}|{{ u|length }}|{{ u.lower() }}|{{ l[1:] }}|{{ l[::-1] }}|{{ l[-5:10] }}|{{ u[10:] }}",
     "rö|eßörG|e|5|größe|[1, 2]|[2, 1, 3]|[3, 1, 2]|"},
    {"{{ 1 if t else 2 }}|{{ 1 if e }}|{{ (1, 2) }}|{{ (1,) }}|{{ [1, 'a', None, True, 1.5, undefinedx] }}",
     "1||(1, 2)|(1,)|[1, 'a', None, True, 1.5, Undefined]"},
    {"{{ 1 < 2 < 3 }}|{{ 1 < 2 > 5 }}|{{ 'a' in s }}|{{ 9 not in l }}|{{ 'b' in d }}|{{ not t }}|{{ not e and t }}",
     "True|False|True|True|True|False|True"},
    {"{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }};{% else %}none{% endfor %}",
     "10TrueFalse331;21FalseFalse3232;32FalseTrue311;"},
    {"{% for x in [] %}a{% else %}none{% endfor %}|{% for x in l if x > 1 %}{{ loop.length }}{{ x }}{% endfor %}|{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
     "none|2322|b=1;a=[1, {'x': None}];c=q'\"\n;"},
    {"{% set ns = namespace(a=1, b='x') %}{% for x in l %}{% set ns.a = ns.a + x %}{% set q = x %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ q is defined }}",
     "7xFalse"},
    {"{% macro m(a, b='d', c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}{{ m('x')|length }}",
     "[1dNone][12None][43None]8"},
    {"{% set x %}  hello {{ s }} {% endset %}[{{ x }}]{% set y | trim | upper %}  abc {% endset %}[{{ y }}]",
     "[  hello a,b, c ][ABC]"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set z = (1, 2) %}{{ z[0] }}",
     "121"},
    {"{{ undefinedx }}|{{ undefinedx is undefined }}|{{ undefinedx|default('q') }}|{{ e|default('q') }}|{{ e|default('q', true) }}|{{ undefinedx or 'z' }}",
     "|True|q||q|z"},
    {"{{ \"%}\" }}{{ '{{' }}|{{ \"a\\nb\\t\\\"c\\\" \\u00e9 \\x41\" }}|{{ 'x' \"y\" }}",
     "%}{{|a\nb\t\"c\" é A|xy"},
    {"{{ messages|map(attribute='role')|join(', ') }}|{{ messages|selectattr('role','equalto','user')|list|length }}|{{ messages|rejectattr('n')|list|length }}|{{ messages|selectattr('n','defined')|map(attribute='n')|list }}|{{ l|map('string')|join }}|{{ l|select('odd')|list }}|{{ l|reject('equalto', 1)|list }}",
     "user, assistant|1|1|[3]|312|[3, 1]|[3, 2]"},
    {"{{ ' x '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ 'xxaxx'.strip('x') }}|{{ ' x '.lstrip() }}|{{ ' x '.rstrip() }}|{{ \"hello world-foo\"|title }}|{{ \"hello world-foo\".title() }}|{{ \"hELLO\"|capitalize }}|{{ \"aXb\".upper() }}",
     "x|a|a|x | x|Hello World-Foo|Hello World-Foo|Hello|AXB"},
    {"{{ 'abc'.startswith('a') }}|{{ 'abc'.startswith(('x','a')) }}|{{ 'abc'.endswith('bc') }}|{{ 'a-b-c'.replace('-', '+') }}|{{ 'a-b-c'.replace('-', '+', 1) }}|{{ 'a-b'|replace('-', '') }}|{{ 'abc'.find('c') }}|{{ 'abc'.find('z') }}|{{ 'aXa'.count('a') }}",
     "True|True|True|a+b+c|a+b-c|ab|2|-1|2"},
    {"{{ l is sequence }}|{{ l is iterable }}|{{ l is mapping }}|{{ d is mapping }}|{{ s is string }}|{{ f is float }}|{{ 3 is integer }}|{{ true is integer }}|{{ 3 is number }}|{{ none is none }}|{{ t is true }}|{{ t is boolean }}|{{ 3 is odd }}|{{ 4 is even }}|{{ 4 is divisibleby 2 }}|{{ 1 is in l }}|{{ 3 is eq 3 }}",
     "True|True|False|True|True|True|True|False|True|True|True|True|True|True|True|True|True"},
    {"{{ \"a\\nb\\n\\nc\"|indent(2) }}|{{ \"a\\nb\"|indent(2, true) }}|{{ \"a\\nb\"|indent }}",
     "a\n  b\n\n  c|  a\n  b|a\n    b"},
    {"{{ \"3\"|int }}|{{ \"x\"|int }}|{{ \"x\"|int(7) }}|{{ 3.9|int }}|{{ \"1.5\"|float }}|{{ 3|float }}|{{ -3|abs }}|{{ l|reverse|list }}|{{ \"abc\"|reverse }}|{{ [1,1,2]|unique|list }}",
     "3|0|7|3|1.5|3.0|3|[2, 1, 3]|cba|[1, 2]"},
    {"{{ range(3)|list }}|{{ range(1,4)|list }}|{{ range(5,0,-2)|list }}|{{ dict(a=1) }}",
     "[0, 1, 2]|[1, 2, 3]|[5, 3, 1]|{'a': 1}"},
    {"{%- if t -%}  a  {%- elif e -%} b {%- else -%} c {%- endif %} x",
     "a x"},
    {"{{- ' a ' -}}   b {# comment #} c {#- comment -#}   d",
     " a b  cd"},
    {"{% if t and not e or s == 'x' %}yes{% endif %}{{ s == 'a,b, c' }}{{ l == [3,1,2] }}{{ d == {'b':1} }}{{ 1 == 1.0 }}{{ 1 == true }}",
     "yesTrueTrueFalseTrueTrue"},
    {"{{ {'a': 1, 'b': [1, 2]}['b'][0] }}|{{ {'x': {'y': 1}}.x.y }}",
     "1|1"},
    {"{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}",
     "assistant"},
    {"{{ -l[0] }}|{{ - 3 + 4 }}|{{ 2 - -3 }}|{{ +3 }}|{{ (1 + 2) * 3 }}|{{ 1 + 2 * 3 ** 2 }}|{{ 10 - 2 - 3 }}",
     "-3|1|5|3|9|19|5"},
    {"{{ \"ü<&>'\\\"\\\\/\\n\"|tojson }}|{{ \"ü😀\"|tojson(ensure_ascii=true) }}|{{ [1,2]|tojson(separators=(',',':')) }}|{{ {\"b\":1,\"a\":2}|tojson(sort_keys=true) }}|{{ []|tojson(indent=2) }}|{{ [[]]|tojson(indent=2) }}",
     "\"ü<&>'\\\"\\\\/\\n\"|\"\\u00fc\\ud83d\\ude00\"|[1,2]|{\"a\": 2, \"b\": 1}|[]|[\n  []\n]"},
    {"{{ l.0 }}|{{ nested[1][0] }}|{{ nested|map('first')|list }}|{{ nested|map(attribute=1)|list }}|{{ (l|first) + 1 }}|{{ messages[-1].content[0] }}",
     "3|3|[1, 3]|[2, 4]|4|Y"},
    {"{{ \"a\" if 1 is defined and t else \"b\" }}|{{ s is string and l is not string }}|{{ 'x' is not in s }}|{{ messages[0].role in ['user', 'system'] }}",
     "a|True|True|True"},
    {"{{ messages|list|length }}{% set x = messages|selectattr('role','equalto','user')|first %}{{ x.content }}",
     "2Hi"},
    {"{% if not x is defined %}{% set x = 5 %}{% endif %}{{ x }}",
     "5"},
    {"{% set content = 'A</think>B' %}{{ content.split('</think>')[-1].lstrip('\\n') }}|{{ content.split('</think>')|first }}|{{ (content.split('</think>')|last).strip() }}",
     "B|A|B"},
    {"{%- macro r(x) -%}{%- if x > 0 -%}{{ x }}{{ r(x - 1) }}{%- endif -%}{%- endmacro -%}{{ r(5) }}",
     "54321"},
    {"{% set ns = namespace() %}{% set ns.x = [1] %}{% set ns.x = ns.x + [2] %}{{ ns.x }}{{ ns.y is defined }}",
     "[1, 2]False"},
    {"{{ t|string + 'x' }}|{{ 3|string|length }}|{{ t|tojson }}|{{ none|tojson }}|{{ f|tojson }}|{{ big }}",
     "Truex|1|true|null|1.5|12345678901234"},
    {"{{ 'a' ~ ('b' if e else 'c') ~ 'd' }}|{{ ('x', 'y')|join }}|{{ s[0] }}{{ s[-1] }}|{{ s|list }}",
     "acd|xy|ac|['a', ',', 'b', ',', ' ', 'c']"},
    {"{{ \"x\\ty\"|upper }}|{{ \"a  b\\nc\".split() }}|{{ \"a\\nb\\r\\nc\".splitlines() }}|{{ 'prefixabc'.removeprefix('prefix') }}|{{ '12'.isdigit() }}|{{ 'ab'.isalpha() }}",
     "X\tY|['a', 'b', 'c']|['a', 'b', 'c']|abc|True|True"},
    {"a\n  {% if t %}\n  b\n  {% endif %}\nc\n",
     "a\n  b\nc"},
    {"{% for x in l %}\n{{ x }}\n{% endfor %}\n\n",
     "3\n1\n2\n"},
    {"  {%+ if t %}x{% endif +%}\n y\n",
     "  x\n y"},
    {"{# c #}\n x {# d #}\n  {#- e -#}\n z",
     " x z"},
    {"\r\n{{ t }}\r\n  {%- if t %}\r\n q{% endif %}\r\n\r\n",
     "\nTrue q"},
    {"{{ t }}   {% if t %} a {% endif %}   {{ e }}\n  {{ t }}\n",
     "True    a    \n  True"},
    {"{% if t %}\n\n x\n{%- endif %}\n\n{{- t }}\n{{ 1 -}}\n\n z",
     "\n xTrue\n1z"},
    {"x{{ \n t \n}}y{% \n if t \n%}z{% endif %}",
     "xTrueyz"},
    {"{%- for m in messages -%}\n   {{ m.role }}\n{%- endfor -%}\n",
     "userassistant"},
    {"",
     ""},
    {"\n",
     ""},
    {"{{ '' }}\n\n",
     "\n"},
    {"  {% set a = 1 %}  \n  {{ a }}",
     "  \n  1"},
};
// clang-format on

TEST(JinjaTemplate, RendersAsJinja) {
  for (const JinjaCase& each : kJinjaCases)
    EXPECT_EQ(rendered(each.source), each.text) << each.source;
}

TEST(JinjaTemplate, GenerationBlocksAreSpansOfBytes) {
  const RenderedTemplate result =
      JinjaTemplate(
          "{% for m in messages %}ü{% if m.role == 'assistant' %}{% generation %}"
          "{{ m.content }}<e>{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
          "test.jinja")
          .render(variables());
  EXPECT_EQ(result.text, "üHiüYo<e>");
  EXPECT_EQ(result.generated, (std::vector<TextSpan>{{6, 11}}));
  EXPECT_TRUE(JinjaTemplate("{% generation %}{% endgeneration %}", "x").marks_generation());
  EXPECT_FALSE(JinjaTemplate("{{ 'generation' }}", "x").marks_generation());
}

TEST(JinjaTemplate, ErrorsNameTheLine) {
  struct {
    const char *source, *message;
  } const cases[] = {
      {"\n\n{{ 1 +", "test.jinja:3: a tag has no end: }}"},
      {"a\n{% if t %}", "test.jinja:2: the tag 'endif' is missing"},
      {"a\n{% endfor %}", "test.jinja:2: the tag 'endfor' belongs to no other"},
      {"\n{% include 'x' %}", "test.jinja:2: the tag 'include' is not supported"},
      {"\n{{ s | nosuch }}", "test.jinja:2: the filter 'nosuch' is not supported"},
      {"\n{{ s is nosuch }}", "test.jinja:2: the test 'nosuch' is not supported"},
      {"\n{{ nosuch(1) }}", "test.jinja:2: the function 'nosuch' is not supported here"},
      {"\n{{ strftime_now('%Y') }}",
       "test.jinja:2: strftime_now needs a day: give the conversation a member \"strftime_now\": "
       "\"2026-11-29\""},
      {"\n{{ l.append(1) }}",
       "test.jinja:2: the method 'append' changes a list; write list + [element]"},
      {"\n{{ s.format(1) }}", "test.jinja:2: the method 'format' of texts is not supported"},
      {"{{ '%s' % 1 }}", "test.jinja:1: texts with % formats are not supported"},
      {"\n\n{{ raise_exception('roles must alternate') }}",
       "test.jinja:3: the template refuses the conversation: roles must alternate"},
      {"{{ nosuch.role }}", "test.jinja:1: nosuch is undefined, it has no member 'role'"},
      {"{{ 'a' + nosuch }}", "test.jinja:1: operator + does not take str and undefined (nosuch)"},
      {"{{ 'a' + 1 }}", "test.jinja:1: operator + does not take str and int"},
      {"{{ 1 / 0 }}", "test.jinja:1: division by zero"},
      {"{{ 9223372036854775807 + 1 }}", "test.jinja:1: an integer is too large"},
      {"{{ namespace() }}", "test.jinja:1: a value of type namespace has no text here"},
      {"{% break %}", "test.jinja:1: the tag 'break' is outside of a loop"},
      {"{% for x in l %}{% macro m() %}{% endmacro %}{% endfor %}",
       "test.jinja:1: macros inside of loops, macros and block sets are not supported"},
      {"{{ u.upper() }}", "test.jinja:1: upper of other letters than ASCII's is not supported"},
      {"{{ 'a }}", "test.jinja:1: a string has no end"},
      {"{{ (1 }}", "test.jinja:1: an unexpected }"},
      {"{# a", "test.jinja:1: a comment has no end: #}"},
      {"{{ @ }}", "test.jinja:1: an unexpected character: '@ }}'"},
  };
  for (const auto& each : cases) EXPECT_EQ(refusal(each.source), each.message) << each.source;
  EXPECT_EQ(refusal_code("{{ (1 }}"), ErrorCode::corrupt_file);
  EXPECT_EQ(refusal_code("{{ s|nosuch }}"), ErrorCode::unsupported);
  EXPECT_EQ(refusal_code("{{ raise_exception('') }}"), ErrorCode::invalid_argument);
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// Each ends in an error, soon and with little memory.
TEST(JinjaTemplate, HostileTemplatesEndInErrors) {
  const std::string steps = "the template takes more than 2000000 steps";
  struct {
    std::string source, part;
  } const cases[] = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", steps},
      {"{{ range(1000000000)|list }}", "range has 1000000000 elements"},
      {"{{ range(-9223372036854775807, 9223372036854775807, 3)|length }}", "range has"},
      {"{{ 'x' * 1000000000 }}", steps},
      {"{{ [1] * 1000000000 }}", steps},
      {"{{ 9223372036854775807 * ('x' * 9) }}", steps},
      {"{{ 'xxxxxxxxxxxxxxxxx' * 9223372036854775807 }}", steps},
      {"{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor "
       "%}",
       steps},
      {"{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor "
       "%}",
       steps},
      {"{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}",
       "values are nested too deeply"},
      {"{% set n = namespace(x=[1]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% endfor "
       "%}"
       "{{ n.x }}",
       steps},
      {"{% set n = namespace(x=[1], y=[1]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}"
       "{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
       steps},
      {"{% set n = namespace() %}{% set n.n = n %}{{ n.n.n.x }}{{ n.n }}", "has no text here"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "the template calls itself too often"},
      {"{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}",
       "an expression is nested too deeply"},
      {"{{ 1" + repeated(" + 1", 5000) + " }}", "an expression is nested too deeply"},
      {"{{ " + repeated("not ", 5000) + "1 }}", "an expression is nested too deeply"},
      {"{{ " + repeated("-", 5000) + "1 }}", "an expression is nested too deeply"},
      {"{{ s" + repeated("|trim", 5000) + " }}", "an expression is nested too deeply"},
      {"{{ s" + repeated(".x", 5000) + " }}", "an expression is nested too deeply"},
      {"{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}",
       "an expression is nested too deeply"},
      {repeated("{% if t %}", 5000), "tags are nested too deeply"},
      {"{{ '" + repeated("ab ", 60000) + "'.replace('', 'x' * 90000) }}", steps},
      {"{{ 'a'|indent(1000000000) }}", steps},
      {"{{ [[1]]|tojson(indent=900000000) }}", steps},
      {"{{ 2 ** 9223372036854775807 }}", "an integer is too large"},
      {"{{ 1 ** 9223372036854775807 }}", steps},
      {"{{ (-9223372036854775807 - 1) // -1 }}", "an integer is too large"},
      {"{{ s[::0] }}", "the step of a slice is 0"},
      {"{{ 99999999999999999999 }}", "a number is too large"},
      {repeated("x", (1 << 20) + 1), "the template has more than 1048576 bytes"},
  };
  for (const auto& each : cases)
    EXPECT_NE(refusal(each.source).find(each.part), std::string::npos)
        << each.source.substr(0, 200) << "\n"
        << refusal(each.source);
  EXPECT_EQ(refusal("{% for a in range(99) %}\n{{ 'y' * 20 }}{% endfor %}", {.output_bytes = 1000}),
            "test.jinja:2: the text has more than 1000 bytes");
  EXPECT_EQ(rendered("{{ s[-9223372036854775807:9223372036854775807:9223372036854775807] }}"), "a");
}

// Methods and loops hold values, which are freed inside of each other as well.
TEST(JinjaTemplate, HeldValuesAreNestedWithinTheBound) {
  for (const char* const source :
       {"{% set n = namespace(x=[]) %}{% for i in range(90000) %}{% set n.x = [n.x.count] %}"
        "{% endfor %}",
        "{% set n = namespace(x={}) %}{% for i in range(90000) %}{% set n.x = {'a': n.x.get} %}"
        "{% endfor %}",
        "{% set n = namespace(x=[]) %}{% for i in range(90000) %}{% for j in [n.x] %}"
        "{% set n.x = loop %}{% endfor %}{% endfor %}"})
    EXPECT_EQ(refusal(source), "test.jinja:1: values are nested too deeply") << source;
  EXPECT_EQ(rendered("{% set n = namespace(x=[1]) %}{% for i in range(50) %}"
                     "{% set n.x = [n.x.count] %}{% endfor %}{{ n.x[0](2) }}"),
            "0");
}

TEST(JinjaTemplate, RangesReachTheEndsOfTheIntegers) {
  EXPECT_EQ(rendered("{{ range(-9223372036854775807, 9223372036854775807, 9000000000000000000)|list"
                     " }}{{ range(9223372036854775807, -9223372036854775807, "
                     "-9000000000000000000)|list }}"),
            "[-9223372036854775807, -223372036854775807, 8776627963145224193]"
            "[9223372036854775807, 223372036854775807, -8776627963145224193]");
}

std::string numbered(const std::string& before, const std::string& after, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += before + std::to_string(i) + after;
  return all;
}

// Bytes that are written, copied or compared are charged, also if it is not in the output. Without
// charges, each would run for minutes or need gigabytes.
TEST(JinjaTemplate, CopiesAndComparisonsAreCharged) {
  const std::string long_one = "{% set s = 'a' * 1000000 %}", upper = "{% set s = 'A' * 1000000 %}";
  const std::string text_and_part = long_one + "{% set p = 'a' * 500000 ~ 'b' %}";
  const std::string cases[] = {
      long_one + "{{ range(20000)|list|tojson(separators=[s, ':'])|length }}",
      long_one + "{{ ([{'a': 1}] * 20000)|tojson(separators=[',', s])|length }}",
      long_one + "{{ [{s: 1}] * 20000 }}",
      upper + "{{ ([s] * 10000)|sort|length }}",
      upper + "{{ ([s] * 10000)|unique|list|length }}",
      upper + "{{ ([s] * 10000)|max|length }}",
      upper +
          "{% for i in range(9999) %}{% set x = {'a': s, 'b': s}|dictsort(by='value') %}"
          "{% endfor %}",
      text_and_part + "{% for i in range(200) %}{% set x = p in s %}{% endfor %}",
      text_and_part + "{% for i in range(200) %}{% set x = s|replace(p, '') %}{% endfor %}",
      text_and_part + "{% for i in range(200) %}{% set x = s.split(p) %}{% endfor %}",
      text_and_part + "{% for i in range(200) %}{% set x = s.rsplit(p) %}{% endfor %}",
      text_and_part + "{% for i in range(200) %}{% set x = s.find(p) + s.rfind(p) %}{% endfor %}",
      text_and_part + "{% for i in range(200) %}{% set x = s.count(p) %}{% endfor %}",
      long_one +
          "{% set p = 'b' * 1000000 ~ 'a' %}{% for i in range(99) %}"
          "{% set x = s.strip(p) ~ s|trim(p) %}{% endfor %}",
      long_one + "{% set l = ['a' * 999999 ~ 'b'] * 100000 %}{{ s.startswith(l) }}",
      "{% for i in range(20) %}" + numbered("{%set a", "=1%}", 50000) + "{% endfor %}",
      "{% set n = namespace() %}" + numbered("{%set n.a", "=1%}", 50000),
      long_one +
          "{% set d = {s ~ 1: 1, s ~ 2: 1, s ~ 3: 1, s ~ 4: 1} %}{% set k = s ~ 5 %}"
          "{% for i in range(99999) %}{% set x = k in d %}{% endfor %}",
  };
  for (const std::string& source : cases)
    EXPECT_EQ(refusal(source, {.steps = 200'000}),
              "test.jinja:1: the template takes more than 200000 steps")
        << source.substr(0, 200);
}

TEST(JinjaTemplate, ArgumentsAreFewAndDifferent) {
  const std::string many = "test.jinja:1: a call has more than 255 arguments";
  EXPECT_EQ(refusal("{{ dict(a=1, a=1) }}"), "test.jinja:1: the argument 'a' is given twice");
  EXPECT_EQ(refusal("{{ dict(" + numbered("a", "=1,", 300) + ") }}"), many);
  EXPECT_EQ(refusal("{{ l|map('default', " + repeated("1, ", 300) + ") }}"), many);
  EXPECT_EQ(refusal("{% macro m(" + numbered("a", ",", 300) + ") %}{% endmacro %}"),
            "test.jinja:1: a macro has more than 255 parameters");
  EXPECT_EQ(rendered("{{ dict(" + numbered("a", "=1,", 255) + ")|length }}"), "255");
}

TEST(JinjaTemplate, LongPartsAreFound) {
  // The part overlaps itself, and so do its places.
  const std::string part = "aabaabaabaabaabaab";
  const std::string text = "x" + part + "aab" + part + "y";
  const auto check = [&](const std::string& expression, const std::string& expected) {
    EXPECT_EQ(rendered("{% set p = '" + part + "' %}{% set x = '" + text + "' %}{{ " + expression +
                       " }}"),
              expected)
        << expression;
  };
  check("p in x, (p ~ 'z') in x, p in p[1:], x[1:18] ~ 'b' == p", "(True, False, False, True)");
  check("x.find(p), x.rfind(p), x.count(p), p.find(x)", "(1, 22, 2, -1)");
  check("x.split(p)", "['x', '', 'aaby']");
  check("x.rsplit(p, 1)", "['x" + part + "aab', 'y']");
  check("x|replace(p, '-')", "x--aaby");
  check("x.replace(p, 'ß', 1)|length", "24");
  check("'éaüxüaé'.strip('aéü') ~ 'éaüxüaé'.lstrip('éa') ~ 'éaüxüaé'.rstrip('éa')", "xüxüaééaüxü");
}

// Filters return generators, which are true and are read once. The views of
// mappings and range() are no lists either.
TEST(JinjaTemplate, IteratorsAreNoLists) {
  const JinjaCase cases[] = {
      {"{{ 'T' if messages|selectattr('role', 'eq', 'x') else 'F' }}", "T"},
      {"{{ 'T' if []|map('upper') else 'F' }}{{ not []|reverse }}{{ 1 if []|unique }}"
       "{{ 1 if {}|items }}",
       "TFalse11"},
      {"{{ 'T' if {}.keys() or range(0) else 'F' }}", "F"},
      {"{% set g = [1, 2]|map('string') %}{{ g|join }}{{ g|join }}", "12"},
      {"{% set g = [1, 2, 3]|select %}{{ g|first }}{{ 2 in g }}{{ g|list }}", "1True[3]"},
      {"{{ (l|reverse)[0] }}{{ (l|map('string'))[0] }}{{ d.keys()[0] }}{{ range(5)[1] }}", "1"},
      {"{{ l|reverse is sequence }}{{ d.items() is sequence }}{{ range(1) is sequence }}"
       "{{ l|select is iterable }}",
       "FalseFalseTrueTrue"},
      {"{{ l|map('abs') == l }}{{ range(3) == [0, 1, 2] }}{{ range(3) == range(0, 3) }}",
       "FalseFalseTrue"},
      {"{{ {'a': 1, 'b': 2}.keys() == {'b': 1, 'a': 1}.keys() }}{{ {}.values() == {}.values() }}",
       "TrueFalse"},
      {"{{ {'b': 1}.keys() }}{{ {'b': 1}.values() }}{{ [{'b': 1}.items()] }}",
       "dict_keys(['b'])dict_values([1])[dict_items([('b', 1)])]"},
      {"{{ d.keys()|length }}{{ d.items()|list|length }}{{ range(9)[2:4]|list }}", "33[2, 3]"},
      {"{{ (l|select|reverse)[0] }}", "2"},
  };
  for (const JinjaCase& each : cases) EXPECT_EQ(rendered(each.source), each.text) << each.source;
  struct {
    const char *source, *message;
  } const errors[] = {
      {"{{ l|select|length }}", "a value of type generator has no length"},
      {"{{ l|select|last }}", "a value of type generator has no last element; write |list"},
      {"{{ l|select + [1] }}", "operator + does not take generator and list"},
      {"{{ range(2) * 2 }}", "operator * does not take range and int"},
      {"{{ d.keys()|tojson }}", "a value of type dict_keys cannot be written as JSON"},
      {"{{ l|select }}", "a value of type generator has no text here; write |list"},
      {"{{ [range(2)] }}", "a value of type range has no text here; write |list"},
      {"{{ (l|select)[1:] }}", "a value of type generator has no slices"},
  };
  for (const auto& each : errors)
    EXPECT_EQ(refusal(each.source), std::string("test.jinja:1: ") + each.message) << each.source;
}

TEST(JinjaTemplate, NumbersAreThoseOfPython) {
  const JinjaCase cases[] = {
      {"{{ 1 // 0.1 }}|{{ 1 % 0.1 }}|{{ 6 % 0.3 }}|{{ -7.5 // 2 }}|{{ -7.5 % 2 }}|{{ 7 % -2.5 }}",
       "9.0|0.09999999999999995|2.220446049250313e-16|-4.0|0.5|-0.5"},
      {"{{ -1 // 1e300 }}|{{ 0.0 // -3 }}|{{ 4.0 % -2 }}", "-1.0|-0.0|-0.0"},
      {"{{ '+5'|int }}|{{ '1_000'|int }}|{{ '1__0'|int(7) }}|{{ '_1'|int }}|{{ '+-1'|int }}|"
       "{{ 'inf'|int }}|{{ ' -12 '|int }}|{{ 'x'|int('d') }}",
       "5|1000|7|0|0|0|-12|d"},
      {"{{ '+1.5'|float }}|{{ '1_0.5'|float }}|{{ 'nan(1)'|float }}|{{ 'NaN'|float }}|"
       "{{ '-inf'|float }}",
       "1.5|10.5|0.0|nan|-inf"},
      {"{% set q = 'nan'|float %}{{ q == q }}{{ q != q }}{{ q < 1 }}{{ q >= 1 }}",
       "FalseTrueFalseFalse"},
      {"{{ 9007199254740993 == 9007199254740992.0 }}{{ 9007199254740993 > 9007199254740992.0 }}"
       "{{ 9223372036854775807 < 9223372036854775808.0 }}{{ 2 == 2.0 }}{{ 2 < 2.5 }}{{ -2 > -2.5 "
       "}}",
       "FalseTrueTrueTrueTrueTrue"},
      {"{{ +true }}{{ true|abs }}{{ -0.0|abs }}{{ +1.5 }}", "110.01.5"},
      {"{{ ['B', 'a']|min }}{{ ['A', 'a']|max }}{{ 'Hello World'|max }}"
       "{{ ['B', 'a']|min(case_sensitive=true) }}{{ messages|max(attribute='role') }}",
       "aAWB{'role': 'user', 'content': 'Hi'}"},
      {"{{ [1, [2]]|tojson(indent=-1) }}{{ [1]|tojson(indent=none) }}", "[\n1,\n[\n2\n]\n][1]"},
  };
  for (const JinjaCase& each : cases) EXPECT_EQ(rendered(each.source), each.text) << each.source;
  struct {
    const char *source, *message;
  } const errors[] = {
      {"{{ 1e30|int }}", "an integer is too large"},
      {"{{ '99999999999999999999'|int }}", "an integer is too large"},
      {"{{ '1e30'|int }}", "an integer is too large"},
      {"{{ '1e400'|float }}", "a real number is out of range: '1e400'"},
      {"{{ '\u0663'|int }}", "int of other digits than ASCII's is not supported"},
      {"{{ (-8) ** 0.5 }}", "a power is a complex number"},
      {"{{ 0 ** -1 }}", "0 has no negative power"},
      {"{{ 10.0 ** 400 }}", "a real number is too large"},
      {"{{ +'a' }}", "operator - does not take str and int"},
      {"{{ ['nan'|float, 1]|sort }}", "nan has no order to sort by"},
      {"{{ nosuch|int }}", "int needs a value, nosuch is undefined"},
      {"{{ nosuch|float }}", "float needs a value, nosuch is undefined"},
      {"{{ nosuch|indent }}", "indent needs a value, nosuch is undefined"},
      {"{{ nosuch|dictsort }}", "dictsort needs a value, nosuch is undefined"},
      {"{{ [[1]]|unique|list }}", "unique does not take elements of type list"},
  };
  for (const auto& each : errors)
    EXPECT_EQ(refusal(each.source), std::string("test.jinja:1: ") + each.message) << each.source;
}

TEST(JinjaTemplate, ScopesAreThoseOfJinja) {
  const JinjaCase cases[] = {
      {"{% for x in [1] %}{% break %}{% else %}E{% endfor %}", "E"},
      {"{% for x in l %}{% continue %}{% else %}E{% endfor %}", "E"},
      {"{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}E{% endfor %}", "3"},
      {"{% for x in [] %}{% else %}{% set q = 5 %}{{ q }}{% endfor %}{{ q }}", "5"},
      {"{% macro m(t=t) %}[{{ t }}]{% endmacro %}{{ m() }}{{ m(1) }}", "[][1]"},
      {"{% macro m(f, t=t) %}[{{ f }}{{ t }}]{% endmacro %}{{ m(7) }}", "[7]"},
      {"{% macro m(a=b, b=1) %}[{{ a }}{{ b }}]{% endmacro %}{{ m() }}{{ m(b=3) }}", "[1][33]"},
      {"{% set d = {'copy': 4, 'pop': 6, 'update': 7} %}{{ d.pop }}{{ d.update }}{{ d['pop'] }}"
       "{{ d.clear is defined }}{{ d.copy is callable }}",
       "6FalseTrue"},
      {"{{ nosuch is callable }}{{ l is callable }}", "TrueFalse"},
  };
  for (const JinjaCase& each : cases) EXPECT_EQ(rendered(each.source), each.text) << each.source;
  struct {
    const char *source, *message;
  } const errors[] = {
      {"{% macro m(a) %}{{ varargs }}{% endmacro %}{{ m(1) }}",
       "the name 'varargs' is not supported"},
      {"{% macro m(a) %}{% endmacro %}{{ m.name }}",
       "the member 'name' of a function is not supported"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "m has the argument 'a' twice"},
      {"{{ 1 .real }}", "the member 'real' of a number is not supported"},
      {"{{ d.copy() }}", "the method 'copy' of mappings is not supported"},
      {"{% for loop in l %}{% endfor %}", "loop cannot be set in a loop"},
      {"{% for x in l %}{% set loop = 1 %}{% endfor %}", "loop cannot be set in a loop"},
      {"{% set a, = l %}", "expected a name, found '='"},
      {"{% if t if e else t %}{% endif %}", "expected %}, found 'if'"},
  };
  for (const auto& each : errors)
    EXPECT_EQ(refusal(each.source), std::string("test.jinja:1: ") + each.message) << each.source;
}

TEST(JinjaTemplate, EveryCutTemplateIsRefusedOrRenders) {
  const std::string source =
      "{%- macro m(a, b='x') -%}{{ a ~ b|trim }}{%- endmacro %}{% for k, v in d.items() if v is "
      "not "
      "none %}{{ loop.index }}{{ m(k, [1, {'a': v}][0]) }}{% else %}{# c #}{% endfor %}{% set n = "
      "namespace(a=1) %}{% if l[1:2] != [] and not e %}{% set n.a %}q{% endset %}{% endif %}";
  EXPECT_EQ(refusal(source), "");
  for (size_t cut = 0; cut < source.size(); ++cut) {
    refusal(source.substr(0, cut));
    refusal(source.substr(cut));
    refusal(source.substr(0, cut) + source.substr(cut + 1));
  }
}

TEST(JinjaTemplate, TheDayIsGiven) {
  EXPECT_EQ(format_day({2026, 11, 29}, "%d %b %Y|%A %e %B %y|%F %m%%"),
            "29 Nov 2026|Sunday 29 November 26|2026-11-29 11%");
  EXPECT_EQ(format_day({2024, 2, 5}, "%a %e"), "Mon  5");
  EXPECT_EQ(format_day({2024, 2, 5}, "%H:%M"), std::nullopt);
  EXPECT_EQ(format_day({2024, 2, 5}, "%"), std::nullopt);
  EXPECT_TRUE(parse_day("2024-02-29"));
  for (const char* wrong : {"2023-02-29", "2024-13-01", "2024-00-01", "2024-1-1", "", "20240101xx"})
    EXPECT_FALSE(parse_day(wrong)) << wrong;
  const JinjaTemplate dated("{{ strftime_now('%d %b %Y') }}", "test.jinja");
  EXPECT_EQ(dated.render(variables(), parse_day("2026-11-29")).text, "29 Nov 2026");
  EXPECT_EQ(rendered("{{ strftime_now is defined }}"), "False");
}

}  // namespace
}  // namespace trafo::jinja
