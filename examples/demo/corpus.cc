#include "corpus.h"

#include <unordered_set>

#include "grammar.h"

namespace demo {
namespace {

struct Conjunction {
  const char* german;
  const char* english;
};
constexpr Conjunction kSubordinating[] = {{"weil", "because"},
                                          {"obwohl", "although"},
                                          {"", "when"},  // wenn or als
                                          {"bevor", "before"},
                                          {"während", "while"}};

struct Opinion {
  const char* german;
  const char* english;
};
constexpr Opinion kOpinions[] = {{"ich glaube", "I believe"},
                                 {"wir wissen", "we know"},
                                 {"sie sagt", "she says"},
                                 {"er hofft", "he hopes"},
                                 {"mein Bruder denkt", "my brother thinks"},
                                 {"es ist gut", "it is good"},
                                 {"die Leute sagen", "people say"}};

struct QuestionWord {
  const char* german;
  const char* english;
};
constexpr QuestionWord kQuestionWords[] = {{"wann", "when"}, {"warum", "why"}, {"wo", "where"}};

struct Happening {
  const char* german;
  const char* english;
};
constexpr Happening kHappenings[] = {{"das Konzert", "the concert"}, {"der Film", "the film"},
                                     {"die Prüfung", "the exam"},    {"der Kurs", "the course"},
                                     {"das Spiel", "the game"},      {"die Sitzung", "the meeting"},
                                     {"die Reise", "the journey"}};
constexpr Happening kVehicles[] = {{"der Zug", "the train"},
                                   {"der Bus", "the bus"},
                                   {"das Schiff", "the ship"},
                                   {"die Straßenbahn", "the tram"}};

Pair sentence(const std::string& german, const std::string& english, char end) {
  return {capitalized(german) + end, capitalized(english) + end};
}

Pair statement(Random& random) {
  const Clause clause = make_clause(random, make_subject(random));
  const bool time_first = random.chance(45);
  return sentence(german_verb_second(clause, time_first), english_statement(clause, time_first),
                  '.');
}

Pair question(Random& random) {
  ClauseOptions options;
  options.negation = false;
  if (random.chance(50)) {
    const Clause clause = make_clause(random, make_subject(random), options);
    return sentence(german_verb_first(clause), english_question(clause), '?');
  }
  const QuestionWord& word = random.pick(std::span<const QuestionWord>(kQuestionWords));
  options.time = false;
  options.place = false;
  const Clause clause = make_clause(random, make_subject(random), options);
  return sentence(join(std::string(word.german), german_verb_first(clause)),
                  join(std::string(word.english), english_question(clause)), '?');
}

Pair subordinate(Random& random) {
  const Conjunction& conjunction = random.pick(std::span<const Conjunction>(kSubordinating));
  ClauseOptions options;
  options.tense = random.chance(50) ? Tense::present : Tense::perfect;
  options.place = false;
  ClauseOptions main_options = options;
  main_options.time = false;
  const Clause main = make_clause(random, make_subject(random), main_options);
  const Clause side = make_clause(random, make_subject(random), options);
  std::string word = conjunction.german;
  if (word.empty()) word = options.tense == Tense::perfect ? "als" : "wenn";
  const std::string german_side = join(word, german_verb_final(side));
  const std::string english_side =
      join(std::string(conjunction.english), english_statement(side, false));
  if (random.chance(40))
    return sentence(german_side + ", " + german_verb_first(main),
                    english_side + ", " + english_statement(main, false), '.');
  return sentence(german_verb_second(main, false) + ", " + german_side,
                  english_statement(main, false) + " " + english_side, '.');
}

Pair reported(Random& random) {
  const Opinion& opinion = random.pick(std::span<const Opinion>(kOpinions));
  const Clause clause = make_clause(random, make_subject(random));
  return sentence(std::string(opinion.german) + ", dass " + german_verb_final(clause),
                  std::string(opinion.english) + " that " + english_statement(clause, false), '.');
}

// "Das Buch, das der Mann gekauft hat, ist teuer." / "Die Frau, die ihm hilft, wartet im Park."
Pair relative(Random& random) {
  ClauseOptions inner;
  inner.negation = false;
  inner.place = false;
  if (random.chance(50)) {
    const NounPhrase head = make_noun_phrase(random, kPerson);
    const Clause side = make_clause(random, head, inner);
    ClauseOptions outer;
    outer.no_objects = true;
    outer.time = false;
    const Clause main = make_clause(random, head, outer);
    Clause rest = main;
    const std::string german_relative = ", " + relative_pronoun(head, Case::nominative) + " " +
                                        german_verb_final(side, Case::nominative) + ",";
    rest.subject.german[0] += german_relative;
    rest.subject.english += " who " + english_relative(side, Case::nominative);
    return sentence(german_verb_second(rest, false), english_statement(rest, false), '.');
  }
  const NounPhrase head = make_noun_phrase(random, kThing);
  inner.object_classes = kThing;
  const Clause side = make_clause(random, make_subject(random), inner);
  const Adjective* adjective;
  do {
    adjective = &random.pick(adjectives());
  } while ((adjective->classes & kThing) == 0);
  const bool past = random.chance(40);
  const Auxiliary& copula = past ? kWar : kSein;
  const std::string be = past ? (head.plural() ? "were" : "was") : (head.plural() ? "are" : "is");
  return sentence(head.in(Case::nominative) + ", " + relative_pronoun(head, Case::accusative) +
                      " " + german_verb_final(side, Case::accusative) + ", " +
                      copula.forms[static_cast<int>(head.person)] + " " + adjective->predicate,
                  head.english + " that " + english_relative(side, Case::accusative) + " " + be +
                      " " + adjective->english,
                  '.');
}

std::string be_form(const NounPhrase& subject, bool past) {
  const bool plural = subject.plural() || subject.person == Person::du;
  if (past) return plural ? "were" : "was";
  if (subject.person == Person::ich) return "am";
  return plural ? "are" : "is";
}

Pair description(Random& random) {
  const int kind = random.below(3);
  if (kind == 0) {  // comparison
    while (true) {
      const NounPhrase first = make_noun_phrase(random, kThing | kAnimal, {.adjectives = false});
      const NounPhrase second = make_noun_phrase(random, kThing | kAnimal, {.adjectives = false});
      const Adjective& adjective = random.pick(adjectives());
      if (adjective.english_comparative[0] == 0 || (adjective.classes & first.classes) == 0 ||
          (adjective.classes & second.classes) == 0 || first.english == second.english)
        continue;
      return sentence(
          join(first.in(Case::nominative), std::string(kSein.forms[static_cast<int>(first.person)]),
               std::string(adjective.comparative), std::string("als"), second.in(Case::nominative)),
          join(first.english, be_form(first, false), std::string(adjective.english_comparative),
               std::string("than"), second.english),
          '.');
    }
  }
  const NounPhrase subject = make_subject(random);
  const bool past = random.chance(40);
  const std::string copula = (past ? kWar : kSein).forms[static_cast<int>(subject.person)];
  if (kind == 1) {  // age
    int age = random.between(2, 99);
    return sentence(
        join(subject.in(Case::nominative), copula, german_number(age), std::string("Jahre alt")),
        join(subject.english, be_form(subject, past), english_number(age),
             std::string("years old")),
        '.');
  }
  const Adjective* adjective;
  do {
    adjective = &random.pick(adjectives());
  } while (adjective->classes != 0 && (adjective->classes & kPerson) == 0);
  std::string german_time, english_time;
  if (past && random.chance(60)) german_time = "gestern", english_time = "yesterday";
  const bool no = random.chance(25);
  return sentence(join(subject.in(Case::nominative), copula, german_time,
                       std::string(no ? "nicht" : ""), std::string(adjective->predicate)),
                  join(subject.english, be_form(subject, past), std::string(no ? "not" : ""),
                       std::string(adjective->english), english_time),
                  '.');
}

Pair price(Random& random) {
  const NounPhrase thing = make_noun_phrase(random, kThing, {.indefinite = false});
  const int roll = random.below(3);
  int euros = roll == 0   ? random.between(2, 20)
              : roll == 1 ? random.between(21, 999)
                          : random.between(1000, 9999);
  if (euros % 100 == 1) ++euros;
  const int cents = random.chance(50) ? random.between(2, 19) * 5 : 0;
  const std::string verb = thing.plural() ? "kosten" : "kostet";
  const std::string german_cents = cents > 0 ? "und " + german_number(cents) + " Cent" : "";
  const std::string english_cents = cents > 0 ? "and " + english_number(cents) + " cents" : "";
  return sentence(join(thing.in(Case::nominative), verb, german_number(euros), std::string("Euro"),
                       german_cents),
                  join(thing.english, std::string(thing.plural() ? "cost" : "costs"),
                       english_number(euros), std::string("euros"), english_cents),
                  '.');
}

Pair schedule(Random& random) {
  std::string german_date, english_date, german_clock, english_clock;
  make_date(random, german_date, english_date);
  make_clock(random, german_clock, english_clock);
  const int kind = random.below(4);
  if (kind == 0) {
    const Happening& event = random.pick(std::span<const Happening>(kHappenings));
    const bool date = random.chance(60);
    return sentence(join(std::string(event.german), std::string("beginnt"), date ? german_date : "",
                         german_clock),
                    join(std::string(event.english), std::string("begins"),
                         date ? english_date : "", english_clock),
                    '.');
  }
  if (kind == 1) {
    const Happening& event = random.pick(std::span<const Happening>(kHappenings));
    const Adverb& place = random.pick(places());
    return sentence(join(std::string(event.german), std::string("findet"), german_date,
                         std::string(place.german), std::string("statt")),
                    join(std::string(event.english), std::string("takes place"),
                         std::string(place.english), english_date),
                    '.');
  }
  if (kind == 2) {
    const Happening& vehicle = random.pick(std::span<const Happening>(kVehicles));
    const bool arrives = random.chance(50);
    return sentence(join(std::string(vehicle.german), std::string(arrives ? "kommt" : "fährt"),
                         german_date, german_clock, std::string(arrives ? "an" : "ab")),
                    join(std::string(vehicle.english), std::string(arrives ? "arrives" : "departs"),
                         english_date, english_clock),
                    '.');
  }
  const NamePair& weekday = random.pick(weekdays());
  const NamePair& month = random.pick(months());
  const int day = random.between(1, 31);
  return sentence(std::string("heute ist ") + weekday.german + ", der " + german_ordinal_stem(day) +
                      "e " + month.german,
                  std::string("today is ") + weekday.english + ", the " + english_ordinal(day) +
                      " of " + month.english,
                  '.');
}

Pair existence(Random& random) {
  const NounPhrase thing =
      make_noun_phrase(random, kThing | kAnimal, {.adjectives = true, .only_indefinite = true});
  const Adverb& place = random.pick(places());
  return sentence(
      join(std::string(place.german), std::string("gibt es"), thing.in(Case::accusative)),
      join(std::string(place.english), std::string(thing.plural() ? "there are" : "there is"),
           thing.english),
      '.');
}

Pair any_sentence(Random& random) {
  const int roll = random.below(100);
  if (roll < 32) return statement(random);
  if (roll < 44) return question(random);
  if (roll < 60) return subordinate(random);
  if (roll < 70) return reported(random);
  if (roll < 79) return relative(random);
  if (roll < 86) return description(random);
  if (roll < 91) return price(random);
  if (roll < 97) return schedule(random);
  return existence(random);
}

}  // namespace

void make_clock(Random& random, std::string& german, std::string& english) {
  const int hour = random.between(2, 12);
  const int previous = hour - 1;
  switch (random.below(6)) {
    case 0:
    case 1:
      german = "um " + german_number(hour) + " Uhr";
      english = "at " + english_number(hour) + " o'clock";
      break;
    case 2:  // "half four" is half past three
      german = "um halb " + german_number(hour);
      english = "at half past " + english_number(previous);
      break;
    case 3: {
      const bool past = random.chance(50);
      german = std::string("um Viertel ") + (past ? "nach " : "vor ") + german_number(hour);
      english = std::string("at a quarter ") + (past ? "past " : "to ") + english_number(hour);
      break;
    }
    default: {
      const bool past = random.chance(50);
      const int minutes = random.between(1, 4) * 5;
      const int shown = minutes == 15 ? 25 : minutes;
      german = "um " + german_number(shown) + (past ? " nach " : " vor ") + german_number(hour);
      english = "at " + english_number(shown) + (past ? " past " : " to ") + english_number(hour);
    }
  }
}

void make_date(Random& random, std::string& german, std::string& english) {
  const NamePair& weekday = random.pick(weekdays());
  const NamePair& month = random.pick(months());
  const int day = random.between(1, 31);
  switch (random.below(4)) {
    case 0:
      german = std::string("am ") + weekday.german;
      english = std::string("on ") + weekday.english;
      break;
    case 1:
      german = std::string("im ") + month.german;
      english = std::string("in ") + month.english;
      break;
    default:
      german = "am " + german_ordinal_stem(day) + "en " + month.german;
      english = "on the " + english_ordinal(day) + " of " + month.english;
  }
}

void make_time(Random& random, Tense tense, std::string& german, std::string& english) {
  const int roll = random.below(100);
  if (roll < 50) {
    while (true) {
      const Adverb& adverb = random.pick(time_adverbs());
      const bool past = tense == Tense::perfect;
      if ((adverb.time == Time::past && !past) || (adverb.time == Time::not_past && past)) continue;
      german = adverb.german;
      english = adverb.english;
      return;
    }
  }
  if (roll < 75) return make_date(random, german, english);
  if (roll < 92) return make_clock(random, german, english);
  const int count = random.between(2, 30);
  const int shown = count == 21 ? 22 : count;
  if (tense == Tense::perfect) {
    german = "vor " + german_number(shown) + " Tagen";
    english = english_number(shown) + " days ago";
  } else {
    german = "in " + german_number(shown) + " Wochen";
    english = "in " + english_number(shown) + " weeks";
  }
}

Corpus make_corpus(uint64_t seed, size_t train_pairs, size_t held_out_pairs) {
  Random random(seed);
  Corpus corpus;
  std::unordered_set<std::string> german, held_out_english;
  while (corpus.held_out.size() < held_out_pairs) {
    Pair pair = any_sentence(random);
    if (!german.insert(pair.german).second) continue;
    held_out_english.insert(pair.english);
    corpus.held_out.push_back(std::move(pair));
  }
  while (corpus.train.size() < train_pairs) {
    Pair pair = any_sentence(random);
    if (held_out_english.contains(pair.english) || !german.insert(pair.german).second) continue;
    corpus.train.push_back(std::move(pair));
  }
  return corpus;
}

}  // namespace demo
