// The kernels that every supported card chooses, on the card that is there: attention at each head
// size and norms at the widths with most shared memory, against float64 on the CPU. For
// TRAFO_TEST_DEVICE=cuda.
#include <gtest/gtest.h>

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/op_kernel.h"
#include "tests/ops/cuda/cuda_float64_test.h"

namespace trafo::testing {
namespace {

class CudaCards : public CudaFloat64Test {
 protected:
  // `run` on inputs of `shapes`, with the choices of every card whose kernels run on this one.
  void check(const std::string& label, const std::vector<Shape>& shapes,
             std::function<Tensors(Context&, const Tensors&)> run) {
    const auto compare = [&](const OpCase& test, DType dtype, const CaseRun& expected,
                             double tolerance) {
      for (const cuda::Card& card : cuda::kCards) {
        if (chooses_like_an_earlier_one(card) || !as_on(card)) continue;
        const std::string what =
            concat(label, ", ", dtype_name(dtype), ", as on ", card.major, ".", card.minor);
        const CaseRun actual = run_case(*context_, test, {.dtype = dtype});
        expect_close(actual, expected, tolerance, what);
        expect_bitwise(run_case(*context_, test, {.dtype = dtype}), actual, what);
      }
    };
    CudaFloat64Test::check(label, shapes, std::move(run), compare);
  }

  static bool chooses_like_an_earlier_one(const cuda::Card& card) {
    for (const cuda::Card& other : cuda::kCards) {
      if (&other == &card) break;
      if (other.shared_memory_per_block == card.shared_memory_per_block &&
          (other.major == 9) == (card.major == 9))
        return true;
    }
    return false;
  }
  // False: kernels for that card do not run on this one.
  bool as_on(const cuda::Card& card) {
    try {
      choose_kernels_as_on(context_->backend(), &card);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
      return false;
    }
  }
};

// The cards with least shared memory are always among those that are tested.
TEST_F(CudaCards, HaveAChoiceOnThisCard) {
  int cards = 0;
  for (const cuda::Card& card : cuda::kCards) {
    const bool there = as_on(card);
    cards += there;
    if (card.shared_memory_per_block == cuda::kLeastSharedMemory) {
      EXPECT_TRUE(there) << card.major << "." << card.minor;
    }
  }
  EXPECT_GE(cards, 3);
  choose_kernels_as_on(context_->backend(), nullptr);
}

// One sequence has several tiles of queries and keys, one is empty.
TEST_F(CudaCards, AttentionAtEveryHeadSize) {
  const std::vector<int32_t> bounds{0, 5, 5, 75};
  for (int64_t head_dim = 1; head_dim <= 256; ++head_dim) {
    const bool causal = head_dim % 2 == 0;
    const Dropout dropout = head_dim % 3 == 0 ? kDropout : Dropout{};
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
            return Tensors{ops::attention(context, {in[0], 0}, {in[0], width}, {in[0], 2 * width},
                                          cu, cu, options)};
          });
    if (HasFailure()) return;
  }
}

// Lengths beyond the tiles of the kernels for compute capability 9.0.
TEST_F(CudaCards, AttentionOverLongSequences) {
  const std::vector<int32_t> bounds{0, 260, 330};
  for (const int64_t head_dim : {40, 61, 64, 72, 128, 180, 184, 256})
    for (const Dropout& dropout : {kDropout, Dropout{}}) {
      check(concat("head_dim ", head_dim, dropout.active() ? ", dropout" : ""),
            {{bounds.back(), 3 * head_dim}}, [&](Context& context, const Tensors& in) {
              ops::AttentionOptions options;
              options.heads = 1;
              options.head_dim = head_dim;
              options.causal = true;
              options.dropout = dropout;
              const Tensor cu =
                  context.from_values<int32_t>(bounds, {static_cast<int64_t>(bounds.size())});
              return Tensors{ops::attention(context, {in[0], 0}, {in[0], head_dim},
                                            {in[0], 2 * head_dim}, cu, cu, options)};
            });
      if (HasFailure()) return;
    }
}

// Backward copies up to three tensors ahead, 1,024 packs of each.
TEST_F(CudaCards, BiasDropoutResidualNorm) {
  for (const int64_t width : {512, 2048, 2052, 4096, 8192})
    for (const bool branch : {true, false})  // whether the sum is used beside its norm
      check(concat("width ", width, branch ? ", both outputs" : ", norm only"),
            {{37, width}, {width}, {37, width}, {width}, {width}},
            [branch](Context& context, const Tensors& in) {
              const auto out = ops::bias_dropout_residual_norm(context, in[0], in[1], in[2], in[3],
                                                               in[4], 1e-5, kDropout);
              return branch ? Tensors{out.sum, out.normed} : Tensors{out.normed};
            });
}

// Forward keeps a row of logits in shared memory where it has room.
TEST_F(CudaCards, CrossEntropy) {
  constexpr int64_t kRows = 9;
  for (const int64_t classes : {4096, 24'000, 26'000, 40'000, 42'000, 56'000, 60'000})
    check(
        concat("classes ", classes), {{kRows, classes}},
        [classes](Context& context, const Tensors& in) {
          std::vector<int32_t> labels(kRows);
          for (size_t t = 0; t < labels.size(); ++t)
            labels[t] = static_cast<int32_t>(t * 7919 % static_cast<size_t>(classes));
          ops::CrossEntropyOptions options;
          options.label_smoothing = 0.1;
          return Tensors{ops::cross_entropy(context, in[0],
                                            context.from_values<int32_t>(labels, {kRows}), options)
                             .loss};
        });
}

}  // namespace
}  // namespace trafo::testing
