#include "engine/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/core/status.h"

namespace trafo {
namespace {

ScheduleOptions options(ScheduleKind kind, int64_t warmup, int64_t total = 0) {
  ScheduleOptions o;
  o.kind = kind;
  o.learning_rate = 0.8;
  o.warmup = warmup;
  o.total = total;
  return o;
}

TEST(Schedule, WarmsUpInAStraightLine) {
  for (const ScheduleKind kind : {ScheduleKind::constant, ScheduleKind::linear,
                                  ScheduleKind::cosine, ScheduleKind::inverse_sqrt}) {
    const Schedule rate(options(kind, 10, 100));
    EXPECT_DOUBLE_EQ(rate(1), 0.08);
    EXPECT_DOUBLE_EQ(rate(5), 0.4);
    EXPECT_DOUBLE_EQ(rate(10), 0.8) << enum_name(kind);
  }
}

TEST(Schedule, DecaysAsItsNameSays) {
  EXPECT_DOUBLE_EQ(Schedule(options(ScheduleKind::constant, 0))(1), 0.8);
  EXPECT_DOUBLE_EQ(Schedule(options(ScheduleKind::constant, 0))(1000000), 0.8);
  EXPECT_DOUBLE_EQ(Schedule(options(ScheduleKind::inverse_sqrt, 10))(40), 0.4);
  EXPECT_DOUBLE_EQ(Schedule(options(ScheduleKind::inverse_sqrt, 1))(16), 0.2);
  ScheduleOptions linear = options(ScheduleKind::linear, 10, 110);
  linear.final_rate = 0.2;
  EXPECT_DOUBLE_EQ(Schedule(linear)(60), 0.5);
  EXPECT_DOUBLE_EQ(Schedule(linear)(110), 0.2);
  EXPECT_DOUBLE_EQ(Schedule(linear)(5000), 0.2);
  ScheduleOptions cosine = linear;
  cosine.kind = ScheduleKind::cosine;
  EXPECT_NEAR(Schedule(cosine)(60), 0.5, 1e-12);
  EXPECT_NEAR(Schedule(cosine)(35), 0.2 + 0.3 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_DOUBLE_EQ(Schedule(cosine)(5000), 0.2);
}

TEST(Schedule, NoamPeaksAtTheEndOfWarmup) {
  ScheduleOptions noam = options(ScheduleKind::noam, 4000);
  noam.learning_rate = 2;
  noam.width = 512;
  const Schedule rate(noam);
  EXPECT_NEAR(rate(4000), 2 / std::sqrt(512.0 * 4000.0), 1e-15);
  EXPECT_NEAR(rate(1), rate(4000) / 4000, 1e-15);
  EXPECT_NEAR(rate(16000), rate(4000) / 2, 1e-15);
}

// _get_lr of transformers' Adafactor, with and without warmup_init.
TEST(Schedule, RelativeStepIsThatOfAdafactor) {
  ScheduleOptions relative = options(ScheduleKind::relative_step, 0);
  relative.learning_rate = 0.01;
  for (const int64_t warmup : {0, 10000}) {
    relative.warmup = warmup;
    const Schedule rate(relative);
    for (const int64_t update : {1, 7, 9999, 10000, 10001, 40000, 1000000}) {
      const double u = static_cast<double>(update);
      EXPECT_NEAR(rate(update), std::min(warmup > 0 ? 1e-6 * u : 1e-2, 1 / std::sqrt(u)), 1e-15)
          << update;
    }
  }
}

TEST(Schedule, NamesAreThoseInSavedRuns) {
  int32_t number = 0;
  for (const char* name : {"constant", "linear", "cosine", "inv-sqrt", "noam", "relative-step"})
    EXPECT_STREQ(enum_name(static_cast<ScheduleKind>(number++)), name);
  EXPECT_STREQ(enum_name(static_cast<ScheduleKind>(number)), "unknown");
}

TEST(Schedule, RefusesWhatCannotBe) {
  ScheduleOptions bad_rate = options(ScheduleKind::constant, 0);
  bad_rate.learning_rate = -1;
  EXPECT_THROW(Schedule{bad_rate}, Error);
  bad_rate.learning_rate = std::nan("");
  EXPECT_THROW(Schedule{bad_rate}, Error);
  EXPECT_THROW(Schedule{options(ScheduleKind::constant, -1)}, Error);
  EXPECT_THROW(Schedule{options(ScheduleKind::inverse_sqrt, 0)}, Error);
  EXPECT_THROW(Schedule{options(ScheduleKind::linear, 10, 10)}, Error);
  EXPECT_THROW(Schedule{options(ScheduleKind::noam, 10)}, Error);
  EXPECT_THROW(Schedule(options(ScheduleKind::constant, 0))(0), Error);
  for (const double rate : {-1.0, static_cast<double>(INFINITY), std::nan("")}) {
    Schedule schedule(options(ScheduleKind::constant, 0));
    schedule.set_function([rate](int64_t, double) { return rate; });
    EXPECT_THROW(schedule(1), Error) << rate;
  }
}

}  // namespace
}  // namespace trafo
