// FP8 matrices, their GEMM and the vocabulary loss made of them: on the CPU, whose kernels are the
// definition, and on a GPU with TRAFO_TEST_DEVICE=cuda. A card without FP8 skips.
#include "engine/ops/fp8/fp8_linear.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/core/numeric/philox.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/matmul/matmul.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo::testing {
namespace {

using Doubles = std::vector<double>;

double largest_of(const Doubles& values) {
  double top = 0;
  for (const double value : values) top = std::max(top, std::abs(value));
  return top;
}

struct Fp8Place {
  const char* name;
  std::unique_ptr<Context> (*make)();
  DType dtype;      // that the loss is computed in
  double rounding;  // of its results
};

class Fp8OnDevice : public ::testing::TestWithParam<Fp8Place> {
 protected:
  void SetUp() override {
    context_ = GetParam().make();
    if (!context_) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
    try {
      ops::require_fp8_device(*context_, "test");
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::unsupported) << error.what();
      GTEST_SKIP() << error.message();
    }
  }
  DType dtype() const { return GetParam().dtype; }

  Doubles uniform(size_t count, double low, double high, uint64_t seed) const {
    PhiloxStream random(11, seed);
    Doubles values(count);
    for (double& value : values)
      value = static_cast<double>(
          BFloat16::from_float(static_cast<float>(random.uniform(low, high))).to_float());
    return values;
  }
  Tensor upload(const Doubles& values, const Shape& shape, DType dtype) const {
    return context_->from_doubles(values, shape, dtype);
  }
  Doubles download(const Tensor& tensor) const {
    if (tensor.dtype() == DType::f32) {
      const auto values = context_->values<float>(tensor);
      return {values.begin(), values.end()};
    }
    Doubles out;
    for (const BFloat16 value : context_->values<BFloat16>(tensor))
      out.push_back(static_cast<double>(value.to_float()));
    return out;
  }
  std::vector<uint8_t> bytes(const Tensor& tensor, size_t count) const {
    const auto words = context_->values<int32_t>(tensor);
    const auto* begin = reinterpret_cast<const uint8_t*>(words.data());
    return {begin, begin + count};
  }

  // The scale belongs to `factor` times the largest magnitude.
  void expect_copies(const Doubles& stored, const ops::Fp8Matrix& m, double factor = 1) const {
    SCOPED_TRACE(concat(m.rows, " x ", m.columns));
    const double top = largest_of(stored) * factor;
    const double largest = m.format == Fp8Format::e4m3 ? 448 : 57344;
    const double scale = std::exp2(std::floor(std::log2(largest / top)));
    EXPECT_EQ(download(m.scale), (Doubles{1 / scale, scale}));
    const int64_t rows = padded_fp8(m.rows), columns = padded_fp8(m.columns);
    const auto straight = bytes(m.values, static_cast<size_t>(rows * columns));
    const auto turned = bytes(m.transposed, static_cast<size_t>(rows * columns));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        uint8_t wanted = 0;
        if (row < m.rows && column < m.columns) {
          const double value = stored[static_cast<size_t>(row * m.columns + column)];
          wanted = float_to_fp8(static_cast<float>(value * scale), m.format);
        }
        ASSERT_EQ(straight[static_cast<size_t>(row * columns + column)], wanted)
            << row << ", " << column;
        ASSERT_EQ(turned[static_cast<size_t>(column * rows + row)], wanted)
            << row << ", " << column;
      }
  }

  std::unique_ptr<Context> context_;
};

INSTANTIATE_TEST_SUITE_P(Devices, Fp8OnDevice,
                         ::testing::Values(Fp8Place{"Cpu",
                                                    [] {
                                                      return make_context({DeviceKind::cpu, 0}, 2);
                                                    },
                                                    DType::f32, 1e-5},
                                           Fp8Place{"Cuda", &cuda_context, DType::bf16, 0x1p-8}),
                         [](const auto& instance) { return std::string(instance.param.name); });

// --- scales and values ---

