// Moments in 8 bits: the code, and AdamW with it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "engine/core/numeric/philox.h"
#include "engine/ops/op_kernel.h"
#include "engine/optim/adamw/adamw.h"
#include "engine/optim/clip.h"
#include "engine/optim/clipped_update.h"
#include "engine/quant/state_code.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

using namespace state_code;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<float> normal_numbers(int64_t count, double scale, uint64_t stream) {
  PhiloxStream random(23, stream);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(scale * random.normal());
  return values;
}

Schedule constant_rate() {
  ScheduleOptions options;
  options.kind = ScheduleKind::constant;
  options.learning_rate = 0.01;
  return Schedule(options);
}

TEST(StateCode, IsMonotone) {
  std::vector<float> first;
  for (int code = 255; code > 128; --code) first.push_back(decode_first(uint8_t(code), 1));
  for (int code = 0; code < 128; ++code) first.push_back(decode_first(uint8_t(code), 1));
  for (size_t i = 1; i < first.size(); ++i) EXPECT_LT(first[i - 1], first[i]) << i;
  EXPECT_EQ(first.front(), -kFirstLargest);
  EXPECT_EQ(first[127], 0);
  EXPECT_EQ(first.back(), kFirstLargest);
  EXPECT_EQ(decode_first(128, 1), 0);
  for (int code = 1; code < 256; ++code)
    EXPECT_LT(decode_second(uint8_t(code - 1), 1), decode_second(uint8_t(code), 1)) << code;
  EXPECT_NEAR(decode_second(0, 1), 0x1p-21, 1e-5 * 0x1p-21);
  EXPECT_NEAR(decode_second(255, 1), kSecondLargest, 1e-5);
}

// Whatever the random bits are.
TEST(StateCode, WhatHasACodeKeepsIt) {
  PhiloxStream random(3, 1);
  for (int round = 0; round < 500; ++round) {
    const auto scale = static_cast<float>(std::exp2(random.uniform(-100, 126)));
    const uint32_t bits = round % 3 == 0 ? 0 : round % 3 == 1 ? ~0u : random.next_u32();
    const uint32_t offset = rounding_offset(bits, static_cast<uint32_t>(round));
    for (int i = 0; i < 256; ++i) {
      const auto code = static_cast<uint8_t>(i);
      const float m = decode_first(code, scale), v = decode_second(code, scale);
      ASSERT_EQ(encode_first(m, inverse_of(scale), offset), code == 128 ? 0 : code) << scale;
      ASSERT_EQ(encode_second(v, inverse_of(scale), offset), code) << scale;
    }
  }
}

TEST(StateCode, RoundTripsWithinOneCodeAndWithoutBias) {
  PhiloxStream random(4, 1);
  const float m_scale = scale_of(3e-5f, kFirstLargest), v_scale = scale_of(3e-5f, kSecondLargest);
  for (int i = 0; i < 200; ++i) {
    // Over twelve octaves; below, a first moment comes near the smallest code.
    const auto x = static_cast<float>(3e-5 * std::exp2(random.uniform(-12, 0)));
    double m_sum = 0, v_sum = 0;
    constexpr uint32_t kDraws = 8000;
    for (uint32_t draw = 0; draw < kDraws; ++draw) {
      const auto element = static_cast<uint32_t>(i);
      const uint32_t offset = rounding_offset(random_bits(element / 2, draw), element);
      const float m = decode_first(encode_first(-x, inverse_of(m_scale), offset), m_scale);
      const float v = decode_second(encode_second(x, inverse_of(v_scale), offset), v_scale);
      ASSERT_NEAR(m, -x, x / 7.9);
      ASSERT_NEAR(v, x, x / 11.9);
      m_sum += static_cast<double>(m);
      v_sum += static_cast<double>(v);
    }
    // Five standard deviations of the mean of roundings by half a code, and the last bits.
    const double allowed = (5.0 / 16 / std::sqrt(kDraws) + 2e-5) * static_cast<double>(x);
    EXPECT_NEAR(m_sum / kDraws, -x, allowed);
    EXPECT_NEAR(v_sum / kDraws, x, allowed);
  }
}

