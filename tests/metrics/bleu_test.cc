#include "engine/metrics/bleu.h"

#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/core/status.h"
#include "engine/metrics/lowercase.h"

namespace trafo {
namespace {

using Lines = std::vector<std::string>;

// Written by tests/golden/metrics/make_metrics_golden.py with sacreBLEU.
nlohmann::json golden_cases() {
  std::ifstream file(TRAFO_GOLDEN_METRICS);
  return nlohmann::json::parse(file);
}

void expect_equal(const BleuScore& got, const nlohmann::json& want, const std::string& name) {
  EXPECT_NEAR(got.score, want["score"].get<double>(), 1e-9) << name;
  EXPECT_NEAR(got.brevity_penalty, want["bp"].get<double>(), 1e-12) << name;
  EXPECT_EQ(got.hypothesis_length, want["hypothesis_length"].get<int64_t>()) << name;
  EXPECT_EQ(got.reference_length, want["reference_length"].get<int64_t>()) << name;
  EXPECT_EQ(got.matches, (want["matches"].get<std::array<int64_t, 4>>())) << name;
  EXPECT_EQ(got.totals, (want["totals"].get<std::array<int64_t, 4>>())) << name;
  for (size_t n = 0; n < 4; ++n)
    EXPECT_NEAR(got.precisions[n], want["precisions"][n].get<double>(), 1e-9) << name;
  EXPECT_EQ(got.text(), want["text"].get<std::string>()) << name;
}

TEST(Bleu, EqualsSacreBleu) {
  const auto cases = golden_cases();
  ASSERT_GE(cases.size(), 20u);
  for (const auto& c : cases) {
    const std::string name = c["name"];
    const Lines hypotheses = c["hypotheses"], references = c["references"];
    expect_equal(corpus_bleu(hypotheses, references), c["bleu"], name);
    BleuOptions lowercase;
    lowercase.lowercase = true;
    expect_equal(corpus_bleu(hypotheses, references, lowercase), c["bleu_lowercase"], name + " lc");
    BleuOptions none;
    none.tokenizer = BleuTokenizer::none;
    expect_equal(corpus_bleu(hypotheses, references, none), c["bleu_no_tokenizer"], name + " none");
    for (const auto tokenizer :
         {BleuTokenizer::zh, BleuTokenizer::intl, BleuTokenizer::character}) {
      BleuOptions other;
      other.tokenizer = tokenizer;
      const std::string key = std::string("bleu_") + enum_name(tokenizer);
      expect_equal(corpus_bleu(hypotheses, references, other), c[key], name + " " + key);
    }
    const Lines more = c["more_references"];
    const std::span<const std::string> both[] = {references, more};
    expect_equal(corpus_bleu(hypotheses, both), c["bleu_two_references"], name + " references");
    BleuOptions effective;
    effective.effective_order = true;
    expect_equal(corpus_bleu(hypotheses, references, effective), c["bleu_effective"],
                 name + " effective");
    BleuOptions unsmoothed;
    unsmoothed.smoothing = BleuSmoothing::none;
    expect_equal(corpus_bleu(hypotheses, references, unsmoothed), c["bleu_unsmoothed"],
                 name + " unsmoothed");
  }
}

TEST(Bleu, Tokenizer13a) {
  EXPECT_EQ(bleu_tokens("He paid $1,000.50, in 2020-21."),
            (Lines{"He", "paid", "$", "1,000.50", ",", "in", "2020", "-", "21", "."}));
  EXPECT_EQ(bleu_tokens("a well-known &quot;x&quot; &amp;lt; <skipped>y"),
            (Lines{"a", "well-known", "\"", "x", "\"", "<", "y"}));
  BleuOptions none;
  none.tokenizer = BleuTokenizer::none;
  EXPECT_EQ(bleu_tokens(" a,b \t c. ", none), (Lines{"a,b", "c."}));
}

// mteval-v13a separates all punctuation of ASCII but ' and -, and points only beside no digit.
TEST(Bleu, Tokenizer13aSeparatesEveryPunctuation) {
  for (char c = ' ' + 1; c < 0x7f; ++c) {
    const bool is_word = std::isalnum(static_cast<unsigned char>(c)) || c == '\'' || c == '-';
    const std::string whole{'a', c, 'b'};
    EXPECT_EQ(bleu_tokens(whole), is_word ? Lines{whole} : (Lines{"a", std::string(1, c), "b"}));
  }
}

TEST(Bleu, TokenizersForOtherScripts) {
  const auto tokens = [](BleuTokenizer tokenizer, const char* line) {
    BleuOptions options;
    options.tokenizer = tokenizer;
    return bleu_tokens(line, options);
  };
  EXPECT_EQ(tokens(BleuTokenizer::zh, " 我有3.5个GPU,对吗？"),
            (Lines{"我", "有", "3.5", "个", "GPU", ",", "对", "吗", "？"}));
  EXPECT_EQ(tokens(BleuTokenizer::intl, "«Oui», dit-il… 3,5 % (¥5)"),
            (Lines{"«", "Oui", "»", ",", "dit", "-", "il", "…", "3,5", "%", "(", "¥", "5)"}));
  EXPECT_EQ(tokens(BleuTokenizer::character, "ไป 京都"), (Lines{"ไ", "ป", "京", "都"}));
  // A point at the end of a line that a number precedes stays with it, as in mteval-v14.
  EXPECT_EQ(tokens(BleuTokenizer::intl, "in 2020."), (Lines{"in", "2020."}));
}

TEST(Bleu, SubwordsComeFromTheGivenFunction) {
  BleuOptions options;
  options.tokenizer = BleuTokenizer::flores200;
  EXPECT_THROW(bleu_tokens("ab", options), Error);
  options.subwords = [](std::string_view line) {
    return Lines{"_", std::string(line.substr(0, 1)), std::string(line.substr(1))};
  };
  options.subwords_checksum = "01234567";
  EXPECT_EQ(bleu_tokens("abc ", options), (Lines{"_", "a", "bc"}));
  const Lines one{"abc"};
  EXPECT_EQ(corpus_bleu(one, one, options).signature(),
            "nrefs:1|case:mixed|eff:no|tok:flores200|model:01234567|smooth:exp|trafo:0.1.0");
}

TEST(Bleu, ReferencesByHand) {
  // "a" occurs at most twice in one reference; of lengths 2 and 4, the smaller one is as near to 3.
  const Lines hypothesis{"a a a"}, first{"a b"}, second{"a a b c"};
  const std::span<const std::string> both[] = {first, second};
  const BleuScore bleu = corpus_bleu(hypothesis, both);
  EXPECT_EQ(bleu.matches, (std::array<int64_t, 4>{2, 1, 0, 0}));
  EXPECT_EQ(bleu.reference_length, 2);
  EXPECT_EQ(bleu.signature(), "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|trafo:0.1.0");
}

TEST(Bleu, SignatureNamesEveryChoice) {
  const Lines one{"a b c d"};
  EXPECT_EQ(corpus_bleu(one, one).signature(),
            "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|trafo:0.1.0");
  BleuOptions options;
  options.lowercase = options.effective_order = true;
  options.tokenizer = BleuTokenizer::none;
  options.smoothing = BleuSmoothing::none;
  EXPECT_EQ(corpus_bleu(one, one, options).signature(),
            "nrefs:1|case:lc|eff:yes|tok:none|smooth:none|trafo:0.1.0");
  EXPECT_EQ(corpus_bleu(one, one).signature("bs:10|seed:1"),
            "nrefs:1|bs:10|seed:1|case:mixed|eff:no|tok:13a|smooth:exp|trafo:0.1.0");
}

TEST(Bleu, DoesNotDependOnTheThreads) {
  Lines hypotheses, references, more;
  for (int i = 0; i < 333; ++i) {
    hypotheses.push_back(concat("the cat ", i % 7, " sat on the mat ", i % 5, "."));
    references.push_back(concat("the cat ", i % 3, " sat on a mat ", i % 4, "."));
    more.push_back(concat("a cat ", i % 6, " sits on the mat"));
  }
  const std::vector<std::span<const std::string>> sets{references, more};
  const BleuScore one = corpus_bleu(hypotheses, sets), four = corpus_bleu(hypotheses, sets, {}, 4);
  EXPECT_GT(one.score, 10);
  EXPECT_EQ(four.text(), one.text());
  EXPECT_EQ(four.score, one.score);
  EXPECT_EQ(four.matches, one.matches);
  BleuCounts sum;
  for (const BleuCounts& segment : bleu_counts(hypotheses, sets, {})) sum += segment;
  EXPECT_EQ(four.matches, sum.matches);
  EXPECT_EQ(four.reference_length, sum.reference_length);
}

TEST(Bleu, RefusesDifferingCounts) {
  const Lines one{"a"}, two{"a", "b"}, none;
  EXPECT_THROW(corpus_bleu(one, two), Error);
  EXPECT_THROW(corpus_bleu(none, none), Error);
  EXPECT_THROW(corpus_bleu(one, ReferenceSets{}), Error);
  const std::span<const std::string> uneven[] = {one, two};
  EXPECT_THROW(corpus_bleu(one, uneven), Error);
}

TEST(Lowercase, SpecialMappings) {
  EXPECT_EQ(lowercase_utf8("ÄÖÜ ẞ ŁÓDŹ Ⅷ"), "äöü ß łódź ⅷ");
  EXPECT_EQ(lowercase_utf8("ΟΔΟΣ ΟΔΟΣ. Σ ΣΑ"), "οδος οδος. σ σα");
  EXPECT_EQ(lowercase_utf8("Α.Σ Α.' .Σ"), "α.ς α.' .σ");  // what has no case is looked through
  EXPECT_EQ(lowercase_utf8("ßΣ ÷Σ aΣ ΣÞ"),
            "ßς ÷σ aς σþ");  // ß has no capital in the table, ÷ no case
  EXPECT_EQ(lowercase_utf8("İ"), "i\u0307");
  EXPECT_EQ(lowercase_utf8("already lower, 你好 😀"), "already lower, 你好 😀");
}

}  // namespace
}  // namespace trafo