TEST_P(Fp8OnDevice, ScalesAreOfTheLargestMagnitude) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const size_t count : {1u, 7u, 8u, 9u, 1000u, 40'000u, 3'000'001u})
      for (const size_t at : {size_t{0}, count / 2, count - 1})
        for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
          Doubles values = uniform(count, -0.5, 0.5, count);
          values[at] = at % 2 == 0 ? -3.0 : 3.0;
          const Tensor v = upload(values, {static_cast<int64_t>(count)}, dtype);
          const Tensor scale = context_->empty({2}, DType::f32);
          const double factor = -0x1.8p-3;
          launch(*context_, OpKernel::fp8_scale, "test",
                 Fp8ScaleParams{dtype, format, v.numel(), v.raw(), factor,
                                static_cast<float*>(scale.raw())});
          const double bound = 3 * 0x1.8p-3, top = format == Fp8Format::e4m3 ? 448 : 57344;
          const double wanted = std::exp2(std::floor(std::log2(top / bound)));
          EXPECT_EQ(download(scale), (Doubles{1 / wanted, wanted})) << count << ", " << at;
        }
}

// More matrices than one launch takes, of all sorts of sizes: both copies have zeros as padding.
TEST_P(Fp8OnDevice, ValuesAreThoseOfTheDefinition) {
  struct Size {
    int64_t rows, columns;
  };
  const Size sizes[] = {{1, 1},     {3, 5},  {16, 16},  {48, 80}, {130, 64}, {128, 64},
                        {144, 208}, {7, 48}, {300, 33}, {8, 24},  {257, 8},  {0, 16}};
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
      std::vector<Tensor> inputs;
      std::vector<ops::Fp8Matrix> matrices;
      std::vector<Fp8Item> items;
      for (int copy = 0; copy < 6; ++copy)
        for (const Size size : sizes) {
          const auto count = static_cast<size_t>(size.rows * size.columns);
          Doubles values = uniform(count, -2 - copy, 2 + copy, count + static_cast<size_t>(copy));
          for (size_t i = 1; i < count; i += 3)
            values[i] *= std::exp2(-static_cast<double>(i % 40));
          inputs.push_back(upload(values, {size.rows, size.columns}, dtype));
          matrices.push_back(
              ops::fp8_matrix(*context_, format, size.rows, size.columns, ops::Fp8Copies::both));
          items.push_back(ops::fp8_item(inputs.back(), matrices.back()));
        }
      launch(*context_, OpKernel::fp8_quantize, "test",
             Fp8QuantizeParams{dtype, format, static_cast<int64_t>(items.size()), items.data()});
      for (size_t i = 0; i < items.size(); ++i) {
        if (items[i].rows > 0) expect_copies(download(inputs[i]), matrices[i]);
      }
    }
}

// The magnitude that a producer recorded is used unchanged, beside matrices whose largest magnitude
// is not known.
TEST_P(Fp8OnDevice, AKnownLargestMagnitudeIsTaken) {
  struct Size {
    int64_t rows, columns;
  };
  const Size sizes[] = {{128, 64}, {3, 5}, {300, 136}, {256, 192}, {130, 33}, {16, 16}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<Tensor> inputs, places;
    std::vector<ops::Fp8Matrix> matrices;
    std::vector<Fp8Item> items;
    std::vector<double> factors;
    for (int i = 0; i < 24; ++i) {
      const Size size = sizes[i % 6];
      const auto count = static_cast<size_t>(size.rows * size.columns);
      const Doubles values = uniform(count, -2, 2, count + static_cast<size_t>(i));
      inputs.push_back(upload(values, {size.rows, size.columns}, dtype));
      matrices.push_back(ops::fp8_matrix(*context_, Fp8Format::e4m3, size.rows, size.columns,
                                         ops::Fp8Copies::both));
      items.push_back(ops::fp8_item(inputs.back(), matrices.back()));
      factors.push_back(i % 3 == 0 ? 8 : 1);  // as if there were larger ones
      const auto top = static_cast<float>(largest_of(download(inputs.back())) * factors.back());
      const int32_t bits = std::bit_cast<int32_t>(top);
      places.push_back(context_->from_values<int32_t>({&bits, 1}, {1}));
      if (i % 3 != 1) items.back().largest = static_cast<const uint32_t*>(places.back().raw());
    }
    launch(*context_, OpKernel::fp8_quantize, "test",
           Fp8QuantizeParams{dtype, Fp8Format::e4m3, static_cast<int64_t>(items.size()),
                             items.data()});
    for (size_t i = 0; i < items.size(); ++i)
      expect_copies(download(inputs[i]), matrices[i], factors[i]);
  }
}

