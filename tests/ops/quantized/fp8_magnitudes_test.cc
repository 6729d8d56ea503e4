// Largest magnitudes that ops leave for FP8 copies: on a GPU with TRAFO_TEST_DEVICE=cuda.
#include "engine/ops/fp8/fp8_magnitudes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "engine/core/numeric/philox.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/fp8/fp8.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/rms_norm/rms_norm.h"
#include "engine/ops/swiglu/swiglu.h"
#include "engine/ops/view/view.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo::testing {
namespace {

using ops::Fp8Magnitudes;

TEST(Fp8Magnitudes, TheCpuLeavesNone) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  Fp8Magnitudes magnitudes(*context, true);
  const Tensor x = context->zeros({4}, DType::bf16);
  EXPECT_EQ(Fp8Magnitudes::place(*context, x), nullptr);
  EXPECT_EQ(Fp8Magnitudes::find(*context, x), nullptr);
}

class Fp8MagnitudesOnCuda : public CudaTest {
 protected:
  // Values of all sorts of sizes, one of them `odd`.
  Tensor values(const Shape& shape, uint64_t seed, std::optional<double> odd = {}) const {
    PhiloxStream random(3, seed);
    std::vector<double> all(static_cast<size_t>(element_count(shape)));
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<double>(random.uniform(-1, 1)) * std::exp2(static_cast<double>(i % 5));
    if (odd) all[all.size() * 2 / 3] = *odd;
    return context_->from_doubles(all, shape, DType::bf16);
  }

  uint32_t largest(const Tensor& x) const {
    uint32_t top = 0;
    for (const BFloat16 value : context_->values<BFloat16>(x))
      top = std::max(top, std::bit_cast<uint32_t>(value.to_float()) & 0x7fffffffu);
    return top;
  }

  // The magnitude that a kernel recorded for x.
  std::optional<uint32_t> left(const Tensor& x) const {
    const uint32_t* place = Fp8Magnitudes::find(*context_, x);
    if (!place) return std::nullopt;
    uint32_t bits = 0;
    context_->backend().copy_to_host(&bits, place, sizeof bits);
    return bits;
  }

  // x; backward shows its gradient to `see`.
  Tensor watched(const Tensor& x, std::function<void(const Tensor&)> see) const {
    Tensor y = x.detach();
    context_->record("watched", {x}, {&y}, {}, [see = std::move(see)](Backward& b) {
      see(b.grad_output());
      b.add(0, b.grad_output());
    });
    return y;
  }

  Dropout dropout(float p) const {
    Dropout dropout;
    dropout.p = p;
    dropout.seed = 7;
    return dropout;
  }
};

// Rows in the registers of a warp and of a block, longer ones, and widths without packs.
constexpr int64_t kMagnitudeWidths[] = {1, 8, 33, 64, 520, 768, 1024, 1600, 5000, 6400, 20'000};

TEST_F(Fp8MagnitudesOnCuda, AreThoseOfWhatForwardWrote) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const int64_t width : kMagnitudeWidths)
    for (const int64_t rows : {1, 3, 130})
      for (const std::optional<double> odd :
           {std::optional<double>(), std::optional(-3000.0), std::optional(infinity),
            std::optional(std::numeric_limits<double>::quiet_NaN())}) {
        if (width > 2000 && rows > 3) continue;
        SCOPED_TRACE(concat(rows, " x ", width, ", ", odd.value_or(0)));
        Fp8Magnitudes magnitudes(*context_, true);
        const Tensor x = values({rows, width}, 1, odd), residual = values({rows, width}, 2),
                     gamma = values({width}, 3), beta = values({width}, 4),
                     both = values({rows, 2 * width}, 5, odd);
        Context& c = *context_;
        const auto expect = [&](const char* name, const Tensor& y) {
          EXPECT_EQ(left(y), std::optional(largest(y))) << name;
        };
        expect("layer_norm", ops::layer_norm(c, x, gamma, beta));
        expect("rms_norm", ops::rms_norm(c, x, gamma));
        for (const float p : {0.0f, 0.25f}) {
          expect("residual norm", ops::bias_dropout_residual_norm(c, x, beta, residual, gamma, beta,
                                                                  1e-5, dropout(p))
                                      .normed);
          expect("residual RMS norm",
                 ops::residual_rms_norm(c, x, residual, gamma, 1e-5, dropout(p)).normed);
          expect("GELU", ops::bias_act_dropout(c, x, beta, Activation::gelu, dropout(p)));
          expect("ReLU", ops::bias_act_dropout(c, x, {}, Activation::relu, dropout(p)));
        }
        expect("SwiGLU", ops::swiglu(c, both));
      }
}

