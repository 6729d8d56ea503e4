#include "engine/text/pattern/pattern.h"

#include <algorithm>

#include "engine/core/status.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/pattern/pattern_tree.h"
#include "engine/text/tokenizer/check_text.h"

namespace trafo {

class PatternCompiler {
 public:
  PatternCompiler(Pattern& pattern, std::string_view label) : pattern_(pattern), label_(label) {}

  void compile(const PatternNode& tree) {
    emit(tree);
    add({.op = Op::match});
    for (const CodePointSet& set : sets_) pattern_.sets_.emplace_back(set);
  }

 private:
  using Op = Pattern::Op;
  using Instruction = Pattern::Instruction;
  using Kind = PatternNode::Kind;
  using Greed = PatternNode::Greed;
  static constexpr size_t kInstructions = 4096, kSets = 256;

  uint32_t here() const { return static_cast<uint32_t>(pattern_.program_.size()); }
  Instruction& at(uint32_t place) { return pattern_.program_[place]; }
  uint32_t add(const Instruction& instruction) {
    require(pattern_.program_.size() < kInstructions, ErrorCode::unsupported, kTokenizerOrigin,
            label_, ": the pattern is too large: it has more than ", kInstructions, " steps");
    pattern_.program_.push_back(instruction);
    return here() - 1;
  }
  uint32_t set_of(const CodePointSet& set) {
    const auto found = std::find(sets_.begin(), sets_.end(), set);
    if (found != sets_.end()) return static_cast<uint32_t>(found - sets_.begin());
    require(sets_.size() < kSets, ErrorCode::unsupported, kTokenizerOrigin, label_,
            ": the pattern is too large: it has more than ", kSets, " different sets");
    sets_.push_back(set);
    return static_cast<uint32_t>(sets_.size() - 1);
  }
  // A split whose `next` is the instruction after it, which `node` will be. `other` is still open.
  uint32_t add_split(const PatternNode& node) {
    Instruction split{.op = Op::split, .next = here() + 1};
    split.may_be_empty = node.may_be_empty();
    if (!split.may_be_empty) {
      split.first[0] = split.first[1] = 0;
      const CodePointSet first = node.first();
      for (const CodePointSet::Range& range : first.ranges())
        for (char32_t c = range.first; c <= std::min(range.last, char32_t{0x7f}); ++c)
          split.first[c / 64] |= uint64_t{1} << c % 64;
    }
    return add(split);
  }

  void emit(const PatternNode& node) {
    switch (node.kind) {
      case Kind::set:
        add({.op = Op::set, .set = set_of(node.set)});
        return;
      case Kind::sequence:
        for (const PatternNode& part : node.parts) emit(part);
        return;
      case Kind::choice:
        return emit_choice(node);
      case Kind::repeat:
        return emit_repeat(node);
      case Kind::look: {
        const uint32_t look = add({.op = Op::look, .negated = node.negated});
        emit(node.parts[0]);
        add({.op = Op::match});
        at(look).next = here();
        return;
      }
      case Kind::line_start:
        add({.op = Op::line_start});
        return;
      case Kind::line_end:
        add({.op = Op::line_end});
        return;
      case Kind::text_start:
        add({.op = Op::text_start});
        return;
      case Kind::text_end:
        add({.op = Op::text_end});
        return;
    }
  }

  void emit_choice(const PatternNode& node) {
    std::vector<uint32_t> ends;
    for (size_t i = 0; i + 1 < node.parts.size(); ++i) {
      const uint32_t split = add_split(node.parts[i]);
      emit(node.parts[i]);
      ends.push_back(add({.op = Op::jump}));
      at(split).other = here();
    }
    emit(node.parts.back());
    for (const uint32_t end : ends) at(end).next = here();
  }

  void emit_repeat(const PatternNode& node) {
    const PatternNode& part = node.parts[0];
    for (int i = 0; i < node.low; ++i) emit(part);
    if (node.high == PatternNode::kUnbounded && part.kind == Kind::set &&
        node.greed != Greed::lazy) {
      const Op op = node.greed == Greed::possessive ? Op::hold : Op::run;
      add({.op = op, .set = set_of(part.set), .most = UINT32_MAX});
      return;
    }
    if (node.greed == Greed::possessive) {  // of a set, at most one: the parser refuses others
      add({.op = Op::hold, .set = set_of(part.set), .most = 1});
      return;
    }
    const bool loops = node.high == PatternNode::kUnbounded;
    std::vector<uint32_t> splits;
    for (int i = node.low; loops ? splits.empty() : i < node.high; ++i) {
      splits.push_back(add_split(part));
      emit(part);
    }
    if (loops) add({.op = Op::jump, .next = splits.front()});
    for (const uint32_t split : splits) {
      at(split).other = here();
      if (node.greed != Greed::lazy) continue;
      std::swap(at(split).next, at(split).other);
      at(split).first[0] = at(split).first[1] = UINT64_MAX;
      at(split).may_be_empty = true;
    }
  }