// One value that is not finite makes all of them NaN, so that a loss made of them is.
TEST_P(Fp8OnDevice, WhatIsNotFiniteSpreads) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()}) {
    Doubles values = uniform(32 * 48, -1, 1, 5);
    values[777] = bad;
    const ops::Fp8Matrix m = ops::to_fp8(*context_, "test", upload(values, {32, 48}, dtype()),
                                         Fp8Format::e4m3, ops::Fp8Copies::both);
    for (const double scale : download(m.scale)) EXPECT_TRUE(std::isnan(scale));
    for (const Tensor& tensor : {m.values, m.transposed})
      for (const uint8_t bits : bytes(tensor, values.size()))
        ASSERT_TRUE(std::isnan(fp8_to_float(bits, Fp8Format::e4m3)));
  }
}

// --- the product ---

TEST_P(Fp8OnDevice, GemmsAreThoseOfTheValues) {
  struct Size {
    int64_t m, n, k;
  };
  for (const Size size : {Size{1, 16, 16}, Size{5, 32, 48}, Size{64, 128, 256}, Size{77, 208, 512}})
    for (const bool has_bias : {false, true}) {
      const auto count_a = static_cast<size_t>(size.m * size.k);
      const auto count_b = static_cast<size_t>(size.n * size.k);
      const Tensor a = upload(uniform(count_a, -3, 3, 1), {size.m, size.k}, dtype());
      const Tensor b = upload(uniform(count_b, -0.1, 0.1, 2), {size.n, size.k}, dtype());
      const Tensor bias = upload(uniform(static_cast<size_t>(size.n), -1, 1, 3), {size.n}, dtype());
      const ops::Fp8Matrix q =
          ops::to_fp8(*context_, "test", b, Fp8Format::e4m3, ops::Fp8Copies::stored);
      for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
        const ops::Fp8Matrix p = ops::to_fp8(*context_, "test", a, format, ops::Fp8Copies::stored);
        const Tensor c = context_->empty({size.m, size.n}, dtype());
        ops::fp8_product(*context_, "test", p.as_stored(), q.as_stored(), size.m, dtype(), c.raw(),
                         has_bias ? bias : Tensor{});
        const auto x = bytes(p.values, count_a), w = bytes(q.values, count_b);
        const double scale = download(p.scale)[0] * download(q.scale)[0];
        const Doubles result = download(c), added = download(bias);
        Doubles twice;  // as of a gradient: float32, added to what is there
        if (!has_bias) {
          const Tensor sums = context_->zeros({size.m, size.n}, DType::f32);
          for (int i = 0; i < 2; ++i)
            ops::fp8_product(*context_, "test", p.as_stored(), q.as_stored(), size.m, DType::f32,
                             sums.raw(), {}, true);
          twice = download(sums);
        }
        for (int64_t i = 0; i < size.m; ++i)
          for (int64_t j = 0; j < size.n; ++j) {
            double sum = 0, magnitude = 0;
            for (int64_t l = 0; l < size.k; ++l) {
              const double term = scale *
                                  static_cast<double>(fp8_to_float(
                                      x[static_cast<size_t>(i * size.k + l)], format)) *
                                  static_cast<double>(fp8_to_float(
                                      w[static_cast<size_t>(j * size.k + l)], q.format));
              sum += term;
              magnitude += std::abs(term);
            }
            if (has_bias) sum += added[static_cast<size_t>(j)];
            // Fast accumulation cuts the running sum off after 13 bits or so in each step of 32.
            ASSERT_NEAR(result[static_cast<size_t>(i * size.n + j)], sum,
                        GetParam().rounding * std::abs(sum) + 0x1p-10 * magnitude)
                << size.m << " x " << size.n << " x " << size.k << " at " << i << ", " << j;
            if (has_bias) continue;
            ASSERT_NEAR(twice[static_cast<size_t>(i * size.n + j)], 2 * sum,
                        1e-5 * std::abs(sum) + 0x1p-9 * magnitude)
                << i << ", " << j;
          }
      }
    }
}

