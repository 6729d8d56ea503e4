// Epilogues of GEMMs on CUDA: activations, their gradients, the gradient of a bias; against
// sums in float64 on the host. And which kernel runs a product. For TRAFO_TEST_DEVICE=cuda.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/tf32.h"
#include "engine/core/numeric/philox.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/feed_forward/feed_forward.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/runtime/side_work.h"
#include "tests/ops/cuda/gemm_fixture.h"

namespace trafo::testing {
namespace {

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), t = std::tanh(u);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

// x W^T + bias in float64, W [n, k].
Doubles biased_gemm(const Doubles& x, const Doubles& w, const Doubles& bias, const Shapes& s) {
  Doubles out(static_cast<size_t>(s.m * s.n));
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = bias.empty() ? 0 : bias[static_cast<size_t>(j)];
      for (int64_t l = 0; l < s.k; ++l)
        sum += x[static_cast<size_t>(i * s.k + l)] * w[static_cast<size_t>(j * s.k + l)];
      out[static_cast<size_t>(i * s.n + j)] = sum;
    }
  return out;
}

// Small ones: GEMM and activation apart.
constexpr Shapes kShapes[] = {{128, 256, 64}, {200, 1024, 96}, {1, 64, 32}, {640, 8, 16},
                              {33, 7, 24},    {5, 30, 9},      {4, 16, 0}};