// Norms and activations that selective recomputation repeats.
TEST_F(Fp8MagnitudesOnCuda, AreThoseOfWhatIsRecomputed) {
  const StepScope scope(*context_, &StepContext::recompute, Recompute::selective);
  for (const int64_t width : {33, 64, 1600}) {
    Fp8Magnitudes magnitudes(*context_, true);
    Tensor x = values({37, width}, 1), both = values({37, 2 * width}, 2);
    set_requires_grad(x, true);
    set_requires_grad(both, true);
    const Tensor gamma = values({width}, 3), beta = values({width}, 4);
    Context& c = *context_;
    const Tensor outputs[] = {
        ops::layer_norm(c, x, gamma, beta),
        ops::rms_norm(c, x, gamma),
        ops::bias_dropout_residual_norm(c, x, {}, x, gamma, beta, 1e-5, {}).normed,
        ops::residual_rms_norm(c, x, x, gamma, 1e-5, {}).normed,
        ops::bias_act_dropout(c, x, beta, Activation::gelu, {}),
        ops::swiglu(c, both)};
    for (const Tensor& y : outputs) {
      ASSERT_TRUE(y.variable()->recompute != nullptr);
      const Tensor again = y.variable()->recompute(c);
      EXPECT_EQ(left(again), std::optional(largest(y)));
    }
    c.tape().clear();
  }
}

TEST_F(Fp8MagnitudesOnCuda, AreThoseOfWhatBackwardWrote) {
  for (const int64_t width : {1, 33, 64, 1600, 6400})
    for (const int64_t rows : {1, 130})
      for (const bool bad : {false, true}) {
        SCOPED_TRACE(concat(rows, " x ", width));
        Fp8Magnitudes magnitudes(*context_, true);
        Context& c = *context_;
        int seen = 0;
        const auto see = [&](const Tensor& gradient) {
          ++seen;
          EXPECT_EQ(left(gradient), std::optional(largest(gradient)));
        };
        const auto upstream = [&](const Shape& shape) {
          return values(
              shape, 6,
              bad ? std::optional(std::numeric_limits<double>::infinity()) : std::nullopt);
        };
        Tensor x = values({rows, width}, 1), both = values({rows, 2 * width}, 2),
               bias = values({width}, 3);
        for (Tensor* leaf : {&x, &both, &bias}) set_requires_grad(*leaf, true);
        for (const Activation kind : {Activation::gelu, Activation::relu})
          for (const float p : {0.0f, 0.25f})
            for (const Tensor& added : {Tensor{}, bias}) {
              const Tensor y = ops::bias_act_dropout(c, watched(x, see), added, kind, dropout(p));
              c.backward(y, upstream(y.shape()));
            }
        const Tensor y = ops::swiglu(c, watched(both, see));
        c.backward(y, upstream(y.shape()));
        EXPECT_EQ(seen, 9);
      }
}

