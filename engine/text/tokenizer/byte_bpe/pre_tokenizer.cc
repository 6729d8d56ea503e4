#include "engine/text/tokenizer/byte_bpe/pre_tokenizer.h"

#include <algorithm>

#include "engine/core/strings/utf8.h"
#include "engine/text/tokenizer/byte_bpe/byte_letters.h"
#include "engine/text/tokenizer/byte_bpe/pattern_part.h"
#include "engine/text/unicode/properties.h"

namespace trafo {
namespace {

constexpr std::string_view kPreTokenizerList = "pretokenizers";

using Span = Pattern::Match;

CodePointSet numbers() {
  return *category_set("N");
}

}  // namespace

bool PreTokenizer::is_byte_level(const JsonPart& part) {
  if (part.is_null()) return false;
  const std::vector<JsonPart> steps = part.steps(kPreTokenizerList);
  return std::any_of(steps.begin(), steps.end(),
                     [](const JsonPart& step) { return step.type() == "ByteLevel"; });
}

PreTokenizer::PreTokenizer(const JsonPart& part) {
  const bool has_bytes = is_byte_level(part);
  bool is_made = false;
  for (const JsonPart& step : part.steps(kPreTokenizerList)) {
    if (!has_bytes && step.type() == "Metaspace") {
      const bool is_first = steps_.empty();
      steps_.push_back(read_metaspace(step));
      // Another step may take the beginning of a text away, which then has no mark.
      if (marks_the_beginning() && !is_first)
        step.refuse("prepend_scheme first is not supported after another step");
      continue;
    }
    if (step.type() == "BertPreTokenizer") {
      if (has_bytes) step.refuse("it is not supported beside ByteLevel");
      add_bert_steps();
      continue;
    }
    if (is_made && !has_letters_) steps_.back().makes_letters = has_letters_ = true;
    if (step.type() == "ByteLevel") {
      if (is_made) step.refuse("a second ByteLevel is not supported");
      is_made = true;
    }
    steps_.push_back(read(step));
  }
}

// Words are cut at white space, and a punctuation mark is a word.
void PreTokenizer::add_bert_steps() {
  Step spaces, marks;
  spaces.pattern.emplace(Pattern::of_runs({white_space_set()}, false));
  spaces.behavior = Behavior::removed;
  marks.pattern.emplace(Pattern::of_runs({old_punctuation_set()}, false));
  steps_.push_back(std::move(spaces));
  steps_.push_back(std::move(marks));
}

PreTokenizer::Behavior PreTokenizer::read_behavior(const JsonPart& part) {
  static constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
      {"Removed", Behavior::removed},
      {"Isolated", Behavior::isolated},
      {"MergedWithPrevious", Behavior::merged_with_previous},
      {"MergedWithNext", Behavior::merged_with_next},
      {"Contiguous", Behavior::contiguous}};
  for (const auto& [name, behavior] : kBehaviors)
    if (part.text() == name) return behavior;
  part.check(false, quote(part.text()), " is no behavior");
  return Behavior::isolated;
}

bool PreTokenizer::marks_the_beginning() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return step.front == Front::beginning; });
}

PreTokenizer::Step PreTokenizer::read_metaspace(const JsonPart& part) {
  Step step;
  const JsonPart replacement = part.at("replacement");
  step.space = replacement.text();
  size_t end = 0;
  if (!step.space.empty()) next_code_point(step.space, end);
  replacement.check(end > 0 && end == step.space.size(), "it is not one character");
  const std::optional<JsonPart> scheme = part.find("prepend_scheme");
  const std::string name = scheme ? scheme->text() : "always";
  part.check(name == "first" || name == "always" || name == "never",
             "prepend_scheme: ", quote(name), " is not first, always or never");
  part.check(name == "never" || part.flag("add_prefix_space", true),
             "add_prefix_space: it is false, and prepend_scheme is not never");
  step.front = name == "first" ? Front::beginning : name == "always" ? Front::always : Front::none;
  if (part.flag("split", true)) step.pattern.emplace(Pattern::of_text(step.space));
  step.behavior = Behavior::merged_with_next;
  return step;
}