TEST_F(CudaGemm, Activations) {
  for (const Shapes& s : kShapes) {
    for (const bool with_bias : {false, true}) {
      SCOPED_TRACE(concat(s.m, " x ", s.n, " x ", s.k, with_bias ? ", bias" : ""));
      const Doubles x = random(s.m * s.k), w = random(s.n * s.k, 0.3);
      const Doubles bias = with_bias ? random(s.n) : Doubles{};
      const Tensor dx = upload(x, {s.m, s.k}), dw = upload(w, {s.n, s.k});
      const Tensor dbias = with_bias ? upload(bias, {s.n}) : Tensor{};
      const Doubles v = biased_gemm(x, w, bias, s);
      Doubles relu = v, gelus = v;
      for (double& value : relu) value = std::max(value, 0.0);
      for (double& value : gelus) value = gelu(value);
      const Tensor y = half({s.m, s.n}), aux = half({s.m, s.n});
      GemmParams p = params(dx, dw, y, s);
      p.bias = with_bias ? dbias.raw() : nullptr;
      p.epilogue = Epilogue::relu;
      ASSERT_NO_THROW(context_->backend().gemm(p));
      // The product is rounded before the bias and what follows.
      expect_close(download(y), relu, 0x1p-7, 0x1p-8);
      if (HasFatalFailure()) return;
      p.epilogue = Epilogue::gelu;
      for (const bool keep : {false, true}) {
        p.aux = keep ? aux.raw() : nullptr;
        ASSERT_NO_THROW(context_->backend().gemm(p));
        expect_close(download(y), gelus, 0x1p-7, 0x1p-8);
        if (HasFatalFailure()) return;
      }
      expect_close(download(aux), biased_gemm(x, w, {}, s), 0x1p-7, 0x1p-8);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaGemm, GeluGradients) {
  for (const Shapes& s : kShapes) {
    SCOPED_TRACE(concat(s.m, " x ", s.n, " x ", s.k));
    const Doubles x = random(s.m * s.k), w = random(s.n * s.k, 0.3), h = random(s.m * s.n, 4);
    const Tensor dx = upload(x, {s.m, s.k}), dw = upload(w, {s.n, s.k});
    Doubles expected = biased_gemm(x, w, {}, s);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] *= gelu_slope(h[i]);
    const Tensor aux = upload(h, {s.m, s.n}), y = half({s.m, s.n});
    GemmParams p = params(dx, dw, y, s);
    p.epilogue = Epilogue::dgelu;
    p.aux = aux.raw();
    ASSERT_NO_THROW(context_->backend().gemm(p));
    const Doubles first = download(y);
    expect_close(first, expected, 0x1p-7, 0x1p-8);
    if (HasFatalFailure()) return;
    context_->backend().gemm(p);
    EXPECT_EQ(download(y), first);
    EXPECT_EQ(download(aux), h);
  }
}

// The kernel that has the activation in it against the GEMM and the activation apart, which a card
// without wgmma runs. Both round the same things, but add the products up in another order.
TEST_F(CudaGemm, ActivationsInTheKernelAreThoseBehindIt) {
  constexpr cuda::Card kOther{8, 0, 166'912};
  constexpr Shapes kLarge[] = {{2500, 2696, 136}, {2304, 3072, 768}, {8192, 1032, 64}};
  for (const Shapes& s : kLarge) {
    const Tensor a = upload(random(s.m * s.k), {s.m, s.k}),
                 b = upload(random(s.n * s.k, 0.3), {s.n, s.k}), bias = upload(random(s.n), {s.n}),
                 h = upload(random(s.m * s.n, 4), {s.m, s.n});
    for (const Epilogue epilogue :
         {Epilogue::relu, Epilogue::gelu, Epilogue::drelu, Epilogue::dgelu}) {
      for (const float dropout : {0.0f, 0.25f}) {
        SCOPED_TRACE(concat(s.m, " x ", s.n, " x ", s.k, ", epilogue ", static_cast<int>(epilogue),
                            ", dropout ", dropout));
        const bool backward = epilogue == Epilogue::drelu || epilogue == Epilogue::dgelu;
        struct Results {
          Doubles c, aux, sums;
        };
        const auto results = [&] {
          const Tensor c = half({s.m, s.n}), aux = half({s.m, s.n});
          const Tensor sums =
              context_->from_values<float>(std::vector<float>(static_cast<size_t>(s.n), 1), {s.n});
          GemmParams p = params(a, b, c, s);
          p.epilogue = epilogue;
          p.dropout = {dropout, 5, 6, 7};
          if (epilogue != Epilogue::drelu) p.bias = bias.raw();
          if (backward) {
            p.trans_b = false;
            p.ldb = s.n;
            p.aux = h.raw();
            p.column_sums = sums.raw();
            p.accumulate_column_sums = true;
          } else if (epilogue == Epilogue::gelu) {
            p.aux = aux.raw();
          }
          context_->backend().gemm(p);
          Results found;
          found.c = download(c);
          if (p.aux && !backward) found.aux = download(aux);
          for (const float sum : context_->values<float>(sums)) found.sums.push_back(sum);
          return found;
        };
        const Results own = results();
        EXPECT_EQ(results().c, own.c);
        EXPECT_EQ(results().sums, own.sums);
        choose_kernels_as_on(context_->backend(), &kOther);
        const Results apart = results();
        choose_kernels_as_on(context_->backend(), nullptr);
        expect_close(own.c, apart.c, 0x1p-6, 0x1p-9);
        expect_close(own.aux, apart.aux, 0x1p-7, 0x1p-9);
        expect_close(own.sums, apart.sums, 0x1p-8, 0x1p-10);
        if (HasFatalFailure()) return;
        for (size_t i = 0; i < own.c.size(); ++i) {
          if (!dropout_keeps({dropout, 5, 6, 7}, static_cast<int64_t>(i))) {
            ASSERT_EQ(own.c[i], 0) << "element " << i;
          }
        }
      }
    }
  }
}

// The gradients of a weight and of its bias.
TEST_F(CudaGemm, AddsToFloat32AndSumsTheRowsOfA) {
  for (const Shapes& s : {Shapes{256, 128, 2048}, {64, 40, 333}, {7, 5, 19}, {16, 8, 0}}) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(concat(s.m, " x ", s.n, " x ", s.k, accumulate ? ", accumulated" : ""));
      const Doubles dy = random(s.k * s.m), x = random(s.k * s.n);
      const Tensor a = upload(dy, {s.k, s.m}), b = upload(x, {s.k, s.n});
      std::vector<float> old(static_cast<size_t>(s.m * s.n), 0.5f);
      const Tensor dw = context_->from_values<float>(old, {s.m, s.n});
      old.resize(static_cast<size_t>(s.m));
      const Tensor sums = context_->from_values<float>(old, {s.m});
      GemmParams p;
      p.dtype = DType::bf16;
      p.trans_a = p.c_is_f32 = true;
      p.accumulate = accumulate;
      p.m = s.m;
      p.n = s.n;
      p.k = s.k;
      p.a = a.raw();
      p.lda = s.m;
      p.b = b.raw();
      p.ldb = p.ldc = s.n;
      p.c = dw.raw();
      ASSERT_NO_THROW(context_->backend().gemm(p));
      launch(*context_, OpKernel::column_sum, "test",
             ColumnSumParams{DType::bf16, accumulate, s.k, s.m, a.raw(), sums.raw()});
      Doubles product(static_cast<size_t>(s.m * s.n), accumulate ? 0.5 : 0),
          expected(static_cast<size_t>(s.m), accumulate ? 0.5 : 0);
      for (int64_t l = 0; l < s.k; ++l)
        for (int64_t i = 0; i < s.m; ++i) {
          const double value = dy[static_cast<size_t>(l * s.m + i)];
          expected[static_cast<size_t>(i)] += value;
          for (int64_t j = 0; j < s.n; ++j)
            product[static_cast<size_t>(i * s.n + j)] +=
                value * x[static_cast<size_t>(l * s.n + j)];
        }
      expect_close(download(sums), expected, 1e-6, 2e-6);
      expect_close(download(dw), product, 1e-6, 1e-5);
      if (HasFatalFailure()) return;
    }
  }
}