  Pattern& pattern_;
  std::string_view label_;
  std::vector<CodePointSet> sets_;
};

// One text. The first steps try alternatives one after the other and are the fastest for what real
// patterns and texts need. If there are many, states that failed once, of an instruction and a
// place, are remembered and never tried again: without captured groups a state fails whatever led
// to it. So the time does not grow exponentially.
class PatternMatcher {
 public:
  struct Choice;
  // `choices` is scratch memory.
  PatternMatcher(const Pattern& pattern, std::string_view text, std::vector<Choice>& choices)
      : program_(pattern.program_.data()),
        instructions_(pattern.program_.size()),
        sets_(pattern.sets_.data()),
        text_(text),
        choices_(choices) {
    choices_.clear();
  }

  // An alternative. Of a run, every shorter one down to `low` is left. A mark is no alternative:
  // it is reached when its state has failed.
  struct Choice {
    uint32_t instruction;
    bool is_mark;
    size_t low, at;
  };

  // The end of the match that begins at `begin`, or kNone.
  size_t match(size_t begin) { return run(0, begin); }
  static constexpr size_t kNone = SIZE_MAX;

 private:
  using Op = Pattern::Op;
  using Instruction = Pattern::Instruction;
  static constexpr size_t kQuickSteps = 64;        // for each byte
  static constexpr uint64_t kMemoBytes = 1 << 28;  // of failed states

  // Whether a character of the set is at `at`, which then is after it.
  bool take(uint32_t set, size_t& at) const {
    if (at >= text_.size()) return false;
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) {
      if (!sets_[set].has(byte)) return false;
      ++at;
      return true;
    }
    const auto next = [&](size_t i) { return static_cast<unsigned char>(text_[at + i]) & 0x3fu; };
    if (byte < 0xe0) {
      if (!sets_[set].has((byte & 0x1fu) << 6 | next(1))) return false;
      at += 2;
    } else if (byte < 0xf0) {
      if (!sets_[set].has((byte & 0xfu) << 12 | next(1) << 6 | next(2))) return false;
      at += 3;
    } else {
      if (!sets_[set].has((byte & 7u) << 18 | next(1) << 12 | next(2) << 6 | next(3))) return false;
      at += 4;
    }
    return true;
  }
  size_t before(size_t at) const {
    do --at;
    while ((static_cast<unsigned char>(text_[at]) & 0xc0) == 0x80);
    return at;
  }

  void count(size_t steps) {
    steps_ += steps;
    if (steps_ <= kQuickSteps * (text_.size() + 64)) return;
    if (failed_.empty()) {
      const uint64_t states = uint64_t{instructions_} * (text_.size() + 1);
      require(states / 8 <= kMemoBytes, ErrorCode::invalid_argument, kTokenizerOrigin,
              "the text is too long for a pattern of the vocabulary: ", text_.size(), " bytes");
      failed_.resize(states);
    }
    require(steps_ <= Pattern::kStepsPerByte * (text_.size() + 64), ErrorCode::invalid_argument,
            kTokenizerOrigin, "a pattern of the vocabulary needs more than ",
            Pattern::kStepsPerByte, " steps a byte for this text");
  }
  // Whether the state has failed before. If not, it is marked once it fails.
  bool has_failed(uint32_t instruction, size_t at) {
    if (failed_.empty()) return false;
    if (failed_[state(instruction, at)]) return true;
    choices_.push_back({instruction, true, 0, at});
    return false;
  }
  size_t state(uint32_t instruction, size_t at) const {
    return instruction * (text_.size() + 1) + at;
  }

  bool holds(Op assertion, size_t at) const {
    switch (assertion) {
      case Op::line_start:
        return at == 0 || (text_[at - 1] == '\n' && at < text_.size());
      case Op::line_end:
        return at == text_.size() || text_[at] == '\n';
      case Op::text_start:
        return at == 0;
      default:
        return at == text_.size();
    }
  }
  bool may_begin(const Instruction& split, size_t at) const {
    if (split.may_be_empty) return true;
    if (at >= text_.size()) return false;
    const auto byte = static_cast<unsigned char>(text_[at]);
    return byte >= 0x80 || (split.first[byte / 64] >> byte % 64 & 1) != 0;
  }

