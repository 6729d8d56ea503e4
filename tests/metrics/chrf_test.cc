#include "engine/metrics/chrf.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/core/status.h"

namespace trafo {
namespace {

using Lines = std::vector<std::string>;

TEST(Chrf, EqualsSacreBleu) {
  // Written by tests/golden/metrics/make_metrics_golden.py with sacreBLEU.
  std::ifstream file(TRAFO_GOLDEN_METRICS);
  const auto cases = nlohmann::json::parse(file);
  ASSERT_GE(cases.size(), 20u);
  for (const auto& c : cases) {
    const Lines hypotheses = c["hypotheses"], references = c["references"];
    EXPECT_NEAR(corpus_chrf(hypotheses, references).score, c["chrf"].get<double>(), 1e-9)
        << c["name"];
    EXPECT_NEAR(corpus_chrf(hypotheses, references, {.lowercase = true}).score,
                c["chrf_lowercase"].get<double>(), 1e-9)
        << c["name"];
    const Lines more = c["more_references"];
    const std::span<const std::string> both[] = {references, more};
    EXPECT_NEAR(corpus_chrf(hypotheses, both).score, c["chrf_two_references"].get<double>(), 1e-9)
        << c["name"];
  }
}

TEST(Chrf, CountsByHand) {
  const Lines hypothesis{"a b"}, reference{"abc"};
  const ChrfScore chrf = corpus_chrf(hypothesis, reference);
  EXPECT_EQ(chrf.matches, (std::array<int64_t, 6>{2, 1, 0, 0, 0, 0}));
  EXPECT_EQ(chrf.hypothesis_totals, (std::array<int64_t, 6>{2, 1, 0, 0, 0, 0}));
  EXPECT_EQ(chrf.reference_totals, (std::array<int64_t, 6>{3, 2, 1, 0, 0, 0}));
  // Two orders occur on both sides: precision 1, recall (2/3 + 1/2) / 2.
  const double recall = (2.0 / 3 + 1.0 / 2) / 2;
  EXPECT_NEAR(chrf.score, 100 * 5 * recall / (4 + recall), 1e-12);
}

TEST(Chrf, DoesNotDependOnTheThreads) {
  std::vector<std::string> hypotheses, references;
  for (int i = 0; i < 333; ++i) {
    hypotheses.push_back(concat("a word ", i % 7, " and another"));
    references.push_back(concat("a word and another ", i % 5));
  }
  const ChrfScore one = corpus_chrf(hypotheses, references);
  const ChrfScore four = corpus_chrf(hypotheses, references, {}, 4);
  EXPECT_GT(one.score, 10);
  EXPECT_EQ(four.score, one.score);
  EXPECT_EQ(four.matches, one.matches);
  EXPECT_EQ(four.hypothesis_totals, one.hypothesis_totals);
}

TEST(Chrf, SignatureAndBadInput) {
  const Lines one{"a"}, two{"a", "b"}, none;
  EXPECT_EQ(corpus_chrf(one, one).signature(),
            "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|trafo:0.1.0");
  EXPECT_EQ(corpus_chrf(one, one, {.lowercase = true}).signature(),
            "nrefs:1|case:lc|eff:yes|nc:6|nw:0|space:no|trafo:0.1.0");
  EXPECT_EQ(corpus_chrf(one, one).score, 100);
  EXPECT_THROW(corpus_chrf(one, two), Error);
  EXPECT_THROW(corpus_chrf(none, none), Error);
}

}  // namespace
}  // namespace trafo
