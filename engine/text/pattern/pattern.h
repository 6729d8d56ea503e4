// Regular expressions of tokenizer.json, with the meaning that the Oniguruma library gives them:
// alternatives from left to right, greedy, lazy and possessive repetition, classes, properties of
// Unicode, lookahead. No groups are captured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/text/unicode/code_point_set.h"

namespace trafo {

// Immutable: any number of threads may use one.
class Pattern {
 public:
  // CORRUPT_FILE: no regular expression. UNSUPPORTED: a part of it that is not done here. Both
  // begin with `label` and quote the part.
  Pattern(std::string_view expression, std::string_view label);
  // Matches one character of the first set that has it, or as many as there are.
  static Pattern of_runs(const std::vector<CodePointSet>& sets, bool repeated);
  // Matches the text itself.
  static Pattern of_text(std::string_view text);

  struct Match {
    size_t begin, end;  // bytes
  };
  // Replaces `matches` by those in `text`, which is UTF-8, from left to right. They do not overlap.
  // An empty one is where no other begins. The time is bounded by the size of the pattern times
  // the size of the text, to the power of 1 + the depth of lookaheads inside each other, and by
  // kStepsPerByte. INVALID_ARGUMENT: the text needs more than that.
  void find_all(std::string_view text, std::vector<Match>& matches) const;

  static constexpr size_t kStepsPerByte = 4096;

 private:
  friend class PatternCompiler;
  friend class PatternMatcher;
  Pattern() = default;

  enum class Op : uint8_t {
    set,         // one character of `set`
    run,         // as many characters of `set` as there are; fewer, if what follows fails
    hold,        // as many characters of `set` as there are, at most `most`, whatever follows
    split,       // what is at `next`, or else what is at `other`
    jump,        // to `next`
    look,        // whether what is at the next instruction matches; then to `next`
    line_start,  // the next four are assertions
    line_end,
    text_start,
    text_end,
    match
  };
  struct Instruction {
    Op op;
    bool negated = false;  // of look
    uint32_t set = 0, most = 0, next = 0, other = 0;
    // Of split: the ASCII characters that what is at `next` may begin with. If it may be empty,
    // all of them and the end of the text.
    uint64_t first[2] = {UINT64_MAX, UINT64_MAX};
    bool may_be_empty = true;
  };
  std::vector<Instruction> program_;
  std::vector<CodePointTable> sets_;
};

}  // namespace trafo