  size_t run(uint32_t instruction, size_t at) {
    const size_t base = choices_.size();
    for (;;) {
      bool good = true;
      count(1);
      const Instruction& now = program_[instruction];
      switch (now.op) {
        case Op::set:
          good = take(now.set, at);
          ++instruction;
          break;
        case Op::run:
        case Op::hold:
          good = run_of(now, instruction, at);
          break;
        case Op::split:
          if (has_failed(instruction, at)) {
            good = false;
          } else if (may_begin(now, at)) {
            choices_.push_back({now.other, false, at, at});
            instruction = now.next;
          } else {
            instruction = now.other;
          }
          break;
        case Op::jump:
          instruction = now.next;
          break;
        case Op::look:
          good = !has_failed(instruction, at) && (run(instruction + 1, at) != kNone) != now.negated;
          instruction = now.next;
          break;
        case Op::match:
          choices_.resize(base);
          return at;
        default:
          good = holds(now.op, at);
          ++instruction;
      }
      if (!good && !go_back(base, instruction, at)) return kNone;
    }
  }

  bool run_of(const Instruction& now, uint32_t& instruction, size_t& at) {
    const size_t low = at;
    if (now.most == 1) {
      take(now.set, at);
      ++instruction;
      return true;
    }
    if (!failed_.empty()) {  // one character at a time, so that each place is a state
      if (has_failed(instruction, at)) return false;
      if (take(now.set, at)) {
        if (now.op == Op::run) choices_.push_back({instruction + 1, false, low, low});
      } else {
        ++instruction;
      }
      return true;
    }
    while (take(now.set, at)) {
    }
    count(at - low);
    if (now.op == Op::run && at > low && program_[instruction + 1].op != Op::match)
      choices_.push_back({instruction + 1, false, low, before(at)});
    ++instruction;
    return true;
  }

  // To the latest alternative. False: there is none.
  bool go_back(size_t base, uint32_t& instruction, size_t& at) {
    while (choices_.size() > base) {
      Choice& choice = choices_.back();
      if (choice.is_mark) {
        failed_[state(choice.instruction, choice.at)] = true;
        choices_.pop_back();
        continue;
      }
      instruction = choice.instruction;
      at = choice.at;
      if (choice.at > choice.low)
        choice.at = before(choice.at);
      else
        choices_.pop_back();
      return true;
    }
    return false;
  }

  const Instruction* program_;
  const size_t instructions_;
  const CodePointTable* sets_;
  const std::string_view text_;
  std::vector<Choice>& choices_;
  std::vector<bool> failed_;
  uint64_t steps_ = 0;
};

Pattern::Pattern(std::string_view expression, std::string_view label) {
  PatternCompiler(*this, label).compile(parse_pattern(expression, label));
}

Pattern Pattern::of_runs(const std::vector<CodePointSet>& sets, bool repeated) {
  PatternNode choice;
  choice.kind = PatternNode::Kind::choice;
  for (const CodePointSet& set : sets) {
    PatternNode& run = choice.parts.emplace_back();
    run.kind = PatternNode::Kind::repeat;
    run.high = repeated ? PatternNode::kUnbounded : 1;
    run.parts.emplace_back().kind = PatternNode::Kind::set;
    run.parts.back().set = set;
  }
  Pattern pattern;
  PatternCompiler(pattern, {}).compile(choice);
  return pattern;
}

Pattern Pattern::of_text(std::string_view text) {
  PatternNode node;
  for (const char32_t c : to_code_points(text)) {
    node.parts.emplace_back().kind = PatternNode::Kind::set;
    node.parts.back().set = {{c, c}};
  }
  Pattern pattern;
  PatternCompiler(pattern, "a text").compile(node);
  return pattern;
}

void Pattern::find_all(std::string_view text, std::vector<Match>& matches) const {
  matches.clear();
  thread_local std::vector<PatternMatcher::Choice> choices;
  PatternMatcher matcher(*this, text, choices);
  for (size_t at = 0; at < text.size();) {
    const size_t end = matcher.match(at);
    if (end != PatternMatcher::kNone) {
      const bool repeats = end == at && !matches.empty() && matches.back().end == at;
      if (!repeats) matches.push_back({at, end});
    }
    if (end != PatternMatcher::kNone && end > at)
      at = end;
    else
      do ++at;
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  }
}

}  // namespace trafo