// Weight gradients of several layers in one call: more than one launch takes, tiles that C fills
// only in part, k that ends inside a block's part or before it begins, operands that only cuBLASLt
// takes. The bits of each do not depend on the others. With them the gradients of biases, where
// the launch makes these.
TEST_F(CudaGemm, GroupedWeightGradients) {
  const std::vector<Shapes> shapes = {
      {1024, 2048, 40}, {128, 256, 64}, {256, 512, 512}, {64, 8, 1},     {8, 64, 63},
      {136, 264, 65},   {40, 24, 129},  {768, 256, 333}, {7, 5, 19},     {16, 8, 0},
      {1024, 256, 200}, {256, 72, 700}, {128, 128, 127}, {200, 520, 96}, {512, 256, 160},
      {8, 8, 8},        {64, 64, 64},   {72, 1032, 31},  {128, 16, 256}, {24, 40, 2048},
      {384, 128, 100}};
  std::vector<Tensor> dy, x, dw, db;
  std::vector<Doubles> expected, expected_sums;
  std::vector<GemmParams> gemms;
  const Backend& backend = context_->backend();
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Shapes& s = shapes[i];
    const Doubles a = random(s.k * s.m), b = random(s.k * s.n);
    dy.push_back(upload(a, {s.k, s.m}));
    x.push_back(upload(b, {s.k, s.n}));
    dw.push_back(context_->empty({s.m, s.n}, DType::f32));
    const bool accumulate = i % 3 == 1;
    Doubles product(static_cast<size_t>(s.m * s.n), accumulate ? 0.5 : 0);
    for (int64_t l = 0; l < s.k; ++l)
      for (int64_t row = 0; row < s.m; ++row)
        for (int64_t column = 0; column < s.n; ++column)
          product[static_cast<size_t>(row * s.n + column)] +=
              a[static_cast<size_t>(l * s.m + row)] * b[static_cast<size_t>(l * s.n + column)];
    expected.push_back(std::move(product));
    const bool accumulate_sums = i % 4 == 2;
    Doubles sums(static_cast<size_t>(s.m), accumulate_sums ? 0.5 : 0);
    for (int64_t l = 0; l < s.k; ++l)
      for (int64_t row = 0; row < s.m; ++row)
        sums[static_cast<size_t>(row)] += a[static_cast<size_t>(l * s.m + row)];
    expected_sums.push_back(std::move(sums));
    db.push_back(context_->empty({s.m}, DType::f32));
    GemmParams p = params(dy[i], x[i], dw[i], s);
    p.trans_b = false;
    p.trans_a = p.c_is_f32 = true;
    p.accumulate = accumulate;
    p.lda = s.m;
    p.ldb = s.n;
    const bool sums_too = backend.sums_in_gemm(p, false);
    EXPECT_EQ(sums_too,
              backend.groups_gemms(DType::bf16) && s.m % 8 == 0 && s.n % 8 == 0 && s.k > 0);
    if (sums_too && i % 5 != 4) {
      p.a_sums = db[i].raw();
      p.accumulate_a_sums = accumulate_sums;
    }
    gemms.push_back(p);
  }
  const auto fill = [&] {
    for (size_t i = 0; i < shapes.size(); ++i) {
      const std::vector<float> sums(static_cast<size_t>(shapes[i].m),
                                    gemms[i].accumulate_a_sums ? 0.5f : NAN);
      context_->backend().copy_from_host(db[i].raw(), sums.data(), db[i].bytes());
      const std::vector<float> old(static_cast<size_t>(shapes[i].m * shapes[i].n),
                                   gemms[i].accumulate ? 0.5f : NAN);
      context_->backend().copy_from_host(dw[i].raw(), old.data(), dw[i].bytes());
    }
  };
  std::vector<Doubles> first, first_sums;
  for (int group = static_cast<int>(gemms.size()); group > 0; group = group / 2) {
    SCOPED_TRACE(concat("groups of ", group));
    fill();
    const std::span<const GemmParams> all = gemms;
    for (size_t i = 0; i < all.size(); i += static_cast<size_t>(group))
      ASSERT_NO_THROW(context_->backend().grouped_gemm(
          all.subspan(i, std::min(all.size() - i, static_cast<size_t>(group)))));
    for (size_t i = 0; i < shapes.size(); ++i) {
      SCOPED_TRACE(concat(shapes[i].m, " x ", shapes[i].n, " x ", shapes[i].k));
      const Doubles values = download(dw[i]);
      const Doubles sums = gemms[i].a_sums ? download(db[i]) : Doubles{};
      if (first.size() == i) {
        expect_close(values, expected[i], 1e-6, 1e-5);
        if (gemms[i].a_sums) expect_close(sums, expected_sums[i], 1e-6, 2e-6);
        if (HasFatalFailure()) return;
        first.push_back(values);
        first_sums.push_back(sums);
      }
      ASSERT_EQ(values, first[i]);
      ASSERT_EQ(sums, first_sums[i]);
    }
  }
}

