#include "engine/metrics/registry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/support/errors.h"

namespace trafo {
namespace {

TEST(MetricRegistry, EveryMetricHasANameABitAndWhatItNeeds) {
  std::set<std::string> names;
  int32_t bits = 0;
  for (const Metric& metric : metrics()) {
    EXPECT_TRUE(names.insert(metric.name).second) << metric.name;
    EXPECT_EQ(bits & metric.bit, 0) << metric.name;
    bits |= metric.bit;
    EXPECT_EQ(metric.score != nullptr, metric.needs_translations()) << metric.name;
    EXPECT_EQ(find_metric(metric.name), &metric);
    EXPECT_NE(known_metrics().find(metric.name), std::string::npos);
  }
  EXPECT_EQ(find_metric("rouge"), nullptr);
  expect_error(ErrorCode::invalid_argument,
               "unknown metric 'rouge', known are bleu, chrf, ter, ce-mean-words, "
               "reward-accuracy, reward-margin and accuracy",
               [] { metric_named("rouge", "test"); });
}

// A wrong direction, or a score of other columns, is seen here.
TEST(MetricRegistry, AGoodTranslationIsBetterThanABadOneByEveryMetric) {
  const std::vector<std::string> references{"the old man reads the paper in the morning"};
  const std::vector<std::string> good{"the old man reads a paper in the morning"};
  const std::vector<std::string> bad{"one dog runs there"};
  const std::span<const std::string> set = references;
  for (const Metric& metric : metrics()) {
    if (!metric.needs_translations()) continue;
    const double better = metric.score(good, {&set, 1}, 1), worse = metric.score(bad, {&set, 1}, 1);
    EXPECT_TRUE(is_better(metric, better, worse)) << metric.name << " " << better << " " << worse;
    EXPECT_FALSE(is_better(metric, worse, better)) << metric.name;
    EXPECT_FALSE(is_better(metric, better, better)) << metric.name;
  }
  const Metric& loss = metric_named("ce-mean-words", "test");
  EXPECT_TRUE(is_better(loss, 1, 2.0));
  EXPECT_FALSE(is_better(loss, 2, 1.0));
}

TEST(MetricRegistry, NumbersThatAreNotFiniteAreNeverBetter) {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  for (const Metric& metric : metrics()) {
    for (const double value : {nan, infinity, -infinity}) {
      EXPECT_FALSE(is_better(metric, value, std::nullopt)) << metric.name << value;
      EXPECT_FALSE(is_better(metric, value, 1.0)) << metric.name << value;
      EXPECT_TRUE(is_better(metric, 1.0, value)) << metric.name << value;
    }
    EXPECT_TRUE(is_better(metric, 0.0, std::nullopt)) << metric.name;
  }
}

}  // namespace
}  // namespace trafo
