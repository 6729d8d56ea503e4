#include "grammar.h"

#include <string_view>
#include <vector>

namespace demo {
namespace {

enum class Determiner { definite, indefinite, possessive, demonstrative, number };

// Endings of "ein", "mein", "kein" in the singular, by gender and case.
constexpr const char* kEinEndings[3][3] = {{"", "en", "em"}, {"e", "e", "er"}, {"", "", "em"}};
constexpr const char* kDefinite[3][3] = {
    {"der", "den", "dem"}, {"die", "die", "der"}, {"das", "das", "dem"}};
constexpr const char* kDefinitePlural[3] = {"die", "die", "den"};
constexpr const char* kDieserEndings[3][3] = {
    {"er", "en", "em"}, {"e", "e", "er"}, {"es", "es", "em"}};
constexpr const char* kPluralEndings[3] = {"e", "e", "en"};
// Adjectives: weak after "der" and "dieser", mixed after "ein" and "mein", strong after numbers.
constexpr const char* kWeak[3][3] = {{"e", "en", "en"}, {"e", "e", "en"}, {"e", "e", "en"}};
constexpr const char* kMixed[3][3] = {{"er", "en", "en"}, {"e", "e", "en"}, {"es", "es", "en"}};

struct Possessive {
  const char* german;
  const char* english;
};
constexpr Possessive kPossessives[] = {
    {"mein", "my"}, {"dein", "your"}, {"sein", "his"}, {"unser", "our"}};

struct Pronoun {
  Person person;
  const char* nominative;
  const char* dative;  // "": not used as an object
  const char* accusative;
  const char* english;
  const char* english_object;
};
constexpr Pronoun kPronouns[] = {
    {Person::ich, "ich", "mir", "mich", "I", "me"}, {Person::du, "du", "", "", "you", "you"},
    {Person::er, "er", "ihm", "ihn", "he", "him"},  {Person::er, "sie", "", "", "she", "her"},
    {Person::wir, "wir", "uns", "uns", "we", "us"}, {Person::ihr, "ihr", "", "", "you", "you"},
    {Person::sie, "sie", "", "", "they", "them"},
};

bool starts_with_vowel(std::string_view word) {
  return !word.empty() && std::string_view("aeiou").find(word[0]) != std::string_view::npos;
}

std::string article(const std::string& following) {
  return (starts_with_vowel(following) ? "an " : "a ") + following;
}

// "müde" + "e": the stem's own e is not doubled.
std::string inflect(const std::string& stem, const char* ending) {
  if (!stem.empty() && stem.back() == 'e' && ending[0] == 'e') return stem + (ending + 1);
  return stem + ending;
}

const Adjective* pick_adjective(Random& random, uint32_t classes) {
  std::vector<const Adjective*> fitting;
  for (const Adjective& adjective : adjectives())
    if ((adjective.classes & classes) != 0) fitting.push_back(&adjective);
  if (fitting.empty()) return nullptr;
  return fitting[static_cast<size_t>(random.below(static_cast<int>(fitting.size())))];
}

NounPhrase pronoun_phrase(const Pronoun& pronoun) {
  NounPhrase phrase;
  phrase.german[0] = pronoun.nominative;
  phrase.german[1] = pronoun.accusative;
  phrase.german[2] = pronoun.dative;
  phrase.english = pronoun.english;
  phrase.english_object = pronoun.english_object;
  phrase.person = pronoun.person;
  phrase.classes = kPerson;
  phrase.pronoun = true;
  return phrase;
}

NounPhrase object_pronoun(Random& random) {
  while (true) {
    const Pronoun& pronoun = random.pick(std::span<const Pronoun>(kPronouns));
    if (pronoun.dative[0] != 0) return pronoun_phrase(pronoun);
  }
}

const char* form(const Auxiliary& auxiliary, Person person) {
  return auxiliary.forms[static_cast<int>(person)];
}

std::string present(const Verb& verb, Person person) {
  switch (person) {
    case Person::ich:
      return verb.ich;
    case Person::du:
      return verb.du;
    case Person::er:
      return verb.er;
    case Person::ihr:
      return verb.ihr;
    default:
      return verb.infinitive;
  }
}

std::string finite(const Clause& clause) {
  const Person person = clause.subject.person;
  switch (clause.tense) {
    case Tense::present:
      return present(*clause.verb, person);
    case Tense::perfect:
      return form(clause.verb->with_sein ? kSein : kHaben, person);
    case Tense::future:
      return form(kWerden, person);
    default:
      return form(clause.modal->german, person);
  }
}

// The words at the end of a main clause.
std::string closing(const Clause& clause) {
  const Verb& verb = *clause.verb;
  if (clause.tense == Tense::present) return verb.prefix;
  if (clause.tense == Tense::perfect) return verb.participle;
  return std::string(verb.prefix) + verb.infinitive;
}

// Everything between the verbs but the subject. "nicht" follows definite objects and comes before
// the place; an indefinite object takes "kein" instead.
std::string middle(const Clause& clause, bool with_time, std::optional<Case> gap) {
  std::string dative, accusative, negation = clause.negated ? "nicht" : "";
  if (clause.dative && gap != Case::dative) dative = clause.dative->in(Case::dative);
  if (clause.accusative && gap != Case::accusative) {
    accusative = clause.accusative->in(Case::accusative);
    if (clause.negated && clause.accusative->indefinite_singular) {
      accusative = "k" + accusative;  // ein, eine, einen
      negation.clear();
    }
  }
  const std::string time = with_time ? clause.time_german : "";
  // Pronouns come first in the middle field.
  if (clause.dative && clause.dative->pronoun)
    return join(dative, time, accusative, negation, clause.place_german);
  if (clause.accusative && clause.accusative->pronoun)
    return join(accusative, time, dative, negation, clause.place_german);
  return join(time, dative, accusative, negation, clause.place_german);
}

bool third_singular(const NounPhrase& subject) {
  return subject.person == Person::er;
}

std::string english_verb(const Clause& clause) {
  const Verb& verb = *clause.verb;
  const bool third = third_singular(clause.subject);
  const bool no = clause.negated;
  switch (clause.tense) {
    case Tense::present:
      if (no)
        return join(std::string(third ? "does" : "do"), std::string("not"),
                    std::string(verb.english));
      return third ? verb.english_third : verb.english;
    case Tense::perfect:
      return no ? std::string("did not ") + verb.english : verb.english_past;
    case Tense::future:
      return std::string(no ? "will not " : "will ") + verb.english;
    default:
      break;
  }
  const Modal& modal = *clause.modal;
  if (!no) return std::string(third ? modal.third : modal.plain) + " " + verb.english;
  if (modal.negative[0] != 0) return std::string(modal.negative) + " " + verb.english;
  return std::string(third ? "does not " : "do not ") + modal.plain + " " + verb.english;
}

std::string english_objects(const Clause& clause, std::optional<Case> gap) {
  std::string dative, accusative;
  if (clause.dative && gap != Case::dative) dative = clause.dative->english_object;
  if (clause.accusative && gap != Case::accusative) accusative = clause.accusative->english_object;
  return join(dative, accusative);
}

std::string english_rest(const Clause& clause, std::optional<Case> gap, bool with_time) {
  return join(english_objects(clause, gap), clause.place_english,
              with_time ? clause.time_english : "");
}

}  // namespace

uint64_t Random::next() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

int Random::below(int bound) {
  return static_cast<int>(((next() >> 32) * static_cast<uint64_t>(bound)) >> 32);
}

int Random::between(int low, int high) {
  return low + below(high - low + 1);
}

NounPhrase make_noun_phrase(Random& random, uint32_t classes, PhraseOptions options) {
  std::vector<const Noun*> fitting;
  for (const Noun& noun : nouns())
    if ((noun.classes & classes) != 0) fitting.push_back(&noun);
  const Noun& noun = *fitting[static_cast<size_t>(random.below(static_cast<int>(fitting.size())))];
  const bool plural = random.chance(25);
  const int roll = random.below(100);
  Determiner determiner = roll < 45   ? Determiner::definite
                          : roll < 70 ? Determiner::indefinite
                          : roll < 90 ? Determiner::possessive
                                      : Determiner::demonstrative;
  if (options.only_indefinite) determiner = Determiner::indefinite;
  if (determiner == Determiner::indefinite) {
    if (!options.indefinite)
      determiner = Determiner::definite;
    else if (plural)
      determiner = Determiner::number;
  }
  const Adjective* adjective =
      options.adjectives && random.chance(35) ? pick_adjective(random, noun.classes) : nullptr;
  const Possessive& owner = random.pick(std::span<const Possessive>(kPossessives));
  const int count = random.chance(70) ? random.between(2, 12) : random.between(22, 99);
  const int number = count % 10 == 1 && count > 20 ? count + 1 : count;

  const int g = static_cast<int>(noun.gender);
  NounPhrase phrase;
  phrase.gender = noun.gender;
  phrase.person = plural ? Person::sie : Person::er;
  phrase.classes = noun.classes;
  phrase.indefinite_singular = determiner == Determiner::indefinite;
  for (int c = 0; c < 3; ++c) {
    std::string word, ending;
    switch (determiner) {
      case Determiner::definite:
        word = plural ? kDefinitePlural[c] : kDefinite[g][c];
        ending = plural ? "en" : kWeak[g][c];
        break;
      case Determiner::demonstrative:
        word = std::string("dies") + (plural ? kPluralEndings[c] : kDieserEndings[g][c]);
        ending = plural ? "en" : kWeak[g][c];
        break;
      case Determiner::indefinite:
        word = std::string("ein") + kEinEndings[g][c];
        ending = kMixed[g][c];
        break;
      case Determiner::possessive:
        word = std::string(owner.german) + (plural ? kPluralEndings[c] : kEinEndings[g][c]);
        ending = plural ? "en" : kMixed[g][c];
        break;
      case Determiner::number:
        word = german_number(number);
        ending = kPluralEndings[c];
        break;
    }
    const char* head = plural ? (c == 2 ? noun.plural_dative : noun.plural)
                              : (c == 0 ? noun.nominative : noun.oblique);
    phrase.german[c] =
        join(word, adjective ? inflect(adjective->stem, ending.c_str()) : "", std::string(head));
  }
  const std::string rest = join(std::string(adjective ? adjective->english : ""),
                                std::string(plural ? noun.english_plural : noun.english));
  switch (determiner) {
    case Determiner::definite:
      phrase.english = "the " + rest;
      break;
    case Determiner::demonstrative:
      phrase.english = (plural ? "these " : "this ") + rest;
      break;
    case Determiner::indefinite:
      phrase.english = article(rest);
      break;
    case Determiner::possessive:
      phrase.english = std::string(owner.english) + " " + rest;
      break;
    case Determiner::number:
      phrase.english = english_number(number) + " " + rest;
      break;
  }
  phrase.english_object = phrase.english;
  return phrase;
}

NounPhrase make_subject(Random& random) {
  if (random.chance(35)) return pronoun_phrase(random.pick(std::span<const Pronoun>(kPronouns)));
  return make_noun_phrase(random, kPerson);
}

std::string relative_pronoun(const NounPhrase& head, Case c) {
  if (head.plural()) return c == Case::dative ? "denen" : "die";
  return kDefinite[static_cast<int>(head.gender)][static_cast<int>(c)];
}

Clause make_clause(Random& random, const NounPhrase& subject, ClauseOptions options) {
  Clause clause;
  clause.subject = subject;
  do {
    clause.verb = &random.pick(verbs());
  } while ((options.object_classes != 0 &&
            (clause.verb->objects != Objects::accusative ||
             (clause.verb->classes & options.object_classes) != options.object_classes)) ||
           (options.no_objects && clause.verb->objects != Objects::none));
  const int roll = random.below(100);
  clause.tense = options.tense ? *options.tense
                 : roll < 40   ? Tense::present
                 : roll < 72   ? Tense::perfect
                 : roll < 82   ? Tense::future
                               : Tense::modal;
  clause.modal = &random.pick(modals());
  const Objects objects = clause.verb->objects;
  if (objects == Objects::dative || objects == Objects::dative_accusative)
    clause.dative = random.chance(30) ? object_pronoun(random) : make_noun_phrase(random, kPerson);
  if (objects == Objects::accusative || objects == Objects::dative_accusative) {
    const bool person = (clause.verb->classes & kPerson) != 0;
    clause.accusative = person && random.chance(25)
                            ? object_pronoun(random)
                            : make_noun_phrase(random, clause.verb->classes);
  }
  // "ich ... mich" would need reflexive pronouns.
  for (auto* object : {&clause.dative, &clause.accusative})
    if (*object && (*object)->pronoun && subject.pronoun)
      *object = make_noun_phrase(random, kPerson);
  if (options.time && random.chance(45))
    make_time(random, clause.tense, clause.time_german, clause.time_english);
  if (options.place && random.chance(objects == Objects::none ? 60 : 20)) {
    const Adverb& place = random.pick(places());
    clause.place_german = place.german;
    clause.place_english = place.english;
  }
  clause.negated = options.negation && random.chance(15);
  return clause;
}

std::string german_verb_second(const Clause& clause, bool time_first) {
  const bool front = time_first && !clause.time_german.empty();
  if (front)
    return join(clause.time_german, finite(clause), clause.subject.in(Case::nominative),
                middle(clause, false, std::nullopt), closing(clause));
  return join(clause.subject.in(Case::nominative), finite(clause),
              middle(clause, true, std::nullopt), closing(clause));
}

std::string german_verb_first(const Clause& clause) {
  return join(finite(clause), clause.subject.in(Case::nominative),
              middle(clause, true, std::nullopt), closing(clause));
}

std::string german_verb_final(const Clause& clause, std::optional<Case> gap) {
  const std::string subject = gap == Case::nominative ? "" : clause.subject.in(Case::nominative);
  const std::string verbs = clause.tense == Tense::present
                                ? clause.verb->prefix + finite(clause)  // joined again
                                : join(closing(clause), finite(clause));
  return join(subject, middle(clause, true, gap), verbs);
}

std::string english_statement(const Clause& clause, bool time_first) {
  const bool front = time_first && !clause.time_english.empty();
  return join(front ? clause.time_english : "", clause.subject.english, english_verb(clause),
              english_rest(clause, std::nullopt, !front));
}

std::string english_question(const Clause& clause) {
  const Verb& verb = *clause.verb;
  const bool third = third_singular(clause.subject);
  std::string helper = third ? "does" : "do", main = verb.english;
  if (clause.tense == Tense::perfect) helper = "did";
  if (clause.tense == Tense::future) helper = "will";
  if (clause.tense == Tense::modal) {
    const Modal& modal = *clause.modal;
    if (modal.helper[0] != 0) {
      helper = modal.helper;
      main = join(std::string(modal.after_helper), main);
    } else {
      main = join(std::string(modal.plain), main);
    }
  }
  return join(helper, clause.subject.english, std::string(clause.negated ? "not" : ""), main,
              english_rest(clause, std::nullopt, true));
}

std::string english_relative(const Clause& clause, Case gap) {
  return join(gap == Case::nominative ? "" : clause.subject.english, english_verb(clause),
              english_rest(clause, gap, true));
}

std::string capitalized(std::string text) {
  if (text.empty()) return text;
  if (text[0] >= 'a' && text[0] <= 'z') {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  } else if (text.size() > 1 && text[0] == '\xC3' &&
             (text[1] == '\xA4' || text[1] == '\xB6' || text[1] == '\xBC')) {
    text[1] = static_cast<char>(text[1] - 0x20);  // ä ö ü
  }
  return text;
}

}  // namespace demo
