#include "engine/metrics/ter.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/core/status.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

using Lines = std::vector<std::string>;

double ter(const Lines& hypotheses, const Lines& references, int threads = 1) {
  const std::span<const std::string> set = references;
  return corpus_ter(hypotheses, {&set, 1}, threads).score;
}

TEST(Ter, EqualsSacreBleu) {
  // Written by tests/golden/metrics/make_metrics_golden.py with sacreBLEU.
  std::ifstream file(TRAFO_GOLDEN_METRICS);
  const auto cases = nlohmann::json::parse(file);
  ASSERT_GE(cases.size(), 20u);
  for (const auto& c : cases) {
    const Lines hypotheses = c["hypotheses"], references = c["references"];
    EXPECT_NEAR(ter(hypotheses, references), c["ter"].get<double>(), 1e-9) << c["name"];
    const Lines more = c["more_references"];
    const std::span<const std::string> both[] = {references, more};
    EXPECT_NEAR(corpus_ter(hypotheses, both).score, c["ter_two_references"].get<double>(), 1e-9)
        << c["name"];
  }
}

TEST(Ter, CountsByHand) {
  // One substitution, and one insertion: two edits for eight words.
  EXPECT_DOUBLE_EQ(ter({"a b c d", "a b c"}, {"a X c d", "a b c e"}), 100 * 2.0 / 8);
  // A shift of three words is one edit.
  EXPECT_DOUBLE_EQ(ter({"d e f a b c"}, {"a b c d e f"}), 100 * 1.0 / 6);
  // Case does not count, and an empty reference makes every word an edit.
  EXPECT_DOUBLE_EQ(ter({"A B", "x y"}, {"a b", ""}), 100 * 2.0 / 2);
  EXPECT_DOUBLE_EQ(ter({""}, {""}), 0);
  EXPECT_DOUBLE_EQ(ter({"x"}, {""}), 100);
}

// As sacreBLEU: positions are compared up to 25 words apart, so the 70 words that the sides share
// do not count.
TEST(Ter, WordsFarApartDoNotMatch) {
  const auto words = [](const std::string& name, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += concat(i > 0 ? " " : "", name, i);
    return text;
  };
  const std::string shared = words("w", 70), front = words("u", 30), back = words("z", 30);
  EXPECT_DOUBLE_EQ(ter({shared + " " + back}, {front + " " + shared}), 100);
  EXPECT_DOUBLE_EQ(ter({front + " " + shared}, {shared + " " + back}), 100);
  EXPECT_DOUBLE_EQ(ter({shared}, {front + " " + shared}), 40);
}

TEST(Ter, DoesNotDependOnTheThreads) {
  Lines hypotheses, references;
  for (int i = 0; i < 333; ++i) {
    hypotheses.push_back(concat("a word ", i % 7, " and another"));
    references.push_back(concat("and another a word ", i % 5));
  }
  const double one = ter(hypotheses, references);
  EXPECT_GT(one, 10);
  EXPECT_EQ(ter(hypotheses, references, 4), one);
}

TEST(Ter, WantsAsManyReferencesAsHypotheses) {
  expect_error(ErrorCode::invalid_argument, "1 hypotheses and 2 references", [] {
    ter({"a"}, {"a", "b"});
  });
  expect_error(ErrorCode::invalid_argument, "no hypotheses", [] { ter({}, {}); });
}

}  // namespace
}  // namespace trafo