// Of the input x of a residual norm: the gradient of the sum, times the dropout factors if there
// are any.
TEST_F(Fp8MagnitudesOnCuda, AreThoseOfWhatBackwardOfAResidualWrote) {
  for (const int64_t width : {1, 33, 64, 768, 1024, 1600, 8192, 20'000})
    for (const int64_t rows : {1, 600}) {
      if (width > 2000 && rows > 1) continue;
      for (const float p : {0.0f, 0.25f})
        for (const bool whole : {false, true})
          for (const bool has_bias : {false, true}) {
            SCOPED_TRACE(concat(rows, " x ", width, ", dropout ", p));
            Fp8Magnitudes magnitudes(*context_, true);
            Context& c = *context_;
            int seen = 0;
            const auto see = [&](const Tensor& gradient) {
              ++seen;
              EXPECT_EQ(left(gradient), std::optional(largest(gradient)));
            };
            Tensor x = values({rows, width}, 1), residual = values({rows, width}, 2),
                   bias = values({width}, 3), gamma = values({width}, 4), beta = values({width}, 5);
            for (Tensor* leaf : {&x, &residual, &bias, &gamma, &beta})
              set_requires_grad(*leaf, true);
            const auto behind = [&](const Tensor& sum, const Tensor& normed) {
              const Tensor y = whole ? ops::bias_dropout_residual(c, sum, {}, normed, {}) : normed;
              c.backward(y, values({rows, width}, 6));
            };
            const auto layer = ops::bias_dropout_residual_norm(
                c, watched(x, see), has_bias ? bias : Tensor{},
                watched(residual, [](const Tensor&) {}), gamma, beta, 1e-5, dropout(p));
            behind(layer.sum, layer.normed);
            const auto rms =
                ops::residual_rms_norm(c, watched(x, see), watched(residual, [](const Tensor&) {}),
                                       gamma, 1e-5, dropout(p));
            behind(rms.sum, rms.normed);
            EXPECT_EQ(seen, 2);
          }
    }
}

// Of q, k and v in one matrix, by every kernel of bfloat16: short and long sequences, narrow and
// wide heads, dropout. The one on CUDA cores leaves none.
TEST_F(Fp8MagnitudesOnCuda, AreThoseOfTheGradientOfAttention) {
  struct Case {
    int64_t longest, heads, head_dim;
    bool causal;
    float dropout;
    bool left;
  };
  for (const Case& s : {Case{17, 2, 16, true, 0, true}, Case{60, 3, 64, false, 0.25f, true},
                        Case{150, 2, 32, true, 0.25f, true}, Case{150, 2, 64, true, 0, true},
                        Case{1024, 2, 64, true, 0, true}, Case{300, 2, 128, true, 0, true},
                        Case{300, 2, 128, false, 0, true}, Case{2100, 2, 64, true, 0, true},
                        Case{40, 2, 12, true, 0, false}, Case{100, 1, 200, true, 0, false}}) {
    SCOPED_TRACE(concat(s.longest, " x ", s.heads, " x ", s.head_dim));
    Fp8Magnitudes magnitudes(*context_, true);
    Context& c = *context_;
    const int64_t width = s.heads * s.head_dim, rows = 2 * s.longest - 9;
    const std::vector<int32_t> begins{0, static_cast<int32_t>(s.longest),
                                      static_cast<int32_t>(rows)};
    const Tensor cu_seqlens = c.from_values<int32_t>(begins, {3});
    Tensor x = values({rows, 3 * width}, 1);
    set_requires_grad(x, true);
    int seen = 0;
    const Tensor qkv = watched(x, [&](const Tensor& gradient) {
      ++seen;
      EXPECT_EQ(left(gradient), s.left ? std::optional(largest(gradient)) : std::nullopt);
    });
    ops::AttentionOptions options;
    options.heads = s.heads;
    options.head_dim = s.head_dim;
    options.causal = s.causal;
    options.dropout = dropout(s.dropout);
    options.max_queries = options.max_keys = s.longest;
    const Tensor y = ops::attention(c, {qkv, 0}, {qkv, width}, {qkv, 2 * width}, cu_seqlens,
                                    cu_seqlens, options);
    c.backward(y, values({rows, width}, 2));
    EXPECT_EQ(seen, 1);
  }
}

// A gradient to which another use adds is not what the first kernel wrote.
TEST_F(Fp8MagnitudesOnCuda, AGradientOfTwoUsesHasNone) {
  Fp8Magnitudes magnitudes(*context_, true);
  Context& c = *context_;
  Tensor x = values({40, 64}, 1);
  set_requires_grad(x, true);
  int seen = 0;
  const Tensor y = watched(x, [&](const Tensor& gradient) {
    ++seen;
    EXPECT_EQ(left(gradient), std::nullopt);
  });
  const Tensor first = ops::bias_act_dropout(c, y, {}, Activation::gelu, {});
  const Tensor second = ops::bias_act_dropout(c, y, {}, Activation::relu, {});
  const Tensor sum = ops::bias_dropout_residual(c, first, {}, second, {});
  c.backward(sum, values({40, 64}, 2));
  EXPECT_EQ(seen, 1);
}

TEST_F(Fp8MagnitudesOnCuda, GoWithTheElementsOfATensorAsTheyWereWritten) {
  Context& c = *context_;
  const Tensor x = values({24, 64}, 1), gamma = values({64}, 2);
  EXPECT_EQ(left(ops::rms_norm(c, x, gamma)), std::nullopt) << "nobody asked";
  Fp8Magnitudes magnitudes(c, true);
  const Tensor y = ops::rms_norm(c, x, gamma);
  const auto expected = std::optional(largest(y));
  EXPECT_EQ(left(y), expected);
  EXPECT_EQ(left(y.detach()), expected);
  EXPECT_EQ(left(y.reshaped({4, 6, 64})), expected);
  EXPECT_EQ(left(ops::reshape(c, y, {64 * 24})), expected);
  EXPECT_EQ(left(ops::slice(c, y, 0, 0, 12)), std::nullopt) << "a part";
  EXPECT_EQ(left(ops::slice(c, y, 0, 12, 24)), std::nullopt) << "another part";
  EXPECT_EQ(left(x), std::nullopt) << "no kernel wrote it";
  EXPECT_EQ(left(y.as_strided({64, 24}, {1, 64}, 0)), std::nullopt) << "not contiguous";
  const auto other = cuda_context();
  EXPECT_EQ(Fp8Magnitudes::find(*other, y), nullptr) << "another context";
  y.mark_written();
  EXPECT_EQ(left(y), std::nullopt) << "written to";
  EXPECT_EQ(magnitudes.found(), 4);
}

// Behind the last place, layers look for the largest magnitude themselves.
TEST_F(Fp8MagnitudesOnCuda, AreLookedForWherePlacesEnd) {
  Context& c = *context_;
  const Tensor x = values({24, 64}, 1), gamma = values({64}, 2);
  Fp8Magnitudes magnitudes(c, true);
  const Tensor first = ops::rms_norm(c, x, gamma);
  Tensor last = first;
  int64_t count = 0;
  for (; left(last); ++count) {
    ASSERT_LT(count, 100'000);
    last = ops::rms_norm(c, x, gamma);
  }
  EXPECT_GT(count, 1000);
  EXPECT_EQ(left(first), std::optional(largest(first)));
}

// With and without, FP8 copies are the same bytes.
TEST_F(Fp8MagnitudesOnCuda, ChangeNoBitOfACopy) {
  Context& c = *context_;
  for (const int64_t width : {16, 33, 64, 1600})
    for (const std::optional<double> odd : {std::optional<double>(), std::optional(-700.0),
                                            std::optional(std::numeric_limits<double>::infinity())})
      for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
        const Tensor x = values({300, width}, 1, odd);
        std::vector<int32_t> copies[2][2];
        for (const bool wanted : {false, true}) {
          Fp8Magnitudes magnitudes(c, wanted);
          const Tensor y = ops::bias_act_dropout(c, x, {}, Activation::gelu, {});
          const ops::Fp8Matrix m = ops::to_fp8(c, "test", y, format, ops::Fp8Copies::both);
          EXPECT_EQ(magnitudes.found(), wanted);
          copies[wanted][0] = c.values<int32_t>(m.values);
          copies[wanted][1] = c.values<int32_t>(m.transposed);
        }
        EXPECT_EQ(copies[0][0], copies[1][0]) << width;
        EXPECT_EQ(copies[0][1], copies[1][1]) << width;
      }
}

}  // namespace
}  // namespace trafo::testing
