// An update decided where the gradient is, against the same made of clipping and AdamW on the host.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "engine/ops/op_kernel.h"
#include "engine/optim/adamw/adamw.h"
#include "engine/optim/clip.h"
#include "engine/optim/clipped_update.h"

namespace trafo {
namespace {

// No vector width divides it, and the norm has several partial sums.
constexpr int64_t kElements = 70001;

template <class T>
std::vector<T> numbers(int64_t count, double scale, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) value = static_cast<T>(normal(random));
  return values;
}

Schedule constant_rate(double rate) {
  ScheduleOptions options;
  options.kind = ScheduleKind::constant;
  options.learning_rate = rate;
  return Schedule(options);
}

// Another rate at every update.
Schedule falling_rate() {
  ScheduleOptions options;
  options.kind = ScheduleKind::inverse_sqrt;
  options.learning_rate = 0.1;
  options.warmup = 10;
  return Schedule(options);
}

template <class T>
class ClippedUpdateTest : public ::testing::Test {
 protected:
  // Parameters with their gradient and moments.
  struct Weights {
    Weights(Context& where, int64_t count, const AdamWOptions& options)
        : context(where),
          parameters(where.from_values<T>(numbers<T>(count, 1, 1), {count})),
          gradients(where.zeros({count}, dtype_of<T>)),
          optimizer(where, {parameters, gradients}, options) {}

    void set_gradients(const std::vector<T>& values) {
      context.backend().copy_from_host(gradients.raw(), values.data(), values.size() * sizeof(T));
    }
    void expect_same_bits(const Weights& other) const {
      same(parameters, other.parameters, "parameters");
      same(optimizer.first_moment(), other.optimizer.first_moment(), "first moment");
      same(optimizer.second_moment(), other.optimizer.second_moment(), "second moment");
    }
    void same(const Tensor& a, const Tensor& b, const char* what) const {
      const auto x = context.values<T>(a), y = context.values<T>(b);
      ASSERT_EQ(x.size(), y.size());
      EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(T)), 0) << what;
    }

    Context& context;
    Tensor parameters, gradients;
    AdamW optimizer;
  };

  Tensor scalar(double value) { return context_->scalar(value, {1}, dtype_of<T>); }
  UpdateRecord record(const ClippedUpdate& update) {
    UpdateRecord copy{};
    context_->backend().copy_to_host(&copy, update.record(), sizeof copy);
    return copy;
  }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 2);
};

using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ClippedUpdateTest, Types);

TYPED_TEST(ClippedUpdateTest, IsClippingThenAdamWBitForBit) {
  using T = TypeParam;
  AdamWOptions options;
  options.weight_decay = 0.01;
  for (const double max_norm : {0.0, 1.0, 1e6}) {
    typename TestFixture::Weights ours(*this->context_, kElements, options),
        theirs(*this->context_, kElements, options);
    const Schedule schedule = falling_rate();
    ClippedUpdate update(*this->context_, ours.optimizer, schedule, max_norm);
    for (int64_t i = 1; i <= 4; ++i) {
      const auto gradient = numbers<T>(kElements, 0.1, static_cast<uint32_t>(10 + i));
      ours.set_gradients(gradient);
      theirs.set_gradients(gradient);

      update.prepare(i, i);
      update.run(this->scalar(3.5), this->scalar(2.5));
      const GradientNorm norm = clip_global_norm(*this->context_, theirs.gradients, max_norm);
      ASSERT_EQ(norm.scale < 1, max_norm == 1.0);
      theirs.optimizer.step(schedule(i), norm.scale);

      ours.expect_same_bits(theirs);
      const UpdateRecord record = this->record(update);
      EXPECT_EQ(record.applied, 1);
      EXPECT_EQ(record.updates, i);
      EXPECT_EQ(record.norm, norm.norm);
      EXPECT_EQ(record.learning_rate, schedule(i));
      EXPECT_EQ(record.loss, 3.5);
      EXPECT_EQ(record.nll, 2.5);
    }
  }
}

