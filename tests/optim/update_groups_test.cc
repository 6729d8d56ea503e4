// AdamW with factors of parameter groups, against updates of all parameters alike.
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "engine/ops/op_kernel.h"
#include "engine/optim/adamw/adamw.h"
#include "engine/optim/clipped_update.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

// Not a multiple of a block of moments; several blocks of the thread pool.
constexpr int64_t kGroupedElements = 70000;
constexpr int64_t kCells = kGroupedElements / kGroupElements;
constexpr double kRate = 0.01, kDecay = 0.1;

template <class T>
std::vector<T> numbers(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 1);
  std::vector<T> values(kGroupedElements);
  for (T& value : values) value = static_cast<T>(normal(random));
  return values;
}

struct GroupedWeights {
  std::vector<double> parameters, ema;
};

// The parameters after a few updates, by the two kernels that update.
template <class T>
GroupedWeights trained_groups(Context& context, OptimizerStates states, double rate,
                              double weight_decay, const UpdateGroups& groups, bool clipped) {
  const Tensor parameters = context.from_values<T>(numbers<T>(1), {kGroupedElements});
  const Tensor gradients = context.zeros({kGroupedElements}, dtype_of<T>);
  const AdamWOptions options{.weight_decay = weight_decay, .states = states};
  AdamW optimizer(context, {parameters, gradients, {}, groups, {}, 0.1}, options);
  ScheduleOptions schedule;
  schedule.kind = ScheduleKind::constant;
  schedule.learning_rate = rate;
  ClippedUpdate update(context, optimizer, Schedule(schedule), 0);
  const Tensor loss = context.scalar(1, {1}, dtype_of<T>);
  for (uint32_t i = 1; i <= 3; ++i) {
    const auto gradient = numbers<T>(10 + i);
    context.backend().copy_from_host(gradients.raw(), gradient.data(),
                                     kGroupedElements * sizeof(T));
    if (clipped) {
      update.prepare(i, i);
      update.run(loss, loss);
    } else {
      optimizer.step(rate);
    }
  }
  const auto wide = [&](const Tensor& tensor) {
    const auto values = context.values<T>(tensor);
    return std::vector<double>(values.begin(), values.end());
  };
  return {wide(parameters), wide(optimizer.ema())};
}

// Groups in stretches of one to five cells of 16 elements.
UpdateGroups scattered(const std::vector<UpdateFactors>& factors) {
  UpdateGroups groups{factors, std::vector<uint8_t>(kCells)};
  std::mt19937 random(3);
  for (size_t at = 0; at < groups.group_of.size();) {
    const auto group = static_cast<uint8_t>(random() % factors.size());
    for (size_t length = 1 + random() % 5; length > 0 && at < groups.group_of.size(); --length)
      groups.group_of[at++] = group;
  }
  return groups;
}

template <class T>
void expect_each_group_updated_as_if_alone(OptimizerStates states) {
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  const std::vector<UpdateFactors> factors{{1, 1}, {1, 0}, {0.5, 1}, {0, 0}, {2, 0.25}};
  const UpdateGroups groups = scattered(factors);
  for (const bool clipped : {false, true}) {
    const GroupedWeights grouped =
        trained_groups<T>(*context, states, kRate, kDecay, groups, clipped);
    for (size_t g = 0; g < factors.size(); ++g) {
      const GroupedWeights alone =
          trained_groups<T>(*context, states, kRate * factors[g].learning_rate,
                            kDecay * factors[g].weight_decay, {}, clipped);
      for (size_t i = 0; i < kGroupedElements; ++i) {
        if (groups.group_of[i / kGroupElements] != g) continue;
        ASSERT_EQ(grouped.parameters[i], alone.parameters[i]) << "group " << g << ", " << i;
        ASSERT_EQ(grouped.ema[i], alone.ema[i]) << "group " << g << ", " << i;
      }
    }
  }
}

TEST(UpdateGroups, EachGroupIsUpdatedAsIfAlone) {
  expect_each_group_updated_as_if_alone<float>(OptimizerStates::float32);
  expect_each_group_updated_as_if_alone<double>(OptimizerStates::float32);
  expect_each_group_updated_as_if_alone<float>(OptimizerStates::eight_bit);
}

// Without other factors than 1 there is no table, and the kernels are the ones without groups.
TEST(UpdateGroups, FactorsOfOneAreNoGroups) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor p = context->zeros({32}, DType::f32), g = context->zeros({32}, DType::f32);
  const AdamW alike(*context, {p, g, {}, {{{1, 1}, {1, 1}}, {0, 1}}});
  EXPECT_EQ(alike.state().group_of, nullptr);
  EXPECT_EQ(alike.state_bytes(), AdamW(*context, {p, g}).state_bytes());
  const AdamW different(*context, {p, g, {}, {{{1, 1}, {1, 0}}, {0, 1}}});
  EXPECT_NE(different.state().group_of, nullptr);
  EXPECT_EQ(different.state().groups, 2);
  EXPECT_GT(different.state_bytes(), alike.state_bytes());
}

TEST(UpdateGroups, RefusesWhatCannotBe) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor p = context->zeros({40}, DType::f32), g = context->zeros({40}, DType::f32);
  const auto refused = [&](const UpdateGroups& groups) {
    return code_of([&] { AdamW(*context, {p, g, {}, groups}); });
  };
  EXPECT_EQ(refused({{{2, 1}}, {0, 0}}), ErrorCode::invalid_argument);     // three cells
  EXPECT_EQ(refused({{{2, 1}}, {0, 0, 1}}), ErrorCode::invalid_argument);  // no such group
  EXPECT_EQ(refused({{{-1, 1}}, {0, 0, 0}}), ErrorCode::invalid_argument);
  EXPECT_EQ(refused({{{1, std::nan("")}}, {0, 0, 0}}), ErrorCode::invalid_argument);
  EXPECT_EQ(refused({std::vector<UpdateFactors>(257, {2, 1}), {0, 0, 0}}),
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace trafo
