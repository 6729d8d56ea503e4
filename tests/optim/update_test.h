// Optimizers against their formulas in float64, through both kernels that update.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <type_traits>
#include <vector>

#include "engine/ops/op_kernel.h"
#include "engine/optim/clipped_update.h"

namespace trafo::testing {

using Column = std::vector<double>;

inline constexpr double kUpdateRate = 0.02, kUpdateDecay = 0.1, kUpdateEma = 0.3;
inline constexpr int64_t kUpdateSteps = 4;

inline Column normal_column(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Column values(static_cast<size_t>(count));
  for (double& value : values) value = normal(random);
  return values;
}

template <class T>
class UpdateTest : public ::testing::Test {
 protected:
  Tensor tensor(const Column& values) {
    std::vector<T> narrow(values.begin(), values.end());
    return context_->from_values<T>(narrow, {static_cast<int64_t>(values.size())});
  }
  void write(const Tensor& to, const Column& values) {
    std::copy(values.begin(), values.end(), to.data<T>());
  }
  // As `tensor` holds them.
  Column read(const Tensor& from) {
    const auto values = context_->template values<T>(from);
    return {values.begin(), values.end()};
  }
  void expect_near(const Tensor& actual, const Column& expected, const char* what) {
    const Column values = read(actual);
    ASSERT_EQ(values.size(), expected.size());
    const double bound = std::is_same_v<T, double> ? 1e-12 : 2e-5;
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], expected[i], bound) << what << " " << i;
  }
  // One update along `gradients`, by the kernel of custom networks or by the trainer's.
  void update(Optimizer& optimizer, bool clipped, int64_t step) {
    if (!clipped) return optimizer.step(kUpdateRate);
    if (step == 1) {
      ScheduleOptions schedule;
      schedule.kind = ScheduleKind::constant;
      schedule.learning_rate = kUpdateRate;
      update_.emplace(*context_, optimizer, Schedule(schedule), 0);
    }
    update_->prepare(step, step);
    update_->run(loss_, loss_);
  }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 2);
  Tensor loss_ = context_->scalar(1, {1}, dtype_of<T>);
  std::optional<ClippedUpdate> update_;
};

using UpdateTypes = ::testing::Types<float, double>;

}  // namespace trafo::testing
