// Lion against its formula in float64.
#include "tests/optim/update_test.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

using namespace testing;

template <class T>
class LionTest : public UpdateTest<T> {};
TYPED_TEST_SUITE(LionTest, UpdateTypes);

constexpr double kLionBeta1 = 0.8, kLionBeta2 = 0.95;

// Algorithm 2 of arXiv 2302.06675.
void lion_reference(Column& p, Column& momentum, const Column& grad,
                    const std::vector<UpdateFactors>& factors) {
  for (size_t i = 0; i < p.size(); ++i) {
    const UpdateFactors& f = factors[i / kGroupElements % factors.size()];
    const double mixed = kLionBeta1 * momentum[i] + (1 - kLionBeta1) * grad[i];
    const double sign = mixed > 0 ? 1 : mixed < 0 ? -1 : 0;
    p[i] -= kUpdateRate * f.learning_rate * (sign + kUpdateDecay * f.weight_decay * p[i]);
    momentum[i] = kLionBeta2 * momentum[i] + (1 - kLionBeta2) * grad[i];
  }
}

TYPED_TEST(LionTest, UpdatesAreThoseOfTheFormula) {
  constexpr int64_t kCount = 40003;  // no vector width divides it; several blocks of work
  for (const std::vector<UpdateFactors>& factors :
       {std::vector<UpdateFactors>{{}}, std::vector<UpdateFactors>{{}, {0.5, 2}, {0.25, 0}}})
    for (const bool clipped : {false, true}) {
      const Tensor parameters = this->tensor(normal_column(kCount, 1));
      const Tensor gradients = this->tensor(Column(kCount));
      UpdateGroups groups{factors, {}};
      for (int64_t i = 0; i < kCount; i += kGroupElements)
        groups.group_of.push_back(
            static_cast<uint8_t>(static_cast<size_t>(i / kGroupElements) % factors.size()));
      const auto optimizer =
          make_optimizer(*this->context_, {parameters, gradients, {}, groups, {}, kUpdateEma},
                         {.weight_decay = kUpdateDecay,
                          .optimizer = OptimizerKind::lion,
                          .beta1 = kLionBeta1,
                          .beta2 = kLionBeta2});
      Column p = this->read(parameters), momentum(p.size()), ema(p.size());
      for (int64_t step = 1; step <= kUpdateSteps; ++step) {
        Column gradient = normal_column(kCount, 10 + static_cast<uint32_t>(step));
        for (size_t i = 0; i < gradient.size(); i += 7) gradient[i] = 0;  // the sign of 0 is 0
        this->write(gradients, gradient);
        lion_reference(p, momentum, this->read(gradients), factors);
        for (size_t i = 0; i < p.size(); ++i)
          ema[i] += ema_weight(kUpdateEma, step) * (p[i] - ema[i]);
        this->update(*optimizer, clipped, step);
      }
      ASSERT_EQ(optimizer->states().size(), 1u);
      EXPECT_EQ(optimizer->states()[0].name, "lion_momentum");
      this->expect_near(parameters, p, "parameter");
      this->expect_near(optimizer->states()[0].tensor, momentum, "momentum");
      this->expect_near(optimizer->ema(), ema, "EMA");
    }
}

TEST(Lion, BadOptionsAreNamed) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor p = context->zeros({16}, DType::f32), g = context->zeros({16}, DType::f32);
  const auto refused = [&](OptimizerOptions options, const char* message) {
    options.optimizer = OptimizerKind::lion;
    expect_error(ErrorCode::invalid_argument, message, [&] {
      make_optimizer(*context, {p, g}, options);
    });
  };
  for (const double beta : {-0.1, 1.0}) {
    refused({.beta1 = beta}, "beta1 must be at least 0 and below 1");
    refused({.beta2 = beta}, "beta2 must be at least 0 and below 1");
  }
  refused({.weight_decay = -1}, "weight_decay must be at least 0");
  refused({.epsilon = 1e-8}, "epsilon is for the optimizer adamw, muon: lion does not have it");
}

}  // namespace
}  // namespace trafo
