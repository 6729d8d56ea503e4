// Noun phrases and clauses of the demo, in German and English at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lexicon.h"

namespace demo {

// SplitMix64: the same sentences on every platform, which the standard distributions do not
// promise.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  int below(int bound);            // 0 <= x < bound
  int between(int low, int high);  // both included
  bool chance(int percent) { return below(100) < percent; }
  template <typename T>
  const T& pick(std::span<const T> items) {
    return items[static_cast<size_t>(below(static_cast<int>(items.size())))];
  }

 private:
  uint64_t state_;
};

// Index into a verb's or auxiliary's forms.
enum class Person { ich, du, er, wir, ihr, sie };

struct NounPhrase {
  std::string german[3];  // by Case
  std::string english;    // as a subject
  std::string english_object;
  Person person = Person::er;
  Gender gender = Gender::masculine;
  uint32_t classes = 0;
  bool indefinite_singular = false;  // "ein Apfel": negated with "kein"
  bool pronoun = false;

  const std::string& in(Case c) const { return german[static_cast<int>(c)]; }
  bool plural() const { return person >= Person::wir; }
};

struct PhraseOptions {
  bool adjectives = true;
  bool indefinite = true;
  bool only_indefinite = false;
};

NounPhrase make_noun_phrase(Random& random, uint32_t classes, PhraseOptions options = {});
// A person or a personal pronoun.
NounPhrase make_subject(Random& random);

// "der, den, dem, die ..."
std::string relative_pronoun(const NounPhrase& head, Case c);

enum class Tense { present, perfect, future, modal };

struct Clause {
  NounPhrase subject;
  const Verb* verb = nullptr;
  const Modal* modal = nullptr;
  Tense tense = Tense::present;
  std::optional<NounPhrase> dative, accusative;
  std::string time_german, time_english;
  std::string place_german, place_english;
  bool negated = false;
};

struct ClauseOptions {
  bool time = true;
  bool place = true;
  bool negation = true;
  std::optional<Tense> tense;
  uint32_t object_classes = 0;  // 0: any verb; else only verbs with an accusative object of them
  bool no_objects = false;
};

Clause make_clause(Random& random, const NounPhrase& subject, ClauseOptions options = {});
// A time of day, a date, a weekday or an adverb that goes with the tense.
void make_time(Random& random, Tense tense, std::string& german, std::string& english);
void make_clock(Random& random, std::string& german, std::string& english);
void make_date(Random& random, std::string& german, std::string& english);

// German word orders. Without final punctuation, first letter as it comes.
std::string german_verb_second(const Clause& clause, bool time_first);
std::string german_verb_first(const Clause& clause);  // questions, and after a fronted clause
// Without the subject or object that a relative pronoun has replaced, if `gap` is a case.
std::string german_verb_final(const Clause& clause, std::optional<Case> gap = std::nullopt);

std::string english_statement(const Clause& clause, bool time_first);
std::string english_question(const Clause& clause);
// The words after "who" or "that" when the subject (nominative) or the object is left out.
std::string english_relative(const Clause& clause, Case gap);

// Joins with single spaces, leaving out empty parts.
template <typename... Parts>
std::string join(const Parts&... parts) {
  std::string text;
  const auto add = [&](const std::string& part) {
    if (part.empty()) return;
    if (!text.empty()) text += ' ';
    text += part;
  };
  (add(parts), ...);
  return text;
}

// First letter of the sentence, German umlauts included.
std::string capitalized(std::string text);

}  // namespace demo