// The gradient of the output bias from the GEMM for the gradient of the output weight. The classes
// are a tile for each multiprocessor, so that this GEMM runs in the kernel that sums. Chunks of 40
// rows fill no tile.
TEST_F(CudaGemm, SumsOfLogitsInTheirGemm) {
  constexpr int64_t kRows = 100, kWidth = 256, kChunk = 40, kTiles = 132;
  constexpr int64_t kClasses = kTiles * 128;
  const Doubles x = random(kRows * kWidth, 0.5), w = random(kClasses * kWidth, 0.1),
                bias = random(kClasses);
  std::vector<int32_t> labels;
  for (int64_t t = 0; t < kRows; ++t) labels.push_back(static_cast<int32_t>(t * 97 % kClasses));
  const Tensor label_tensor = context_->from_values<int32_t>(labels, {kRows});
  // dx, dweight and dbias.
  const auto run = [&](bool in_gemms, bool beside, double old) {
    context_->set_bias_sums_in_gemms(in_gemms);
    std::vector<Tensor> in{upload(x, {kRows, kWidth}), upload(w, {kClasses, kWidth}),
                           upload(bias, {kClasses})};
    for (size_t i = 0; i < in.size(); ++i) {
      set_requires_grad(in[i], true);
      if (i == 0) continue;
      const std::vector<float> before(static_cast<size_t>(in[i].numel()), static_cast<float>(old));
      bind_grad(in[i], context_->from_values<float>(before, in[i].shape()));
      if (old != 0) keep_grad(in[i]);
    }
    std::optional<SideWork> work;
    if (beside) work.emplace(*context_, 1);
    ops::LinearCrossEntropyOptions options;
    options.chunk_bytes = kChunk * kClasses * 2;
    options.gradients_at_once = true;
    options.loss.reduction = Reduction::sum;
    context_->backward(
        ops::linear_cross_entropy(*context_, in[0], in[1], in[2], label_tensor, options).loss);
    if (work) work->wait_all();
    context_->set_bias_sums_in_gemms(true);
    std::vector<Doubles> gradients;
    for (const Tensor& tensor : in) gradients.push_back(download(grad_of(tensor)));
    return gradients;
  };
  for (const double old : {0.0, 0.25}) {
    const auto apart = run(false, false, old), in_gemms = run(true, false, old);
    for (size_t i = 0; i < apart.size(); ++i) {
      SCOPED_TRACE(concat("gradient ", i, ", added to ", old));
      expect_close(in_gemms[i], apart[i], 1e-6, 1e-5);
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(run(true, false, old), in_gemms);
    EXPECT_EQ(run(true, true, old), in_gemms);
  }
}

// TF32 rounds the factors to 10 bits of mantissa. A sum of `k` products differs from the float32
// sum by at most 2^-10 of the sum of their absolute values, and it does differ.
TEST_F(CudaGemm, Tf32IsCloseToFloat32) {
  const auto draw = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(random_.uniform(-1, 1));
    return values;
  };
  for (const Shapes& s : {Shapes{256, 512, 512}, {512, 128, 2048}, {100, 96, 320}, {33, 31, 129}})
    for (const bool trans_b : {false, true})
      for (const bool with_bias : {false, true}) {
        SCOPED_TRACE(concat(s.m, " x ", s.n, " x ", s.k, trans_b ? ", B transposed" : "",
                            with_bias ? ", bias" : ""));
        const std::vector<float> x = draw(s.m * s.k), w = draw(s.k * s.n), b = draw(s.n);
        const Tensor dx = context_->from_values<float>(x, {s.m, s.k}),
                     dw = context_->from_values<float>(w, {s.k, s.n}),
                     bias = context_->from_values<float>(b, {s.n}),
                     y = context_->empty({s.m, s.n}, DType::f32);
        GemmParams p = params(dx, dw, y, s);
        p.dtype = DType::f32;
        p.trans_b = trans_b;
        p.ldb = trans_b ? s.k : s.n;
        if (with_bias) p.bias = bias.raw();
        Backend& backend = context_->backend();
        backend.gemm(p);
        const Doubles exact = download(y);
        Doubles rounded;
        {
          const Tf32Scope tf32(backend, true);
          backend.gemm(p);
          rounded = download(y);
          backend.gemm(p);
          EXPECT_EQ(download(y), rounded);
        }
        backend.gemm(p);
        EXPECT_EQ(download(y), exact) << "TF32 stayed on";
        for (int64_t i = 0; i < s.m; ++i)
          for (int64_t j = 0; j < s.n; ++j) {
            double absolute = 0;
            for (int64_t l = 0; l < s.k; ++l)
              absolute += std::abs(
                  static_cast<double>(x[static_cast<size_t>(i * s.k + l)]) *
                  static_cast<double>(w[static_cast<size_t>(trans_b ? j * s.k + l : l * s.n + j)]));
            const auto at = static_cast<size_t>(i * s.n + j);
            ASSERT_NEAR(rounded[at], exact[at], 0x1p-10 * absolute) << "element " << at;
          }
        // Matrices whose rows are whole vectors run on the tensor cores.
        if (s.m % 4 == 0 && s.n % 4 == 0 && s.k % 4 == 0) {
          EXPECT_NE(rounded, exact);
        }
      }
}

