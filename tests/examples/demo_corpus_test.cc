#include "examples/demo/corpus.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "examples/demo/grammar.h"

namespace demo {
namespace {

TEST(DemoCorpus, SentencesAreDistinctAndTheHeldOutOnesAreNew) {
  const Corpus corpus = make_corpus(1, 12000, 500);
  ASSERT_EQ(corpus.train.size(), 12000u);
  ASSERT_EQ(corpus.held_out.size(), 500u);
  std::set<std::string> german, english;
  for (const Pair& pair : corpus.train) {
    EXPECT_TRUE(german.insert(pair.german).second) << pair.german;
    english.insert(pair.english);
  }
  for (const Pair& pair : corpus.held_out) {
    EXPECT_TRUE(german.insert(pair.german).second) << pair.german;
    EXPECT_FALSE(english.contains(pair.english)) << pair.english;
  }
}

TEST(DemoCorpus, TheSeedDecides) {
  const auto flat = [](const Corpus& corpus) {
    std::string text;
    for (const Pair& pair : corpus.train) text += pair.german + "\t" + pair.english + "\n";
    return text;
  };
  EXPECT_EQ(flat(make_corpus(7, 300, 20)), flat(make_corpus(7, 300, 20)));
  EXPECT_NE(flat(make_corpus(7, 300, 20)), flat(make_corpus(8, 300, 20)));
}

TEST(DemoCorpus, SentencesAreWellFormed) {
  for (const Pair& pair : make_corpus(3, 3000, 1).train) {
    for (const std::string* text : {&pair.german, &pair.english}) {
      const unsigned char first = static_cast<unsigned char>((*text)[0]);
      EXPECT_TRUE((first >= 'A' && first <= 'Z') || first == 0xC3) << *text;
      EXPECT_TRUE(text->back() == '.' || text->back() == '?') << *text;
      EXPECT_EQ(text->find("  "), std::string::npos) << *text;
      EXPECT_EQ(text->find('\t'), std::string::npos) << *text;
    }
    EXPECT_EQ(pair.german.back(), pair.english.back()) << pair.german;
    // a before consonants, an before vowels
    for (const char vowel : std::string("aeio"))
      EXPECT_EQ(pair.english.find(std::string(" a ") + vowel), std::string::npos) << pair.english;
  }
}

TEST(DemoGrammar, NounPhrasesAgree) {
  struct Forms {
    const char* accusative;
    const char* dative;
    const char* english;
  };
  const std::map<std::string, Forms> expected = {
      {"der alte Mann", {"den alten Mann", "dem alten Mann", "the old man"}},
      {"ein alter Mann", {"einen alten Mann", "einem alten Mann", "an old man"}},
      {"mein kluger Nachbar",
       {"meinen klugen Nachbarn", "meinem klugen Nachbarn", "my clever neighbour"}},
      {"die junge Frau", {"die junge Frau", "der jungen Frau", "the young woman"}},
      {"eine junge Frau", {"eine junge Frau", "einer jungen Frau", "a young woman"}},
      {"das kleine Kind", {"das kleine Kind", "dem kleinen Kind", "the small child"}},
      {"ein kleines Kind", {"ein kleines Kind", "einem kleinen Kind", "a small child"}},
      {"die alten Lehrer", {"die alten Lehrer", "den alten Lehrern", "the old teachers"}},
      {"unsere Kinder", {"unsere Kinder", "unseren Kindern", "our children"}},
      {"zwei junge Brüder", {"zwei junge Brüder", "zwei jungen Brüdern", "two young brothers"}},
      {"dieses Mädchen", {"dieses Mädchen", "diesem Mädchen", "this girl"}},
      {"diese Mädchen", {"diese Mädchen", "diesen Mädchen", "these girls"}},
  };
  std::set<std::string> found;
  Random random(5);
  for (int i = 0; i < 100000; ++i) {
    const NounPhrase phrase = make_noun_phrase(random, kPerson);
    const auto entry = expected.find(phrase.in(Case::nominative));
    if (entry == expected.end()) continue;
    found.insert(entry->first);
    EXPECT_EQ(phrase.in(Case::accusative), entry->second.accusative);
    EXPECT_EQ(phrase.in(Case::dative), entry->second.dative);
    EXPECT_EQ(phrase.english, entry->second.english);
  }
  EXPECT_EQ(found.size(), expected.size());
}

NounPhrase phrase(const char* nominative, const char* accusative, const char* english,
                  Person person) {
  NounPhrase result;
  result.german[0] = nominative;
  result.german[1] = accusative;
  result.english = result.english_object = english;
  result.person = person;
  return result;
}

const Verb& verb(const std::string& prefix, const std::string& infinitive) {
  for (const Verb& each : verbs())
    if (each.prefix == prefix && each.infinitive == infinitive) return each;
  throw std::runtime_error("no verb " + prefix + infinitive);
}

TEST(DemoGrammar, WordOrder) {
  Clause clause;
  clause.subject = phrase("du", "", "you", Person::du);
  clause.verb = &verb("ein", "laden");
  clause.accusative = phrase("der Mann", "den Mann", "the man", Person::er);
  clause.time_german = "heute";
  clause.time_english = "today";
  EXPECT_EQ(german_verb_second(clause, false), "du lädst heute den Mann ein");
  EXPECT_EQ(german_verb_second(clause, true), "heute lädst du den Mann ein");
  EXPECT_EQ(german_verb_first(clause), "lädst du heute den Mann ein");
  EXPECT_EQ(german_verb_final(clause), "du heute den Mann einlädst");
  EXPECT_EQ(english_statement(clause, true), "today you invite the man");
  EXPECT_EQ(english_question(clause), "do you invite the man today");
  clause.tense = Tense::perfect;
  EXPECT_EQ(german_verb_second(clause, true), "heute hast du den Mann eingeladen");
  EXPECT_EQ(german_verb_final(clause), "du heute den Mann eingeladen hast");
  EXPECT_EQ(english_statement(clause, false), "you invited the man today");
  clause.tense = Tense::future;
  clause.negated = true;
  EXPECT_EQ(german_verb_second(clause, false), "du wirst heute den Mann nicht einladen");
  EXPECT_EQ(english_statement(clause, false), "you will not invite the man today");
  clause.tense = Tense::modal;
  clause.modal = &modals()[1];
  EXPECT_EQ(german_verb_final(clause), "du heute den Mann nicht einladen musst");
  EXPECT_EQ(english_statement(clause, false), "you do not have to invite the man today");
  clause.accusative = phrase("ein Mann", "einen Mann", "a man", Person::er);
  clause.accusative->indefinite_singular = true;
  clause.tense = Tense::present;
  EXPECT_EQ(german_verb_second(clause, false), "du lädst heute keinen Mann ein");

  Clause moving;
  moving.subject = phrase("wir", "", "we", Person::wir);
  moving.verb = &verb("an", "kommen");
  moving.tense = Tense::perfect;
  EXPECT_EQ(german_verb_second(moving, false), "wir sind angekommen");
}

TEST(DemoGrammar, Numbers) {
  EXPECT_EQ(german_number(7), "sieben");
  EXPECT_EQ(german_number(16), "sechzehn");
  EXPECT_EQ(german_number(23), "dreiundzwanzig");
  EXPECT_EQ(german_number(30), "dreißig");
  EXPECT_EQ(german_number(705), "siebenhundertfünf");
  EXPECT_EQ(german_number(3512), "dreitausendfünfhundertzwölf");
  EXPECT_EQ(english_number(23), "twenty-three");
  EXPECT_EQ(english_number(705), "seven hundred and five");
  EXPECT_EQ(english_number(3512), "three thousand five hundred and twelve");
  EXPECT_EQ(english_number(2040), "two thousand and forty");
  EXPECT_EQ(german_ordinal_stem(3), "dritt");
  EXPECT_EQ(german_ordinal_stem(19), "neunzehnt");
  EXPECT_EQ(german_ordinal_stem(31), "einunddreißigst");
  EXPECT_EQ(english_ordinal(12), "twelfth");
  EXPECT_EQ(english_ordinal(20), "twentieth");
  EXPECT_EQ(english_ordinal(31), "thirty-first");
}

}  // namespace
}  // namespace demo