TEST(StateCode, ExtremesStayFinite) {
  for (const float largest : {kFirstLargest, kSecondLargest}) {
    EXPECT_EQ(scale_of(0, largest), 0);
    EXPECT_EQ(scale_of(1e-38f, largest), 0);
    EXPECT_TRUE(std::isfinite(inverse_of(scale_of(1.1e-37f, largest))));
    EXPECT_TRUE(std::isfinite(scale_of(INFINITY, largest)));
  }
  EXPECT_EQ(inverse_of(0), 0);
  const float most = scale_of(INFINITY, kSecondLargest);
  const float decoded = decode_second(encode_second(INFINITY, inverse_of(most), 0), most);
  EXPECT_TRUE(decoded > 2e38f && std::isfinite(decoded)) << decoded;
  for (const uint32_t random : {0u, ~0u}) {
    const uint32_t offset = rounding_offset(random, 0);
    EXPECT_EQ(encode_first(0, 1, offset), 0);
    EXPECT_EQ(decode_first(encode_first(-0.0f, 1, offset), 1), 0);
    EXPECT_EQ(encode_second(0, 1, offset), 0);
    EXPECT_EQ(encode_first(1e-30f, 1, offset), 0);
    EXPECT_EQ(encode_second(1e-30f, 1, offset), 0);
    EXPECT_EQ(encode_first(std::nextafter(kFirstLargest, 2.0f), 1, offset), 127);
    EXPECT_EQ(encode_second(std::nextafter(kSecondLargest, 2.0f), 1, offset), 255);
  }
}

// Parameters with their gradient and optimizer.
struct Weights {
  Weights(Context& where, int64_t count, AdamWOptions options,
          OptimizerStates states = OptimizerStates::eight_bit)
      : context(where),
        parameters(where.from_values<float>(normal_numbers(count, 1, 1), {count})),
        gradients(where.zeros({count}, DType::f32)),
        optimizer(where, {parameters, gradients}, (options.states = states, options)) {}

  void set_gradients(const std::vector<float>& values) const {
    std::copy(values.begin(), values.end(), gradients.data<float>());
  }
  std::vector<Tensor> tensors() const {
    return {parameters, optimizer.first_moment(), optimizer.second_moment(),
            optimizer.first_scale(), optimizer.second_scale()};
  }
  uint8_t first_code(int64_t i) const {
    return reinterpret_cast<const uint8_t*>(optimizer.first_moment().data<int32_t>())[i];
  }
  uint8_t second_code(int64_t i) const {
    return reinterpret_cast<const uint8_t*>(optimizer.second_moment().data<int32_t>())[i];
  }
  float m(int64_t i) const {
    return decode_first(first_code(i), optimizer.first_scale().data<float>()[i / kBlock]);
  }
  float v(int64_t i) const {
    return decode_second(second_code(i), optimizer.second_scale().data<float>()[i / kBlock]);
  }

  Context& context;
  Tensor parameters, gradients;
  AdamW optimizer;
};

void expect_same_bits(const Weights& a, const Weights& b) {
  const auto x = a.tensors(), y = b.tensors();
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(std::memcmp(x[i].raw(), y[i].raw(), x[i].bytes()), 0) << "tensor " << i;
}

// Without averaging the moments are the gradient and its square, exactly: what the kernel makes of
// them is what state_code.h says, element by element, tails included.
TEST(OptimizerStates, TheKernelHasTheCodesOfTheDefinition) {
  const AdamWOptions options{.beta1 = 0, .beta2 = 0};
  for (const int64_t count : {1, 5, 255, 256, 257, 1000, 70001}) {
    const auto context = make_context({DeviceKind::cpu, 0}, 2);
    Weights weights(*context, count, options);
    const auto gradient = normal_numbers(count, 0.1, 2);
    weights.set_gradients(gradient);
    for (int64_t step = 1; step <= 3; ++step) {
      weights.optimizer.step(0.01);
      for (int64_t begin = 0; begin < count; begin += kBlock) {
        const int64_t end = std::min(count, begin + kBlock);
        float largest_m = 0, largest_v = 0;
        for (int64_t i = begin; i < end; ++i) {
          const float g = gradient[static_cast<size_t>(i)];
          largest_m = std::max(largest_m, std::abs(g));
          largest_v = std::max(largest_v, g * g);
        }
        const float m_scale = scale_of(largest_m, kFirstLargest);
        const float v_scale = scale_of(largest_v, kSecondLargest);
        ASSERT_EQ(weights.optimizer.first_scale().data<float>()[begin / kBlock], m_scale);
        ASSERT_EQ(weights.optimizer.second_scale().data<float>()[begin / kBlock], v_scale);
        for (int64_t i = begin; i < end; ++i) {
          const float g = gradient[static_cast<size_t>(i)];
          const auto element = static_cast<uint32_t>(i);
          const uint32_t offset =
              rounding_offset(random_bits(element / 2, static_cast<uint32_t>(step)), element);
          ASSERT_EQ(weights.first_code(i), encode_first(g, inverse_of(m_scale), offset)) << i;
          ASSERT_EQ(weights.second_code(i), encode_second(g * g, inverse_of(v_scale), offset)) << i;
        }
      }
      for (int64_t i = count; i < blocks(count) * kBlock; ++i) {
        ASSERT_EQ(weights.first_code(i), 0) << "behind the end";
        ASSERT_EQ(weights.second_code(i), 0) << "behind the end";
      }
    }
  }
}

