// The syntax tree of a regular expression.
#pragma once

#include <string_view>
#include <vector>

#include "engine/text/unicode/code_point_set.h"

namespace trafo {

struct PatternNode {
  enum class Kind {
    set,
    sequence,
    choice,
    repeat,
    look,
    line_start,
    line_end,
    text_start,
    text_end
  };
  enum class Greed { greedy, lazy, possessive };
  static constexpr int kUnbounded = -1;

  Kind kind = Kind::sequence;
  CodePointSet set;
  std::vector<PatternNode> parts;
  int low = 1, high = 1;  // of repeat
  Greed greed = Greed::greedy;
  bool negated = false;  // of look

  bool may_be_empty() const;
  // Characters that a match may begin with. All of them if it may be empty.
  CodePointSet first() const;
};

// Errors as Pattern's.
PatternNode parse_pattern(std::string_view expression, std::string_view label);

}  // namespace trafo
