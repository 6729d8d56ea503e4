// Ops over rows, and attention over head sizes, at every size for which the GPU has a separate
// kernel, and at one that no vector divides: float32 and bfloat16 against float64 on the CPU. For
// TRAFO_TEST_DEVICE=cuda.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/activation/activation.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/softmax/softmax.h"
#include "tests/ops/cuda/cuda_float64_test.h"

namespace trafo::testing {
namespace {

constexpr int64_t kRows = 37;

class CudaRows : public CudaFloat64Test {
 protected:
  // `run` on inputs of `shapes`.
  void check(const std::string& label, const std::vector<Shape>& shapes,
             std::function<Tensors(Context&, const Tensors&)> run) {
    const auto compare = [&](const OpCase& test, DType dtype, const CaseRun& expected,
                             double tolerance) {
      expect_close(run_case(*context_, test, {.dtype = dtype}), expected, tolerance,
                   concat(label, ", ", dtype_name(dtype)));
    };
    CudaFloat64Test::check(label, shapes, std::move(run), compare);
  }

  // `check` of one op at each width.
  void check_widths(std::function<void(int64_t width)> check_one) {
    for (const int64_t width : {24,   32,   64,   128,  256,   384, 512, 768,  1024, 1600, 2048,
                                3000, 4096, 8192, 9000, 16384, 63,  257, 1023, 4097, 8191, 9001})
      check_one(width);
  }
};

TEST_F(CudaRows, Softmax) {
  check_widths([&](int64_t width) {
    check(concat("width ", width), {{kRows, width}}, [](Context& context, const Tensors& in) {
      return Tensors{ops::softmax(context, in[0], {})};
    });
  });
}

TEST_F(CudaRows, SoftmaxWithMasks) {
  check_widths([&](int64_t width) {
    std::vector<int32_t> mask(static_cast<size_t>(2 * width));
    for (int64_t key = 0; key < width; ++key) {
      mask[static_cast<size_t>(key)] = key % 7 == 3;
      mask[static_cast<size_t>(width + key)] = key >= width - width / 3;
    }
    for (const bool causal : {false, true})
      check(concat("width ", width, causal ? ", causal" : ""), {{2, 2, 9, width}},
            [&](Context& context, const Tensors& in) {
              ops::SoftmaxOptions options;
              options.causal = causal;
              options.padding_mask = context.from_values<int32_t>(mask, {2, width});
              return Tensors{ops::softmax(context, in[0], options)};
            });
  });
}

// A tensor that is streamed past L2 has the bits of one that is not.
TEST_F(CudaRows, RowsOfALargeTensorAreThoseOfASmallOne) {
  const NoGrad no_grad(*context_);
  constexpr int64_t kWidth = 2048, kDifferent = 61;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const int64_t rows = (int64_t{64} << 20) / (kWidth * static_cast<int64_t>(dtype_size(dtype)));
    std::vector<double> values(static_cast<size_t>(rows * kWidth));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(i % size_t{kDifferent * kWidth} * 7919 % 1009) / 256 - 2;
    const Tensor large = context_->from_doubles(values, {rows, kWidth}, dtype);
    values.resize(size_t{kDifferent * kWidth});
    const Tensor small = context_->from_doubles(values, {kDifferent, kWidth}, dtype);
    const Tensor gamma = context_->from_doubles(std::vector<double>(kWidth, 1.5), {kWidth}, dtype);
    const auto expect_same = [&](const Tensor& of_large, const Tensor& of_small) {
      const std::vector<double> all = download(of_large), first = download(of_small);
      size_t wrong = 0;
      for (size_t i = 0; i < all.size(); ++i) wrong += all[i] != first[i % first.size()];
      EXPECT_EQ(wrong, 0U) << dtype_name(dtype);
    };
    expect_same(ops::softmax(*context_, large, {}), ops::softmax(*context_, small, {}));
    expect_same(ops::layer_norm(*context_, large, gamma, gamma),
                ops::layer_norm(*context_, small, gamma, gamma));
  }
}

TEST_F(CudaRows, LayerNorm) {
  check_widths([&](int64_t width) {
    check(concat("width ", width), {{kRows, width}, {width}, {width}},
          [](Context& context, const Tensors& in) {
            return Tensors{ops::layer_norm(context, in[0], in[1], in[2], 1e-5)};
          });
  });
}

// More rows than blocks: each block sums over several.
TEST_F(CudaRows, LayerNormOfManyRows) {
  for (const int64_t width : {800, 1600, 3000})
    check(concat("width ", width), {{1501, width}, {width}, {width}},
          [](Context& context, const Tensors& in) {
            return Tensors{ops::layer_norm(context, in[0], in[1], in[2], 1e-5)};
          });
}

TEST_F(CudaRows, BiasDropoutResidualNorm) {
  check_widths([&](int64_t width) {
    for (const bool branch : {true, false})  // whether the sum is used beside its norm
      check(concat("width ", width, branch ? ", both outputs" : ", norm only"),
            {{kRows, width}, {width}, {kRows, width}, {width}, {width}},
            [branch](Context& context, const Tensors& in) {
              const auto out = ops::bias_dropout_residual_norm(context, in[0], in[1], in[2], in[3],
                                                               in[4], 1e-5, kDropout);
              return branch ? Tensors{out.sum, out.normed} : Tensors{out.normed};
            });
  });
}

TEST_F(CudaRows, BiasDropoutResidual) {
  check_widths([&](int64_t width) {
    for (const Dropout& dropout : {kDropout, Dropout{}})
      check(concat("width ", width, dropout.active() ? ", dropout" : ""),
            {{kRows, width}, {width}, {kRows, width}},
            [&dropout](Context& context, const Tensors& in) {
              return Tensors{ops::bias_dropout_residual(context, in[0], in[1], in[2], dropout)};
            });
  });
}

TEST_F(CudaRows, BiasActivationDropout) {
  check_widths([&](int64_t width) {
    for (const Activation kind :
         {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf})
      for (const Dropout& dropout : {kDropout, Dropout{}})
        check(concat(enum_name(kind), ", width ", width, dropout.active() ? ", dropout" : ""),
              {{kRows, width}, {width}}, [&, kind](Context& context, const Tensors& in) {
                return Tensors{ops::bias_act_dropout(context, in[0], in[1], kind, dropout)};
              });
  });
}

TEST_F(CudaRows, NaNStaysNaNInActivations) {
  for (const Activation kind : {Activation::gelu, Activation::silu, Activation::gelu_erf}) {
    const float nan = std::nanf("");
    Tensor x = context_->from_values<float>(std::vector<float>{nan, nan, nan}, {3});
    set_requires_grad(x, true);
    const Tensor y = ops::activation(*context_, x, kind);
    for (const float v : context_->values<float>(y)) EXPECT_TRUE(std::isnan(v)) << enum_name(kind);
    context_->backward(ops::sum(*context_, y));
    for (const float v : context_->values<float>(grad_of(x)))
      EXPECT_TRUE(std::isnan(v)) << enum_name(kind);
  }
}

TEST_F(CudaRows, CrossEntropy) {
  check_widths([&](int64_t width) {
    std::vector<int32_t> labels(kRows);
    for (size_t t = 0; t < labels.size(); ++t)
      labels[t] = t % 5 == 3 ? -100 : static_cast<int32_t>(t * 7919 % static_cast<size_t>(width));
    check(
        concat("classes ", width), {{kRows, width}},
        [&labels](Context& context, const Tensors& in) {
          ops::CrossEntropyOptions options;
          options.label_smoothing = 0.1;
          return Tensors{ops::cross_entropy(context, in[0],
                                            context.from_values<int32_t>(labels, {kRows}), options)
                             .loss};
        });
  });
}

// Head sizes up to 64, 128 and 256, with and without the alignment that quads of elements need.
TEST_F(CudaRows, AttentionHeads) {
  const std::vector<int32_t> bounds{0, 5, 5, 75, 111};
  for (const int64_t head_dim : {1, 7, 33, 64, 65, 100, 128, 129, 200, 256})
    for (const bool causal : {false, true})
      for (const Dropout& dropout : {kDropout, Dropout{}}) {
        const int64_t width = 2 * head_dim;
        check(concat("head_dim ", head_dim, causal ? ", causal" : "",
                     dropout.active() ? ", dropout" : ""),
              {{bounds.back(), 3 * width}}, [&](Context& context, const Tensors& in) {
                ops::AttentionOptions options;
                options.heads = 2;
                options.head_dim = head_dim;
                options.causal = causal;
                options.dropout = dropout;
                const Tensor cu =
                    context.from_values<int32_t>(bounds, {static_cast<int64_t>(bounds.size())});
                return Tensors{ops::attention(context, {in[0], 0}, {in[0], width},
                                              {in[0], 2 * width}, cu, cu, options)};
              });
      }
}

}  // namespace
}  // namespace trafo::testing