TEST(OptimizerStates, TakeTwoBytesAParameter) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  constexpr int64_t kCount = 1 << 18;
  const Weights narrow(*context, kCount, {}), wide(*context, kCount, {}, OptimizerStates::float32);
  EXPECT_EQ(wide.optimizer.state_bytes(), 8 * kCount);
  EXPECT_EQ(narrow.optimizer.state_bytes(), 2 * kCount + 8 * kCount / kBlock);  // 2.03 a parameter
}

TEST(OptimizerStates, TheNumberOfThreadsDoesNotMatter) {
  constexpr int64_t kCount = 100003;
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<std::unique_ptr<Weights>> all;
  for (const int threads : {1, 2, 5}) {
    contexts.push_back(make_context({DeviceKind::cpu, 0}, threads));
    all.push_back(std::make_unique<Weights>(*contexts.back(), kCount, AdamWOptions{}));
    for (uint64_t step = 1; step <= 4; ++step) {
      all.back()->set_gradients(normal_numbers(kCount, 0.1, step));
      all.back()->optimizer.step(0.01);
    }
    expect_same_bits(*all.front(), *all.back());
  }
}

TEST(OptimizerStates, ContinueWithTheSameBits) {
  constexpr int64_t kCount = 5000;
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  Weights uncut(*context, kCount, {}), before(*context, kCount, {}), after(*context, kCount, {});
  const auto steps = [&](Weights& weights, uint64_t first, uint64_t last) {
    for (uint64_t step = first; step <= last; ++step) {
      weights.set_gradients(normal_numbers(kCount, 0.1, step));
      weights.optimizer.step(0.01);
    }
  };
  steps(uncut, 1, 6);
  steps(before, 1, 3);
  const auto from = before.tensors(), to = after.tensors();
  for (size_t i = 0; i < from.size(); ++i) std::memcpy(to[i].raw(), from[i].raw(), from[i].bytes());
  after.optimizer.set_steps(before.optimizer.steps());
  steps(after, 4, 6);
  expect_same_bits(uncut, after);
}

// Averages with a long memory change by far less than a code at a time. They must neither stand
// still nor drift: over many elements their means equal float32's.
TEST(OptimizerStates, AveragesFollowThoseInFloat32) {
  constexpr int64_t kCount = 16384;
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  for (const double beta2 : {0.98, 0.999}) {
    const AdamWOptions options{.beta1 = 0.9, .beta2 = beta2};
    Weights narrow(*context, kCount, options),
        wide(*context, kCount, options, OptimizerStates::float32);
    // The size of an element's gradients: from 1 to 1e-2 within a block; it changes half-way.
    const auto sizes = normal_numbers(kCount, 1, 99);
    for (uint64_t step = 1; step <= 400; ++step) {
      auto gradient = normal_numbers(kCount, 1, 100 + step);
      for (size_t i = 0; i < gradient.size(); ++i)
        gradient[i] *= std::exp(-1.15f * std::abs(sizes[i])) * (step <= 200  ? 1.0f
                                                                : i % 2 == 0 ? 0.5f
                                                                             : 1.5f);
      narrow.set_gradients(gradient);
      wide.set_gradients(gradient);
      narrow.optimizer.step(0.001);
      wide.optimizer.step(0.001);
    }
    const float* m = wide.optimizer.first_moment().data<float>();
    const float* v = wide.optimizer.second_moment().data<float>();
    double mean = 0, squares = 0, m_error = 0, m_squares = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const double ratio = static_cast<double>(narrow.v(i)) / static_cast<double>(v[i]);
      mean += ratio / kCount;
      squares += (ratio - 1) * (ratio - 1) / kCount;
      m_error += std::pow(static_cast<double>(narrow.m(i) - m[i]), 2);
      m_squares += std::pow(static_cast<double>(m[i]), 2);
    }
    EXPECT_NEAR(mean, 1, 0.02) << beta2;
    EXPECT_LT(std::sqrt(squares), 0.25) << beta2;
    EXPECT_LT(std::sqrt(m_error / m_squares), 0.12) << beta2;
    double change = 0, difference = 0;
    const auto start = normal_numbers(kCount, 1, 1);
    for (int64_t i = 0; i < kCount; ++i) {
      const float p = narrow.parameters.data<float>()[i], q = wide.parameters.data<float>()[i];
      change += std::pow(static_cast<double>(q - start[static_cast<size_t>(i)]), 2);
      difference += std::pow(static_cast<double>(p - q), 2);
    }
    EXPECT_LT(std::sqrt(difference / change), 0.1) << beta2;
  }
}