// --- a linear layer ---

struct Fp8LinearRun {
  Doubles y, dx, dweight, dbias;
};

Fp8LinearRun run_fp8_linear(Context& context, const Doubles& x, const Doubles& weight,
                            const Doubles& bias, const Doubles& upstream, DType dtype, bool fp8) {
  const auto out = static_cast<int64_t>(bias.size());
  const auto in = static_cast<int64_t>(weight.size()) / out;
  const auto rows = static_cast<int64_t>(x.size()) / in;
  Tensor a = context.from_doubles(x, {rows / 2, 2, in}, dtype);
  Tensor w = context.from_doubles(weight, {out, in}, dtype);
  Tensor b = context.from_doubles(bias, {out}, dtype);
  for (Tensor* tensor : {&a, &w, &b}) set_requires_grad(*tensor, true);
  Tensor y;
  if (fp8)
    y = ops::fp8_linear(context, a, w,
                        ops::to_fp8(context, "test", w, Fp8Format::e4m3, ops::Fp8Copies::both), b);
  else
    y = ops::linear(context, a, w, b);
  context.backward(y, context.from_doubles(upstream, y.shape(), dtype));
  const auto values = [&](const Tensor& tensor) {
    Doubles all;
    if (tensor.dtype() == DType::f64) return context.values<double>(tensor);
    if (tensor.dtype() == DType::f32)
      for (const float value : context.values<float>(tensor))
        all.push_back(static_cast<double>(value));
    else
      for (const BFloat16 value : context.values<BFloat16>(tensor))
        all.push_back(static_cast<double>(value.to_float()));
    return all;
  };
  return {values(y), values(grad_of(a)), values(grad_of(w)), values(grad_of(b))};
}

double relative_distance(const Doubles& a, const Doubles& b) {
  EXPECT_EQ(a.size(), b.size());
  double apart = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(apart / size);
}

Doubles through_fp8(const Doubles& values, Fp8Format format, double bound) {
  const double top = format == Fp8Format::e4m3 ? 448 : 57344;
  const double scale = std::exp2(std::floor(std::log2(top / bound)));
  Doubles out;
  for (const double value : values)
    out.push_back(static_cast<double>(fp8_to_float(
                      float_to_fp8(static_cast<float>(value * scale), format), format)) /
                  scale);
  return out;
}

// y, dx and dW equal ops::linear's for x, W and dy rounded to FP8, db for unrounded ones. Rows that
// are no multiple of 16 are padded in dW.
TEST_P(Fp8OnDevice, ALinearLayerIsThatOfItsDefinition) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 2);
  struct Size {
    size_t rows, in, out;
  };
  for (const Size size : {Size{2, 16, 16}, Size{34, 48, 96}, Size{130, 256, 64}}) {
    SCOPED_TRACE(concat(size.rows, " x ", size.in, " x ", size.out));
    const Doubles x = uniform(size.rows * size.in, -2, 2, 1);
    const Doubles weight = uniform(size.out * size.in, -0.2, 0.2, 2);
    const Doubles bias = uniform(size.out, -1, 1, 3);
    const Doubles dy = uniform(size.rows * size.out, -1e-3, 1e-3, 4);
    const auto narrow = [](const Doubles& values, Fp8Format format) {
      return through_fp8(values, format, largest_of(values));
    };
    const Fp8LinearRun actual = run_fp8_linear(*context_, x, weight, bias, dy, dtype(), true);
    const Fp8LinearRun rounded =
        run_fp8_linear(*cpu, narrow(x, Fp8Format::e4m3), narrow(weight, Fp8Format::e4m3), bias,
                       narrow(dy, Fp8Format::e5m2), DType::f64, false);
    const Fp8LinearRun exact = run_fp8_linear(*cpu, x, weight, bias, dy, DType::f64, false);
    const double rounding = 2 * GetParam().rounding + 0x1p-12;
    EXPECT_LT(relative_distance(actual.y, rounded.y), rounding);
    EXPECT_LT(relative_distance(actual.dx, rounded.dx), rounding);
    EXPECT_LT(relative_distance(actual.dweight, rounded.dweight), rounding);
    EXPECT_LT(relative_distance(actual.dbias, exact.dbias), rounding);
    EXPECT_LT(relative_distance(actual.dweight, exact.dweight), 0.125);
    EXPECT_LT(relative_distance(actual.y, exact.y), 0.125);
    EXPECT_LT(relative_distance(actual.dx, exact.dx), 0.125);
  }
}

