// The syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/chat_template/budget.h"
#include "engine/text/chat_template/function.h"
#include "engine/text/chat_template/value.h"

namespace trafo::jinja {

struct Expression;
using ExpressionRef = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    literal,      // value
    name,         // name
    list,         // parts
    tuple,        // parts
    dict,         // parts: key, value, key, value, ...
    attribute,    // parts[0].name
    item,         // parts[0][parts[1]]
    slice,        // parts[0][parts[1]:parts[2]:parts[3]]; null: left out
    call,         // parts[0](parts[1], ..., named)
    filter,       // parts[0] | filter(parts[1], ..., named)
    test,         // parts[0] is [not] test(parts[1], ...)
    concat,       // parts, with ~
    binary,       // parts[0] name parts[1]
    comparison,   // parts[0] operators[0] parts[1] operators[1] ...
    conditional,  // parts[0] if parts[1] else parts[2]; parts[2] may be null
    both,         // and
    either,       // or
    negation,     // not
    negative,     // -
  };
  Kind kind;
  int line;
  int depth = 1;
  std::string name{};
  Value value{};
  std::vector<ExpressionRef> parts{};
  std::vector<std::pair<std::string, ExpressionRef>> named{};
  std::vector<std::string> operators{};
  const Filter* filter = nullptr;
  const ValueTest* test = nullptr;
  bool negated = false;
};

struct Statement;
using Block = std::vector<Statement>;

// The targets of an assignment: names, or a member of a namespace.
struct Target {
  std::vector<std::string> names;
  bool unpacks = false;  // `a, b`, also of one name
  std::string member;    // of the namespace names[0]; empty: none
};

struct Statement {
  enum class Kind {
    text,          // text
    output,        // expression
    branch,        // if
    loop,          // for target in expression if condition: body else otherwise
    assignment,    // set target = expression
    block_set,     // set target: body; expression: a chain of filters on the name ""
    macro,         // text is its name; target.names are parameters
    generation,    // body
    leave_loop,    // break
    next_element,  // continue
  };
  Kind kind;
  int line;
  std::string text{};
  Target target{};
  ExpressionRef expression{}, condition{};
  std::vector<std::pair<ExpressionRef, Block>> branches{};  // of `if`
  Block body{}, otherwise{};
  std::vector<ExpressionRef> defaults{};  // of parameters; null: none
};

struct Syntax {
  Block body;
  bool marks_generation = false;
};

// CORRUPT_FILE: a fault of the syntax, or it is nested too deeply. UNSUPPORTED: a tag, filter or
// test that is not known here. Both name the line.
Syntax parse_template(std::string_view source, std::string_view label,
                      const TemplateBounds& bounds);

}  // namespace trafo::jinja