TEST(OptimizerStates, ZerosAndHugeGradientsStayFinite) {
  constexpr int64_t kCount = 600;
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  Weights weights(*context, kCount, {});
  const auto before = context->values<float>(weights.parameters);
  weights.optimizer.step(0.01);  // of gradients that are zero
  EXPECT_EQ(context->values<float>(weights.parameters), before);
  for (const Tensor& scale : {weights.optimizer.first_scale(), weights.optimizer.second_scale()})
    for (const float value : context->values<float>(scale)) EXPECT_EQ(value, 0);
  std::vector<float> gradient(kCount, 1.0f);
  gradient[3] = 1e30f;  // its square is not finite
  gradient[300] = 1e-30f;
  weights.set_gradients(gradient);
  for (int i = 0; i < 3; ++i) weights.optimizer.step(0.01);
  for (int64_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(std::isfinite(weights.m(i)) && std::isfinite(weights.v(i))) << i;
    EXPECT_TRUE(std::isfinite(weights.parameters.data<float>()[i])) << i;
  }
}

TEST(OptimizerStates, AClippedUpdateIsClippingThenAdamWBitForBit) {
  constexpr int64_t kCount = 70001;
  const auto context = make_context({DeviceKind::cpu, 0}, 2);
  for (const double max_norm : {0.0, 1.0}) {
    Weights ours(*context, kCount, {}), theirs(*context, kCount, {});
    ClippedUpdate update(*context, ours.optimizer, constant_rate(), max_norm);
    const Tensor loss = context->scalar(1, {1}, DType::f32);
    for (int64_t i = 1; i <= 3; ++i) {
      const auto gradient = normal_numbers(kCount, 0.1, static_cast<uint64_t>(10 + i));
      ours.set_gradients(gradient);
      theirs.set_gradients(gradient);
      update.prepare(i, i);
      update.run(loss, loss);
      theirs.optimizer.step(0.01, clip_global_norm(*context, theirs.gradients, max_norm).scale);
      expect_same_bits(ours, theirs);
    }
  }
}

TEST(OptimizerStates, BadLossesAndNormsChangeNothing) {
  constexpr int64_t kCount = 700;
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  Weights ours(*context, kCount, {}), theirs(*context, kCount, {});
  ClippedUpdate update(*context, ours.optimizer, constant_rate(), 1);
  const auto good = normal_numbers(kCount, 1, 2);
  const auto run = [&](const std::vector<float>& gradient, double loss) {
    ours.set_gradients(gradient);
    update.prepare(1, 3);
    const Tensor sum = context->scalar(loss, {1}, DType::f32);
    update.run(sum, sum);
  };
  run(good, 1);
  theirs.set_gradients(good);
  theirs.optimizer.step(0.01, clip_global_norm(*context, theirs.gradients, 1).scale);
  expect_same_bits(ours, theirs);
  for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
    run(good, bad);
    expect_same_bits(ours, theirs);
    auto gradient = good;
    gradient[300] = static_cast<float>(bad);
    run(gradient, 1);
    expect_same_bits(ours, theirs);
  }
}

TEST(OptimizerStates, TheRoundedCopyIsWrittenAsWell) {
  constexpr int64_t kCount = 1003;
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor p = context->from_values<float>(normal_numbers(kCount, 1, 1), {kCount});
  const Tensor g = context->from_values<float>(normal_numbers(kCount, 1, 2), {kCount});
  const Tensor copy = context->zeros({kCount}, DType::bf16);
  AdamW optimizer(*context, {p, g, copy}, {.states = OptimizerStates::eight_bit});
  optimizer.step(0.01);
  for (int64_t i = 0; i < kCount; ++i)
    ASSERT_EQ(copy.data<BFloat16>()[i].bits, BFloat16::from_float(p.data<float>()[i]).bits);
}

TEST(OptimizerStates, RefuseWhatCannotBe) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  const Tensor p = context->zeros({4}, DType::f64), g = context->zeros({4}, DType::f64);
  EXPECT_EQ(code_of([&] {
              AdamW(*context, {p, g}, {.states = OptimizerStates::eight_bit});
            }),
            ErrorCode::unsupported);
  EXPECT_EQ(code_of([&] {
              AdamW(*context, {p, g}, {.states = static_cast<OptimizerStates>(2)});
            }),
            ErrorCode::invalid_argument);
  EXPECT_STREQ(enum_name(OptimizerStates::float32), "fp32");
  EXPECT_STREQ(enum_name(OptimizerStates::eight_bit), "8bit");
}

}  // namespace
}  // namespace trafo
