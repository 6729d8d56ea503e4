// Words of the demo's German-English grammar, with the forms that agreement needs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace demo {

enum class Gender { masculine, feminine, neuter };
enum class Case { nominative, accusative, dative };

// Classes of nouns, and of the objects of verbs: bits.
enum NounClass : uint32_t {
  kPerson = 1,
  kReadable = 2,
  kEdible = 4,
  kThing = 8,  // everything that can be bought and carried
  kAnimal = 16,
};

struct Noun {
  Gender gender;
  const char* nominative;
  const char* oblique;  // accusative and dative singular (weak nouns take -n)
  const char* plural;
  const char* plural_dative;
  const char* english;
  const char* english_plural;
  uint32_t classes;
};

struct Adjective {
  const char* stem;       // before an ending
  const char* predicate;  // alone
  const char* comparative;
  const char* english;
  const char* english_comparative;  // "" where the demo does not compare
  uint32_t classes;
};

enum class Objects { none, accusative, dative, dative_accusative };

struct Verb {
  const char* prefix;      // separable, "" if none
  const char* infinitive;  // without the prefix
  const char* ich;
  const char* du;
  const char* er;
  const char* ihr;
  const char* participle;  // with the prefix
  bool with_sein;          // the perfect is formed with "sein"
  const char* english;
  const char* english_third;
  const char* english_past;
  Objects objects;
  uint32_t classes;  // of the accusative object
};

struct Auxiliary {
  const char* forms[6];  // ich du er wir ihr sie
};

// `third` and `plain` stand before the infinitive; English questions and negations need `helper`.
struct Modal {
  Auxiliary german;
  const char* third;         // "wants to"
  const char* plain;         // "want to"
  const char* helper;        // "" : do-support with `plain`
  const char* after_helper;  // "like to" of "would like to"
  const char* negative;      // "cannot"; "" : by do-support
};

// Clock, calendar and adverbs say which tenses they go with.
enum class Time { any, past, not_past };

struct Adverb {
  const char* german;
  const char* english;
  Time time;
};

std::span<const Noun> nouns();
std::span<const Adjective> adjectives();
std::span<const Verb> verbs();
std::span<const Modal> modals();
std::span<const Adverb> time_adverbs();
std::span<const Adverb> places();
extern const Auxiliary kHaben, kSein, kWerden, kWar;

// 1 to 9999. "dreiundzwanzig", "twenty-three".
std::string german_number(int number);
std::string english_number(int number);
// 1 to 31, German without its ending: "dritt", "einundzwanzigst"; "third", "twenty-first".
std::string german_ordinal_stem(int number);
std::string english_ordinal(int number);

struct NamePair {
  const char* german;
  const char* english;
};
std::span<const NamePair> months();
std::span<const NamePair> weekdays();

}  // namespace demo
