#include "engine/optim/adamw/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/core/numeric/philox.h"
#include "engine/ops/op_kernel.h"
#include "engine/optim/clip.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

constexpr int64_t kParameters = 100003;  // several blocks of work and a tail

std::vector<float> random_values(uint64_t stream, double low, double high) {
  PhiloxStream random(17, stream);
  std::vector<float> values(kParameters);
  for (float& v : values) v = static_cast<float>(random.uniform(low, high));
  return values;
}

// The formulas of Loshchilov & Hutter, algorithm 2, in double.
struct Reference {
  std::vector<double> p, m, v;
  int64_t steps = 0;

  explicit Reference(const std::vector<float>& start)
      : p(start.begin(), start.end()), m(start.size(), 0.0), v(start.size(), 0.0) {}

  void step(const std::vector<float>& grad, double rate, double scale, const AdamWOptions& o) {
    ++steps;
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = scale * static_cast<double>(grad[i]);
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(o.beta1, static_cast<double>(steps)));
      const double v_hat = v[i] / (1 - std::pow(o.beta2, static_cast<double>(steps)));
      p[i] -= rate * (m_hat / (std::sqrt(v_hat) + o.epsilon) + o.weight_decay * p[i]);
    }
  }
};

TEST(AdamW, FollowsTheFormulasInDouble) {
  const AdamWOptions variants[] = {
      {},
      {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1},
      {.beta1 = 0, .beta2 = 0.5, .epsilon = 0.1, .weight_decay = 0},
      {.beta1 = 0.5, .beta2 = 0, .epsilon = 1e-3, .weight_decay = 0.01},
  };
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  for (const AdamWOptions& options : variants) {
    const std::vector<float> start = random_values(0, -1, 1);
    const Tensor parameters = context->from_values<float>(start, {kParameters});
    const Tensor gradients = context->zeros({kParameters}, DType::f32);
    AdamW optimizer(*context, {parameters, gradients}, options);
    Reference reference(start);
    for (uint64_t step = 1; step <= 5; ++step) {
      const std::vector<float> grad = random_values(step, 0.01, 2);
      std::copy(grad.begin(), grad.end(), gradients.data<float>());
      optimizer.step(0.01, 0.25);
      reference.step(grad, 0.01, 0.25, options);
    }
    EXPECT_EQ(optimizer.steps(), 5);
    for (size_t i = 0; i < start.size(); ++i) {
      ASSERT_NEAR(parameters.data<float>()[i], reference.p[i], 1e-6) << i;
      ASSERT_NEAR(optimizer.first_moment().data<float>()[i], reference.m[i], 1e-6) << i;
      ASSERT_NEAR(optimizer.second_moment().data<float>()[i], reference.v[i], 1e-6) << i;
    }
  }
}

TEST(AdamW, ContinuesWithTheSameBits) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const std::vector<float> start = random_values(0, -1, 1), grad = random_values(1, -1, 1);
  const Tensor whole = context->from_values<float>(start, {kParameters});
  const Tensor cut = context->from_values<float>(start, {kParameters});
  const Tensor gradients = context->from_values<float>(grad, {kParameters});
  AdamW uncut(*context, {whole, gradients}), before(*context, {cut, gradients});
  for (int i = 0; i < 4; ++i) uncut.step(0.1);
  for (int i = 0; i < 2; ++i) before.step(0.1);
  AdamW after(*context, {cut, gradients});
  std::copy_n(before.first_moment().data<float>(), kParameters, after.first_moment().data<float>());
  std::copy_n(before.second_moment().data<float>(), kParameters,
              after.second_moment().data<float>());
  after.set_steps(before.steps());
  for (int i = 0; i < 2; ++i) after.step(0.1);
  EXPECT_EQ(context->values<float>(whole), context->values<float>(cut));
}

TEST(AdamW, RefusesWhatCannotBe) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor p = context->zeros({4}, DType::f32), g = context->zeros({4}, DType::f32);
  EXPECT_THROW(AdamW(*context, {p, context->zeros({3}, DType::f32)}), Error);
  EXPECT_THROW(AdamW(*context, {p, context->zeros({4}, DType::f64)}), Error);
  const auto refused = [&](const Tensor& parameters, const Tensor& gradients) {
    return error_of([&] { AdamW(*context, {parameters, gradients}); });
  };
  EXPECT_TRUE(mentions(refused({}, g), "parameters is undefined"));
  EXPECT_TRUE(mentions(refused(p, {}), "gradients is undefined"));
  EXPECT_TRUE(mentions(refused(context->zeros({4}, DType::i32), g), "parameters must be float32"));
  EXPECT_THROW(AdamW(*context, {p, g}, {.beta1 = 1}), Error);
  EXPECT_THROW(AdamW(*context, {p, g}, {.beta2 = -0.1}), Error);
  EXPECT_THROW(AdamW(*context, {p, g}, {.epsilon = 0}), Error);
  EXPECT_THROW(AdamW(*context, {p, g}, {.weight_decay = -1}), Error);
  AdamW optimizer(*context, {p, g});
  EXPECT_THROW(optimizer.step(std::nan("")), Error);
  EXPECT_THROW(optimizer.step(0.1, std::numeric_limits<double>::infinity()), Error);
  EXPECT_EQ(optimizer.steps(), 0);
}

TEST(ClipGlobalNorm, MeasuresAndClips) {
  const std::vector<float> grad = random_values(2, -1, 1);
  double sum = 0;
  for (const float g : grad) sum += static_cast<double>(g) * static_cast<double>(g);
  std::vector<double> norms;
  for (const int threads : {1, 2, 5}) {
    const auto context = make_context({DeviceKind::cpu, 0}, threads);
    const Tensor gradients = context->from_values<float>(grad, {kParameters});
    const GradientNorm free = clip_global_norm(*context, gradients, 0, 0.5);
    EXPECT_NEAR(free.norm, 0.5 * std::sqrt(sum), 1e-9 * free.norm);
    EXPECT_EQ(free.scale, 0.5);
    const GradientNorm clipped = clip_global_norm(*context, gradients, 2, 0.5);
    EXPECT_NEAR(clipped.scale * std::sqrt(sum), 2, 1e-9);
    EXPECT_TRUE(clipped.finite);
    norms.push_back(free.norm);
  }
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_EQ(norms[0], norms[2]);
}

TEST(ClipGlobalNorm, SeesWhatIsNotFinite) {
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const size_t at : {size_t{0}, size_t{40000}, size_t{kParameters - 1}}) {
      std::vector<float> grad(kParameters, 0.5f);
      grad[at] = bad;
      EXPECT_FALSE(
          clip_global_norm(*context, context->from_values<float>(grad, {kParameters}), 1).finite);
    }
  // The square of this overflows a float, not the norm.
  const std::vector<float> large(3, 1e30f);
  const GradientNorm norm = clip_global_norm(*context, context->from_values<float>(large, {3}), 1);
  EXPECT_TRUE(norm.finite);
  EXPECT_NEAR(norm.norm, std::sqrt(3.0) * 1e30, 1e24);
  EXPECT_EQ(clip_global_norm(*context, context->zeros({0}, DType::f32), 1).norm, 0);
}

}  // namespace
}  // namespace trafo