TYPED_TEST(ClippedUpdateTest, BadLossesAndNormsChangeNothing) {
  using T = TypeParam;
  constexpr int64_t kFew = 37;
  typename TestFixture::Weights ours(*this->context_, kFew, {}), theirs(*this->context_, kFew, {});
  ClippedUpdate update(*this->context_, ours.optimizer, falling_rate(), 1);
  const auto good = numbers<T>(kFew, 1, 2);
  const auto run = [&](const std::vector<T>& gradient, double loss, double nll) {
    ours.set_gradients(gradient);
    update.prepare(1, 3);
    update.run(this->scalar(loss), this->scalar(nll));
    return this->record(update);
  };
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const double bad : {infinity, -infinity, nan}) {
    const UpdateRecord of_loss = run(good, bad, 1);
    EXPECT_EQ(of_loss.applied, 0);
    EXPECT_EQ(of_loss.updates, 0);
    EXPECT_FALSE(std::isfinite(of_loss.loss));
    EXPECT_TRUE(std::isfinite(of_loss.norm));
    EXPECT_EQ(of_loss.learning_rate, falling_rate()(1));
    auto gradient = good;
    gradient.back() = static_cast<T>(bad);
    const UpdateRecord of_norm = run(gradient, 1, 1);
    EXPECT_EQ(of_norm.applied, 0);
    EXPECT_EQ(of_norm.updates, 0);
    EXPECT_FALSE(std::isfinite(of_norm.norm));
    ours.expect_same_bits(theirs);
  }

  // The next update counts as the first, as if they had not happened.
  EXPECT_EQ(run(good, 1, 1).updates, 1);
  theirs.set_gradients(good);
  theirs.optimizer.step(falling_rate()(1),
                        clip_global_norm(*this->context_, theirs.gradients, 1).scale);
  ours.expect_same_bits(theirs);
}

// Finite gradients whose squares float32 does not hold: the second moment would stay infinite and
// its parameter where it is, for ever.
TYPED_TEST(ClippedUpdateTest, GradientsThatTheSecondMomentCannotHoldAreSkipped) {
  using T = TypeParam;
  for (const double max_norm : {0.0, 1.0}) {
    typename TestFixture::Weights weights(*this->context_, 3, {}), before(*this->context_, 3, {});
    ClippedUpdate update(*this->context_, weights.optimizer, falling_rate(), max_norm);
    weights.set_gradients({static_cast<T>(1e30), 1, 2});
    update.prepare(1, 1);
    update.run(this->scalar(1), this->scalar(1));
    const bool held = max_norm > 0 || std::is_same_v<T, double>;
    EXPECT_EQ(this->record(update).applied, held ? 1 : 0);
    if (!held) weights.expect_same_bits(before);
    for (const T moment : this->context_->template values<T>(weights.optimizer.second_moment()))
      EXPECT_TRUE(std::isfinite(moment));
  }
}

TYPED_TEST(ClippedUpdateTest, RatesAreThoseOfTheScheduleAcrossTheBordersOfTheirTable) {
  typename TestFixture::Weights weights(*this->context_, 3, {});
  const Schedule schedule = falling_rate();
  ClippedUpdate update(*this->context_, weights.optimizer, schedule, 0);
  weights.set_gradients({1, -1, 2});
  const Tensor loss = this->scalar(1);
  const auto run = [&] {
    update.run(loss, loss);
    return this->record(update);
  };
  for (int64_t i = 1; i <= 2 * LearningRates::kCount + 2; ++i) {
    update.prepare(i, i);
    const UpdateRecord record = run();
    ASSERT_EQ(record.updates, i);
    ASSERT_EQ(record.learning_rate, schedule(i)) << i;
  }

  // Back to an earlier one, as after loading a checkpoint.
  update.set_updates(5);
  update.prepare(6, 6);
  EXPECT_EQ(run().learning_rate, schedule(6));

  // With others in flight: the table has the earliest and the latest that it may be.
  const int64_t last = 6 + LearningRates::kCount - 1;  // that the table covers
  update.set_updates(last - 3);
  update.prepare(last - 2, last + 5);
  for (int64_t i = last - 2; i <= last + 5; ++i) ASSERT_EQ(run().learning_rate, schedule(i)) << i;
  EXPECT_THROW(update.prepare(1, 1 + LearningRates::kCount), Error);
}

TYPED_TEST(ClippedUpdateTest, RefusesWhatCannotBe) {
  typename TestFixture::Weights weights(*this->context_, 3, {});
  EXPECT_THROW(ClippedUpdate(*this->context_, weights.optimizer, constant_rate(0.1), -1), Error);
  EXPECT_THROW(ClippedUpdate(*this->context_, weights.optimizer, constant_rate(0.1), std::nan("")),
               Error);
  ClippedUpdate update(*this->context_, weights.optimizer, constant_rate(0.1), 0);
  update.prepare(1, 1);
  const DType other = dtype_of<TypeParam> == DType::f32 ? DType::f64 : DType::f32;
  const Tensor wrong = this->context_->scalar(1, {1}, other);
  EXPECT_THROW(update.run(wrong, this->scalar(1)), Error);
  EXPECT_THROW(update.run(this->scalar(1), wrong), Error);
  EXPECT_EQ(this->record(update).updates, 0);
}

}  // namespace
}  // namespace trafo
