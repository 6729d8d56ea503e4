#include "engine/metrics/bleu.h"

#include <gtest/gtest.h>

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
}

TEST(Bleu, RefusesDifferingCounts) {
  const Lines one{"a"}, two{"a", "b"}, none;
  EXPECT_THROW(corpus_bleu(one, two), Error);
  EXPECT_THROW(corpus_bleu(none, none), Error);
}

TEST(Lowercase, SpecialMappings) {
  EXPECT_EQ(lowercase_utf8("ÄÖÜ ẞ ŁÓDŹ Ⅷ"), "äöü ß łódź ⅷ");
  EXPECT_EQ(lowercase_utf8("ΟΔΟΣ ΟΔΟΣ. Σ ΣΑ"), "οδος οδος. σ σα");
  EXPECT_EQ(lowercase_utf8("İ"), "i\u0307");
  EXPECT_EQ(lowercase_utf8("already lower, 你好 😀"), "already lower, 你好 😀");
}

}  // namespace
}  // namespace trafo
