#include "engine/ops/rotary/rotary.h"

#include <cmath>

#include "engine/ops/view/view.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/ops/row_test.h"

namespace trafo::testing {
namespace {

ops::RotaryOptions options_of(int64_t heads, int64_t kv_heads, int64_t head_dim) {
  ops::RotaryOptions options;
  options.heads = heads;
  options.kv_heads = kv_heads;
  options.head_dim = head_dim;
  return options;
}

Tensor positions_of(Context& context, const std::vector<int32_t>& positions) {
  return context.from_values<int32_t>(positions, {static_cast<int64_t>(positions.size())});
}

TEST(Rotary, RotatesPairsOfHalves) {
  const auto context = cpu_context();
  const std::vector<double> x = {1, 0, 0, 2};  // the pairs (1, 0) and (0, 2)
  const Tensor y = ops::rotary(*context, context->from_values<double>(x, {1, 4}),
                               positions_of(*context, {3}), options_of(1, 0, 4));
  const double fast = 3, slow = 3 * 0.01;  // 10000^(-2/4)
  const std::vector<double> expected = {std::cos(fast), -2 * std::sin(slow), std::sin(fast),
                                        2 * std::cos(slow)};
  EXPECT_LT(relative_error(doubles(y), expected), 1e-15);
}

// The score of a query and a key depends on their distance alone.
TEST(Rotary, ScoresDependOnDistances) {
  const auto context = cpu_context();
  InputMaker make(*context, DType::f64, 3);
  const Tensor q = make.uniform({1, 32}), k = make.uniform({1, 32});
  const auto product = [&](int32_t at_q, int32_t at_k) {
    const auto options = options_of(1, 0, 32);
    const auto a = doubles(ops::rotary(*context, q, positions_of(*context, {at_q}), options));
    const auto b = doubles(ops::rotary(*context, k, positions_of(*context, {at_k}), options));
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  EXPECT_NEAR(product(7, 2), product(105, 100), 1e-12);
  EXPECT_NEAR(product(0, 40), product(1000, 1040), 1e-12);
  EXPECT_GT(std::abs(product(7, 2) - product(7, 3)), 1e-3);
}

TEST(Rotary, QueriesAndKeysAreRotatedAndValuesAreNot) {
  const auto context = cpu_context();
  InputMaker make(*context, DType::f64, 5);
  const int64_t heads = 4, kv = 2, dim = 4;
  const Tensor x = make.uniform({1, (heads + 2 * kv) * dim});
  const auto in = doubles(x);
  const auto y =
      doubles(ops::rotary(*context, x, positions_of(*context, {9}), options_of(heads, kv, dim)));
  const Tensor alone = ops::slice(*context, x, 1, 0, (heads + kv) * dim);
  const auto rotated =
      doubles(ops::rotary(*context, alone, positions_of(*context, {9}), options_of(6, 0, dim)));
  ASSERT_EQ(y.size(), 32u);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(y[i], i < 24 ? rotated[i] : in[i]) << i;
}

TEST(Rotary, InPlaceGivesTheSame) {
  const auto context = cpu_context();
  for (const int64_t kv : {0, 2}) {
    InputMaker make(*context, DType::f32, 8);
    const Tensor x = make.uniform({5, (2 + 2 * kv) * 10});
    const Tensor positions = positions_of(*context, {0, 1, 2, 0, 17});
    ops::RotaryOptions options = options_of(2, kv, 10);
    const auto apart = doubles(ops::rotary(*context, x, positions, options));
    options.in_place = true;
    const Tensor y = ops::rotary(*context, x, positions, options);
    EXPECT_EQ(y.raw(), x.raw());
    EXPECT_EQ(doubles(y), apart);
  }
}

// Values of _compute_yarn_parameters of transformers 5.23, in float32.
TEST(Rotary, AnglesOfYarn) {
  RotaryAngles angles{.theta = 1e6,
                      .factor = 4,
                      .original_positions = 1024,
                      .low_turns = kYarnSlow,
                      .high_turns = kYarnFast,
                      .scaling = RopeScaling::yarn};
  const auto expect = [&](const std::vector<double>& expected) {
    for (int64_t pair = 0; pair < std::ssize(expected); ++pair) {
      const double wanted = expected[static_cast<size_t>(pair)];
      EXPECT_NEAR(angles.of_pair(pair, 16), wanted, 2e-7 * wanted) << pair;
    }
  };
  expect({1.0, 0.13337095, 0.015811389, 0.0014058533, 0.00025000001, 4.4456985e-05, 7.9056936e-06,
          1.4058534e-06});
  angles = {.theta = 1e4,
            .factor = 8,
            .original_positions = 64,
            .low_turns = 0.5,
            .high_turns = 4,
            .scaling = RopeScaling::yarn};
  expect({1.0, 0.22399466, 0.041666664, 0.0039528473, 0.00125, 0.00039528473, 0.00012500001,
          3.9528473e-05});
  EXPECT_NEAR(yarn_magnitude(4), 1.138629436111989, 1e-15);
  EXPECT_NEAR(yarn_magnitude(8, 1.0) / yarn_magnitude(8, 0.5), 1.094179988101349, 1e-15);
  // All turns in one pair: an end of the ramp is not the other.
  angles.low_turns = 1e3;
  angles.high_turns = 2e3;
  for (int64_t pair = 0; pair < 8; ++pair) EXPECT_TRUE(std::isfinite(angles.of_pair(pair, 16)));
}

TEST(Rotary, AMagnitudeMultipliesWhatIsRotated) {
  const auto context = cpu_context();
  InputMaker make(*context, DType::f64, 6);
  const Tensor x = make.uniform({2, 8 * 4});
  ops::RotaryOptions options = options_of(2, 1, 8);
  const Tensor positions = positions_of(*context, {5, 90});
  const auto plain = doubles(ops::rotary(*context, x, positions, options));
  options.angles.magnitude = 1.25;
  const auto grown = doubles(ops::rotary(*context, x, positions, options));
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_NEAR(grown[i], (i % 32 < 24 ? 1.25 : 1) * plain[i], 1e-15) << i;
  options.angles.magnitude = 0;
  expect_error(ErrorCode::invalid_argument, "magnitude must be above 0",
               [&] { ops::rotary(*context, x, positions, options); });
}

// Expected factors are 1 + 0.5 ln(1 + floor(p / 8)).
TEST(Rotary, QueriesOfFarPositionsGrow) {
  const auto context = cpu_context();
  InputMaker make(*context, DType::f64, 6);
  ops::RotaryOptions options = options_of(2, 1, 8);
  const Tensor x = make.uniform({5, 8 * 4}),
               positions = positions_of(*context, {-9, 7, 8, 23, 4000000});
  const auto plain = doubles(ops::rotary(*context, x, positions, options));
  options.angles.query_growth = 0.5;
  options.angles.original_positions = 8;
  const auto grown = doubles(ops::rotary(*context, x, positions, options));
  const double factors[] = {1, 1, 1.3465735902799727, 1.549306144334055, 7.561182688701164};
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_NEAR(grown[i], (i % 32 < 16 ? factors[i / 32] : 1) * plain[i], 1e-14) << i;
  for (const auto& [growth, original] : {std::pair{0.5, 0}, {-0.5, 8}}) {
    options.angles.query_growth = growth;
    options.angles.original_positions = original;
    expect_error(ErrorCode::invalid_argument, "query_growth must be 0, or above 0 with",
                 [&] { ops::rotary(*context, x, positions, options); });
  }
}

TEST(Rotary, NegativePositionsRotateBack) {
  const auto context = cpu_context();
  InputMaker make(*context, DType::f64, 6);
  const Tensor x = make.uniform({2, 8});
  const auto options = options_of(1, 0, 8);
  const Tensor there = ops::rotary(*context, x, positions_of(*context, {5, 90}), options);
  const Tensor back = ops::rotary(*context, there, positions_of(*context, {-5, -90}), options);
  EXPECT_LT(relative_error(doubles(back), doubles(x)), 1e-14);
}

TEST(Rotary, BadInputIsNamed) {
  const auto context = cpu_context();
  const Tensor x = filled(*context, {3, 16}, 1), positions = positions_of(*context, {0, 1, 2});
  const auto run = [&](const Tensor& at, const ops::RotaryOptions& options) {
    return [&, at, options] { ops::rotary(*context, x, at, options); };
  };
  expect_error(ErrorCode::invalid_argument, "head_dim must be even",
               run(positions, options_of(2, 0, 3)));
  expect_error(ErrorCode::shape_mismatch, "x must be [T, 24]", run(positions, options_of(3, 0, 8)));
  expect_error(ErrorCode::shape_mismatch, "x must be [T, 56]", run(positions, options_of(3, 2, 8)));
  expect_error(ErrorCode::shape_mismatch, "positions must be [3]",
               run(positions_of(*context, {0, 1}), options_of(2, 0, 8)));
  expect_error(ErrorCode::dtype_mismatch, "positions must be int32",
               run(filled(*context, {3}, 0), options_of(2, 0, 8)));
  auto options = options_of(2, 0, 8);
  options.angles.theta = 0;
  expect_error(ErrorCode::invalid_argument, "theta must be above 0", run(positions, options));
}

class RotaryOnCuda : public CudaTest {};

TEST_F(RotaryOnCuda, InPlaceGivesTheSame) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t dim : {10, 64}) {
      std::vector<double> values(static_cast<size_t>(300 * 6 * dim));
      PhiloxStream random(2, 2);
      for (double& value : values) value = random.normal();
      std::vector<int32_t> at(300);
      for (size_t i = 0; i < at.size(); ++i) at[i] = static_cast<int32_t>(i * 7 % 2000);
      const Tensor x = context_->from_doubles(values, {300, 6 * dim}, dtype);
      const Tensor positions = positions_of(*context_, at);
      ops::RotaryOptions options = options_of(2, 2, dim);
      const auto apart = download(ops::rotary(*context_, x, positions, options));
      options.in_place = true;
      EXPECT_EQ(download(ops::rotary(*context_, x, positions, options)), apart);
    }
}

}  // namespace
}  // namespace trafo::testing