// A product has one measured kernel with TF32 and another without.
TEST_F(CudaGemm, ChoicesWithAndWithoutTf32AreApart) {
  const Shapes s{128, 256, 512};
  const Tensor x = context_->zeros({s.m, s.k}, DType::f32),
               w = context_->zeros({s.n, s.k}, DType::f32),
               y = context_->empty({s.m, s.n}, DType::f32);
  GemmParams p = params(x, w, y, s);
  p.dtype = DType::f32;
  GemmTuner* tuner = context_->backend().gemm_tuner();
  ASSERT_FALSE(tuner->measure(p).empty());
  const std::vector<GemmChoice> without = tuner->choices();
  ASSERT_EQ(without.size(), 1u);
  {
    const Tf32Scope tf32(context_->backend(), true);
    ASSERT_FALSE(tuner->measure(p).empty());
  }
  ASSERT_EQ(tuner->choices().size(), 2u);
  // A GEMM of bfloat16 does not change.
  const Tensor hx = half({s.m, s.k}), hw = half({s.n, s.k}), hy = half({s.m, s.n});
  const GemmParams h = params(hx, hw, hy, s);
  ASSERT_FALSE(tuner->measure(h).empty());
  const Tf32Scope tf32(context_->backend(), true);
  ASSERT_FALSE(tuner->measure(h).empty());
  EXPECT_EQ(tuner->choices().size(), 3u);
}