PreTokenizer::Step PreTokenizer::read(const JsonPart& part) {
  const std::string type = part.type();
  Step step;
  if (type == "Split") {
    step.pattern.emplace(read_pattern(part.at("pattern")));
    step.behavior = read_behavior(part.at("behavior"));
    step.invert = part.at("invert").flag();
  } else if (type == "ByteLevel") {
    step.prefix_space = part.at("add_prefix_space").flag();
    if (part.flag("use_regex", true)) step.pattern.emplace(kGpt2Pattern, part.path());
  } else if (type == "Digits") {
    step.pattern.emplace(Pattern::of_runs({numbers()}, false));
    step.behavior = part.at("individual_digits").flag() ? Behavior::isolated : Behavior::contiguous;
  } else if (type == "Punctuation") {
    step.pattern.emplace(Pattern::of_runs({old_punctuation_set()}, false));
    if (const auto behavior = part.find("behavior")) step.behavior = read_behavior(*behavior);
  } else if (type == "Whitespace") {
    const CodePointSet& word = rust_word_set();
    step.pattern.emplace(
        Pattern::of_runs({word, word.united(white_space_set()).complement()}, true));
    step.behavior = Behavior::removed;
    step.invert = true;
  } else if (type == "WhitespaceSplit") {
    step.pattern.emplace(Pattern::of_runs({white_space_set()}, false));
    step.behavior = Behavior::removed;
  } else {
    part.refuse(
        "type ", quote(type),
        " is not supported; Split, ByteLevel, Digits, Punctuation, Whitespace, WhitespaceSplit, "
        "Sequence and, without ByteLevel, Metaspace and BertPreTokenizer are");
  }
  return step;
}

void PreTokenizer::split(std::string_view text, Words& words, bool is_beginning) const {
  words.text = text;
  words.spans.clear();
  if (!text.empty()) words.spans.push_back({0, text.size()});
  for (const Step& step : steps_) {
    if (step.prefix_space) add_spaces(words);
    if (!step.space.empty()) mark_spaces(step, is_beginning, words);
    if (step.pattern) cut(step, words);
    if (step.makes_letters) make_letters(words);
  }
  if (has_letters_) make_bytes(words);
}

// Makes a new text of the words, each changed by a function.
template <class Change>
static void rewrite(PreTokenizer::Words& words, const Change& change) {
  std::string text;
  for (Span& span : words.spans) {
    const size_t begin = text.size();
    change(std::string_view(words.text).substr(span.begin, span.end - span.begin), text);
    span = {begin, text.size()};
  }
  words.text = std::move(text);
}

void PreTokenizer::add_spaces(Words& words) {
  rewrite(words, [](std::string_view word, std::string& text) {
    if (!word.starts_with(' ')) text += ' ';
    text += word;
  });
}

void PreTokenizer::mark_spaces(const Step& step, bool is_beginning, Words& words) {
  bool is_first = is_beginning;
  rewrite(words, [&](std::string_view word, std::string& text) {
    const bool is_marked = word.starts_with(' ') || word.starts_with(step.space);
    const bool marks = step.front == Front::always || (step.front == Front::beginning && is_first);
    if (marks && !is_marked) text += step.space;
    for (const char c : word) {
      if (c == ' ')
        text += step.space;
      else
        text += c;
    }
    is_first = false;
  });
}

void PreTokenizer::make_letters(Words& words) {
  rewrite(words, [](std::string_view word, std::string& text) { text += to_byte_letters(word); });
}

void PreTokenizer::make_bytes(Words& words) {
  rewrite(words, [](std::string_view word, std::string& text) {
    text += from_byte_letters(word).value();
  });
}

void PreTokenizer::cut(const Step& step, Words& words) {
  words.before.swap(words.spans);
  words.spans.clear();
  const bool backwards = step.behavior == Behavior::merged_with_next;
  for (const Span& whole : words.before) {
    step.pattern->find_all(
        std::string_view(words.text).substr(whole.begin, whole.end - whole.begin), words.matches);
    words.parts.clear();
    size_t from = whole.begin;
    for (const Span& match : words.matches) {
      const size_t begin = whole.begin + match.begin, end = whole.begin + match.end;
      if (begin > from) words.parts.push_back({{from, begin}, step.invert});
      words.parts.push_back({{begin, end}, !step.invert});
      from = end;
    }
    if (from < whole.end) words.parts.push_back({{from, whole.end}, step.invert});
    if (backwards) std::reverse(words.parts.begin(), words.parts.end());

    const size_t first = words.spans.size();
    bool was_match = false;
    for (const Words::Part& part : words.parts) {
      if (step.behavior == Behavior::removed && part.is_match) continue;
      const bool is_merged = part.is_match && !was_match &&
                             (step.behavior == Behavior::merged_with_previous || backwards);
      const bool joins =
          is_merged || (step.behavior == Behavior::contiguous && part.is_match == was_match);
      was_match = part.is_match;
      if (!joins || words.spans.size() == first)
        words.spans.push_back(part);
      else if (backwards)
        words.spans.back().begin = part.begin;
      else
        words.spans.back().end = part.end;
    }
    if (backwards)
      std::reverse(words.spans.begin() + static_cast<ptrdiff_t>(first), words.spans.end());
  }
  std::erase_if(words.spans, [](const Span& span) { return span.begin == span.end; });
}

}  // namespace trafo