// A value that is recomputed instead of kept for backward has the same bits, and is computed once.
TEST_P(Fp8OnDevice, ALinearLayerTakesRecomputedInput) {
  constexpr int64_t kTokens = 21, kIn = 32, kOut = 48;
  const Tensor x = upload(uniform(kTokens * kIn, -2, 2, 1), {kTokens, kIn}, dtype());
  const Tensor weight = upload(uniform(kOut * kIn, -0.2, 0.2, 2), {kOut, kIn}, dtype());
  const Tensor dy = upload(uniform(kTokens * kOut, -1e-3, 1e-3, 3), {kTokens, kOut}, dtype());
  const ops::Fp8Matrix narrow =
      ops::to_fp8(*context_, "test", weight, Fp8Format::e4m3, ops::Fp8Copies::both);
  int again = 0;
  const auto gradients = [&](bool recomputes) {
    Tensor in = x.detach(), w = weight.detach();
    set_requires_grad(in, true);
    set_requires_grad(w, true);
    if (recomputes)
      in.variable()->recompute = [&](Context&) {
        ++again;
        return x;
      };
    context_->backward(ops::fp8_linear(*context_, in, w, narrow), dy);
    return std::pair(download(grad_of(in)), download(grad_of(w)));
  };
  const auto kept = gradients(false);
  EXPECT_EQ(again, 0);
  EXPECT_EQ(gradients(true), kept);
  EXPECT_EQ(again, 1);
}

TEST_P(Fp8OnDevice, ALinearLayerNamesAWeightThatIsNotItsOwn) {
  const Tensor x = context_->zeros({4, 16}, dtype()), w = context_->zeros({32, 16}, dtype());
  const Tensor other = context_->zeros({16, 16}, dtype());
  try {
    ops::fp8_linear(*context_, x, w,
                    ops::to_fp8(*context_, "test", other, Fp8Format::e4m3, ops::Fp8Copies::both));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::shape_mismatch);
    EXPECT_NE(error.message().find("the FP8 weight is [16, 16]"), std::string::npos)
        << error.what();
  }
}

// --- the vocabulary loss ---

struct Fp8LossCase {
  int64_t rows, width, classes;
  double smoothing;
  bool bias, weights;
  bool taught = false;
};

struct Fp8LossRun {
  double loss = 0;
  Doubles dx, dweight, dbias;
};

class Fp8Loss : public Fp8OnDevice {
 protected:
  struct Inputs {
    Doubles x, weight, bias, weights;
    std::vector<int32_t> labels;
  };
  static constexpr int32_t kIgnored = -100;

  Inputs inputs(const Fp8LossCase& c) const {
    Inputs in;
    in.x = uniform(static_cast<size_t>(c.rows * c.width), -2, 2, 1);
    in.weight = uniform(static_cast<size_t>(c.classes * c.width), -0.3, 0.3, 2);
    in.bias = uniform(static_cast<size_t>(c.classes), -0.5, 0.5, 3);
    in.weights = uniform(static_cast<size_t>(c.rows), 0.25, 2, 4);
    for (int64_t t = 0; t < c.rows; ++t)
      in.labels.push_back(t % 7 == 3 ? kIgnored : static_cast<int32_t>(t * 37 % c.classes));
    return in;
  }