// The whole block in bfloat16: float32 on the same device is the reference.
TEST_F(CudaGemm, FeedForward) {
  // The last one runs the kernels with the activation in them.
  for (const Shapes& s :
       {Shapes{96, 256, 64}, {33, 30, 12}, {2304, 3072, 64}}) {  // rows, ffn, width
    SCOPED_TRACE(concat(s.m, " rows, ", s.n, ", ", s.k));
    const Doubles values[] = {random(s.m * s.k), random(s.n * s.k, 0.3), random(s.n),
                              random(s.k * s.n, 0.3)};
    const Shape shapes[] = {{s.m, s.k}, {s.n, s.k}, {s.n}, {s.k, s.n}};
    const Doubles upstream = random(s.m * s.k);
    // Output and gradients.
    const auto run = [&](DType dtype, Recompute recompute) {
      const StepScope scope(*context_, &StepContext::recompute, recompute);
      std::vector<Tensor> in;
      for (size_t i = 0; i < 4; ++i) {
        Tensor tensor = upload(values[i], shapes[i]);
        if (dtype == DType::f32) tensor = ops::cast(*context_, tensor, DType::f32);
        in.push_back(tensor.detach());
        set_requires_grad(in.back(), true);
      }
      const Tensor y = ops::feed_forward(*context_, in[0], in[1], in[2], in[3], Activation::gelu,
                                         Dropout{0, 1, 2, 3});
      Tensor dy = upload(upstream, {s.m, s.k});
      if (dtype == DType::f32) dy = ops::cast(*context_, dy, DType::f32).detach();
      context_->backward(y, dy);
      std::vector<Doubles> results{download(y)};
      for (const Tensor& tensor : in) results.push_back(download(grad_of(tensor)));
      return results;
    };
    const auto expected = run(DType::f32, Recompute::none);
    const auto kept = run(DType::bf16, Recompute::none);
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(concat("result ", i));
      expect_close(kept[i], expected[i], 0x1p-7, 0x1p-6);
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(run(DType::bf16, Recompute::none), kept);
    EXPECT_EQ(run(DType::bf16, Recompute::selective), kept);
  }
}

TEST_F(CudaGemm, AMeasuredChoiceIsKept) {
  GemmTuner* tuner = context_->backend().gemm_tuner();
  ASSERT_NE(tuner, nullptr);
  EXPECT_NE(tuner->library().find("cuBLASLt"), std::string::npos);
  const Shapes s{512, 768, 256};
  const Doubles x = random(s.m * s.k), w = random(s.n * s.k);
  const Tensor dx = upload(x, {s.m, s.k}), dw = upload(w, {s.n, s.k}), y = half({s.m, s.n});
  const GemmParams p = params(dx, dw, y, s);
  EXPECT_TRUE(tuner->choices().empty());
  const std::vector<float> times = tuner->measure(p);
  ASSERT_FALSE(times.empty());
  for (const float us : times) EXPECT_GT(us, 0);
  const std::vector<GemmChoice> choices = tuner->choices();
  ASSERT_EQ(choices.size(), 1u);
  context_->backend().gemm(p);
  const Doubles first = download(y);
  expect_close(first, biased_gemm(x, w, {}, s), 0x1p-7, 0x1p-8);

  tuner->set_choices({}, RefusedChoice::dropped);
  EXPECT_TRUE(tuner->choices().empty());
  tuner->set_choices(choices, RefusedChoice::fails);
  ASSERT_EQ(tuner->choices().size(), 1u);
  EXPECT_EQ(std::memcmp(tuner->choices().data(), choices.data(), sizeof(GemmChoice)), 0);
  context_->backend().gemm(p);
  EXPECT_EQ(download(y), first);

  // A GEMM that runs while tuning is on is measured once; one of another dtype is dropped.
  tuner->set_choices({}, RefusedChoice::dropped);
  {
    const TuningScope scope(tuner);
    context_->backend().gemm(p);
    EXPECT_TRUE(tuner->choices().empty()) << "measured without a budget";
    tuner->set_tuning_budget(60);
    context_->backend().gemm(p);
    context_->backend().gemm(p);
  }
  EXPECT_EQ(tuner->choices().size(), 1u);
  EXPECT_EQ(tuner->tuning_cost().measured, 1);
  EXPECT_GT(tuner->tuning_cost().seconds, 0);
  EXPECT_LT(tuner->tuning_cost().seconds, 60);
  expect_close(download(y), biased_gemm(x, w, {}, s), 0x1p-7, 0x1p-8);
  GemmParams wide = p;
  const Tensor fx = ops::cast(*context_, dx, DType::f32), fw = ops::cast(*context_, dw, DType::f32);
  const Tensor fy = context_->empty({s.m, s.n}, DType::f32);
  wide.dtype = DType::f32;
  wide.a = fx.raw();
  wide.b = fw.raw();
  wide.c = fy.raw();
  tuner->set_choices({}, RefusedChoice::dropped);
  ASSERT_FALSE(tuner->measure(wide).empty());
  GemmChoice wrong = choices[0];
  const std::vector<GemmChoice> of_float = tuner->choices();
  std::copy(std::begin(of_float[0].kernel), std::end(of_float[0].kernel), wrong.kernel);
  tuner->set_choices({&wrong, 1}, RefusedChoice::fails);
  EXPECT_THROW(context_->backend().gemm(p), Error);
  tuner->set_choices({&wrong, 1}, RefusedChoice::dropped);
  EXPECT_NO_THROW(context_->backend().gemm(p));
  EXPECT_TRUE(tuner->choices().empty()) << "a float32 kernel was taken for a bfloat16 product";
  expect_close(download(y), biased_gemm(x, w, {}, s), 0x1p-7, 0x1p-8);
  EXPECT_FALSE(tuner->kernel_abi().empty());
}

// A budget that is used up in the first measurement: the GEMMs that follow are not measured.
TEST_F(CudaGemm, ABudgetEndsTuning) {
  GemmTuner* tuner = context_->backend().gemm_tuner();
  ASSERT_NE(tuner, nullptr);
  const Shapes s{512, 768, 256}, other{768, 512, 256};
  const Tensor x = upload(random(s.m * s.k), {s.m, s.k}), w = upload(random(s.n * s.k), {s.n, s.k});
  const Tensor y = half({s.m, s.n}), z = half({other.m, other.n});
  tuner->set_choices({}, RefusedChoice::dropped);
  tuner->set_tuning_budget(1e-9);
  const TuningScope scope(tuner);
  for (int i = 0; i < 2; ++i) {
    context_->backend().gemm(params(x, w, y, s));
    context_->backend().gemm(params(w, x, z, other));
  }
  EXPECT_EQ(tuner->tuning_cost().measured, 1);
  EXPECT_EQ(tuner->choices().size(), 1u);
}

// A product that adds to C leaves it alone while it is measured.
TEST_F(CudaGemm, MeasuringDoesNotAddTwice) {
  const Shapes s{64, 48, 128};
  const Doubles x = random(s.m * s.k), w = random(s.n * s.k);
  const Tensor dx = upload(x, {s.m, s.k}), dw = upload(w, {s.n, s.k});
  const std::vector<float> ones(static_cast<size_t>(s.m * s.n), 1.0f);
  const Tensor c = context_->from_values<float>(ones, {s.m, s.n});
  GemmParams p = params(dx, dw, c, s);
  p.c_is_f32 = p.accumulate = true;
  {
    context_->backend().gemm_tuner()->set_tuning_budget(60);
    const TuningScope scope(context_->backend().gemm_tuner());
    context_->backend().gemm(p);
  }
  Doubles expected = biased_gemm(x, w, {}, s);
  for (double& value : expected) value += 1;
  expect_close(download(c), expected, 1e-6, 1e-6);
}

}  // namespace
}  // namespace trafo::testing