  Fp8LossRun run(Context& context, const Fp8LossCase& c, const Inputs& in, DType dtype, bool fp8,
                 int64_t chunk_rows) const {
    Tensor x = context.from_doubles(in.x, {c.rows, c.width}, dtype);
    Tensor weight = context.from_doubles(in.weight, {c.classes, c.width}, dtype);
    Tensor bias = c.bias ? context.from_doubles(in.bias, {c.classes}, dtype) : Tensor{};
    for (Tensor* tensor : {&x, &weight, &bias})
      if (tensor->defined()) set_requires_grad(*tensor, true);
    x.variable()->grad_dtype = dtype;
    ops::LinearCrossEntropyOptions options;
    std::optional<ops::Fp8Matrix> narrow;
    if (fp8)
      options.fp8_weight = &narrow.emplace(ops::to_fp8(
          context, "test", context.from_doubles(in.weight, {c.classes, c.width}, this->dtype()),
          Fp8Format::e4m3, ops::Fp8Copies::both));
    if (c.taught) options.teacher = teacher(context, c, dtype);
    options.loss.label_smoothing = c.smoothing;
    options.loss.reduction = Reduction::sum;
    options.loss.scale = 1.0 / static_cast<double>(c.rows);
    options.chunk_bytes = chunk_rows * c.classes * static_cast<int64_t>(dtype_size(dtype));
    if (c.weights)
      options.loss.weights = context.from_doubles(in.weights, {c.rows}, stat_dtype(dtype));
    const Tensor labels = context.from_values<int32_t>(in.labels, {c.rows});
    const auto out = ops::linear_cross_entropy(context, x, weight, bias, labels, options);
    context.backward(out.loss);
    const auto values = [&](const Tensor& tensor) {
      if (tensor.dtype() == DType::f64) return context.values<double>(tensor);
      return download(tensor);
    };
    Fp8LossRun result;
    result.loss = context.item(out.loss);
    result.dx = values(grad_of(x));
    result.dweight = values(grad_of(weight));
    if (c.bias) result.dbias = values(grad_of(bias));
    return result;
  }

  // Learned from with half of the loss.
  ops::DistillationTeacher teacher(Context& context, const Fp8LossCase& c, DType dtype) const {
    ops::DistillationTeacher teacher;
    teacher.x = context.from_doubles(uniform(static_cast<size_t>(c.rows * 8), -2, 2, 6),
                                     {c.rows, 8}, dtype);
    teacher.weight = context.from_doubles(uniform(static_cast<size_t>(c.classes * 8), -1, 1, 7),
                                          {c.classes, 8}, dtype);
    return teacher;
  }

  // The definition of the op, in float64 but for the values that are FP8.
  static Fp8LossRun definition(const Fp8LossCase& c, const Inputs& in) {
    const auto rows = static_cast<size_t>(c.rows), width = static_cast<size_t>(c.width),
               classes = static_cast<size_t>(c.classes);
    const Doubles x = through_fp8(in.x, Fp8Format::e4m3, largest_of(in.x));
    const Doubles weight = through_fp8(in.weight, Fp8Format::e4m3, largest_of(in.weight));
    Fp8LossRun out;
    out.dx.assign(rows * width, 0);
    out.dweight.assign(classes * width, 0);
    out.dbias.assign(classes, 0);
    const double scale = 1.0 / static_cast<double>(c.rows);
    const double bound = scale * (c.weights ? largest_of(in.weights) : 1);
    for (size_t t = 0; t < rows; ++t) {
      if (in.labels[t] == kIgnored) continue;
      const auto label = static_cast<size_t>(in.labels[t]);
      Doubles logits(classes), d(classes);
      double total = 0, sum = 0;
      for (size_t v = 0; v < classes; ++v) {
        double logit = c.bias ? in.bias[v] : 0;
        for (size_t i = 0; i < width; ++i) logit += x[t * width + i] * weight[v * width + i];
        logits[v] = logit;
        total += logit;
        sum += std::exp(logit);
      }
      const double lse = std::log(sum), count = static_cast<double>(classes);
      const double factor = scale * (c.weights ? in.weights[t] : 1);
      out.loss += factor *
                  ((1 - c.smoothing) * (lse - logits[label]) + c.smoothing * (lse - total / count));
      for (size_t v = 0; v < classes; ++v)
        d[v] = factor * (std::exp(logits[v] - lse) - c.smoothing / count -
                         (v == label ? 1 - c.smoothing : 0));
      const Doubles narrow = through_fp8(d, Fp8Format::e5m2, bound);
      for (size_t v = 0; v < classes; ++v) {
        out.dbias[v] += d[v];
        for (size_t i = 0; i < width; ++i) {
          out.dx[t * width + i] += narrow[v] * weight[v * width + i];
          out.dweight[v * width + i] += d[v] * in.x[t * width + i];
        }
      }
    }
    return out;
  }

  static std::vector<Fp8LossCase> cases() {
    return {{24, 32, 48, 0, false, false},
            {53, 64, 208, 0.1, true, true},
            {40, 96, 1008, 0, false, true},
            {9, 16, 4112, 0.1, true, false},
            {5, 16, 20'000, 0, false, true},
            // With padding after the classes.
            {24, 32, 50, 0, false, false},
            {53, 64, 203, 0.1, true, true},
            {40, 96, 1001, 0.1, false, true},
            {9, 16, 4127, 0, true, false},
            {5, 16, 20'001, 0.1, false, true}};
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, Fp8Loss,
                         ::testing::Values(Fp8Place{"Cpu",
                                                    [] {
                                                      return make_context({DeviceKind::cpu, 0}, 2);
                                                    },
                                                    DType::f32, 1e-5},
                                           Fp8Place{"Cuda", &cuda_context, DType::bf16, 0x1p-8}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(Fp8Loss, IsThatOfItsDefinition) {
  for (const Fp8LossCase& c : cases()) {
    SCOPED_TRACE(concat(c.rows, " x ", c.width, " x ", c.classes));
    const Inputs in = inputs(c);
    const Fp8LossRun expected = definition(c, in);
    const Fp8LossRun actual = run(*context_, c, in, dtype(), true, 17);
    // Logits, their gradients and dx are rounded to bfloat16 on a GPU. A gradient next to a border
    // between two FP8 values may fall on either side.
    const double rounding = GetParam().rounding;
    EXPECT_NEAR(actual.loss, expected.loss, 2 * rounding * expected.loss);
    EXPECT_LT(relative_distance(actual.dweight, expected.dweight), 4 * rounding);
    EXPECT_LT(relative_distance(actual.dx, expected.dx), 4 * rounding + 1e-3);
    if (c.bias) {
      EXPECT_LT(relative_distance(actual.dbias, expected.dbias), 4 * rounding);
    }
  }
}

// The bounds of the documentation. A value in E4M3 is off by 2^-4 of itself at most, or by 2^-10 of
// the step below the smallest normal number; a product of two by little more than 2^-3.
TEST_P(Fp8Loss, IsWithinTheBoundsOfFloat64) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 2);
  for (const Fp8LossCase& c : cases()) {
    SCOPED_TRACE(concat(c.rows, " x ", c.width, " x ", c.classes));
    const Inputs in = inputs(c);
    const Fp8LossRun exact = run(*cpu, c, in, DType::f64, false, c.rows);
    const Fp8LossRun actual = run(*context_, c, in, dtype(), true, c.rows);
    double furthest = 0;  // sum |x w| of a logit
    for (int64_t t = 0; t < c.rows; ++t)
      for (int64_t v = 0; v < c.classes; ++v) {
        double sum = 0;
        for (int64_t i = 0; i < c.width; ++i)
          sum += std::abs(in.x[static_cast<size_t>(t * c.width + i)] *
                          in.weight[static_cast<size_t>(v * c.width + i)]);
        furthest = std::max(furthest, sum);
      }
    EXPECT_LT(std::abs(actual.loss - exact.loss), 2 * (0x1p-3 + 0x1p-6) * furthest);
    EXPECT_LT(relative_distance(actual.dx, exact.dx), 0.125);
    EXPECT_LT(relative_distance(actual.dweight, exact.dweight), 0.125);
    EXPECT_GT(relative_distance(actual.dx, exact.dx), 1e-3);  // it was FP8
  }
}

TEST_P(Fp8Loss, ChunksChangeLittleAndRunsNothing) {
  const Fp8LossCase c{61, 64, 208, 0.1, true, true};
  const Inputs in = inputs(c);
  const Fp8LossRun whole = run(*context_, c, in, dtype(), true, 1000);
  for (const int64_t rows : {7, 16, 61}) {
    const Fp8LossRun chunked = run(*context_, c, in, dtype(), true, rows);
    const Fp8LossRun again = run(*context_, c, in, dtype(), true, rows);
    EXPECT_NEAR(chunked.loss, whole.loss, 1e-5 * whole.loss);
    EXPECT_LT(relative_distance(chunked.dx, whole.dx), 1e-5);
    EXPECT_LT(relative_distance(chunked.dweight, whole.dweight), 1e-5);
    EXPECT_EQ(again.loss, chunked.loss);
    EXPECT_EQ(again.dx, chunked.dx);
    EXPECT_EQ(again.dweight, chunked.dweight);
    EXPECT_EQ(again.dbias, chunked.dbias);
  }
}

TEST_P(Fp8Loss, WhatIsNotFiniteIsSeenInTheLoss) {
  const Fp8LossCase c{24, 32, 48, 0, false, false};
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Inputs in = inputs(c);
    in.x[5] = bad;
    EXPECT_FALSE(std::isfinite(run(*context_, c, in, dtype(), true, 100).loss));
    in = inputs(c);
    in.weight[7] = bad;
    EXPECT_FALSE(std::isfinite(run(*context_, c, in, dtype(), true, 100).loss));
  }
}

// With a teacher the logits are FP8 and dx is not. Padding follows both rows of logits.
TEST_P(Fp8Loss, ATeacherGoesWithPaddingToo) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 2);
  for (const int64_t classes : {48, 50, 203, 2001}) {
    SCOPED_TRACE(classes);
    const Fp8LossCase c{37, 32, classes, 0.1, true, true, true};
    Inputs in = inputs(c);
    const Fp8LossRun actual = run(*context_, c, in, dtype(), true, 16);
    in.x = through_fp8(in.x, Fp8Format::e4m3, largest_of(in.x));
    in.weight = through_fp8(in.weight, Fp8Format::e4m3, largest_of(in.weight));
    const Fp8LossRun rounded = run(*cpu, c, in, DType::f64, false, 16);
    EXPECT_NEAR(actual.loss, rounded.loss, 2 * GetParam().rounding * rounded.loss);
    EXPECT_LT(relative_distance(actual.dbias, rounded.dbias), 4 * GetParam().rounding);
    // Their factors have all digits of W and of x.
    EXPECT_LT(relative_distance(actual.dx, rounded.dx), 0.0625);
    EXPECT_LT(relative_distance(actual.dweight, rounded.dweight), 0.0625);
  }
}

// Rows of 128,256 logits do not fit into the shared memory of a block, and rows of 960,016 do not
// fit into the shared memory of a cluster: other kernels.
TEST_P(Fp8Loss, RowsThatAreTooLargeForABlock) {
  if (context_->device().kind == DeviceKind::cpu) GTEST_SKIP() << "the CPU has one kernel";
  for (const int64_t classes : {128'256, 128'247, 960'016}) {
    const Fp8LossCase c{5, 16, classes, 0.1, false, true};
    const Inputs in = inputs(c);
    const Fp8LossRun expected = definition(c, in);
    const Fp8LossRun actual = run(*context_, c, in, dtype(), true, 3);
    EXPECT_NEAR(actual.loss, expected.loss, 2 * GetParam().rounding * expected.loss);
    EXPECT_LT(relative_distance(actual.dx, expected.dx), 4 * GetParam().rounding + 1e-3);
  }
}

TEST_P(Fp8Loss, BadSizesAreNamed) {
  const auto refused = [&](const Fp8LossCase& c, DType dtype, const char* part) {
    try {
      run(*context_, c, inputs(c), dtype, true, 100);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_EQ(error.origin(), "linear_cross_entropy");
    }
  };
  refused({8, 24, 48, 0, false, false}, dtype(), "the width, got 24");
  const bool cpu = context_->device().kind == DeviceKind::cpu;
  refused({8, 32, 48, 0, false, false}, cpu ? DType::f64 : DType::f32,
          cpu ? "x is float64" : "x is float32");
}

}  // namespace
}  // namespace trafo::testing
