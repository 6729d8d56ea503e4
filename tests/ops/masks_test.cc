// Row numbers and masks against their definitions, on the CPU and, for TRAFO_TEST_DEVICE=cuda, on a
// GPU.
#include "engine/ops/masks/masks.h"

#include "engine/ops/cast/cast.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo {
namespace {

using Ints = std::vector<int32_t>;

class Masks : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    context_ = GetParam() == DeviceKind::cpu ? make_context({DeviceKind::cpu, 0}, 2)
                                             : testing::cuda_context();
    if (!context_) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  }
  Tensor ints(const Ints& values) const {
    return context_->from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
  }
  Ints values(const Tensor& tensor) const { return context_->values<int32_t>(tensor); }
  std::vector<float> floats(const Tensor& tensor) const { return context_->values<float>(tensor); }

  std::unique_ptr<Context> context_;
};

INSTANTIATE_TEST_SUITE_P(Devices, Masks, ::testing::Values(DeviceKind::cpu, DeviceKind::cuda),
                         [](const auto& kind) {
                           return kind.param == DeviceKind::cpu ? "Cpu" : "Cuda";
                         });

TEST_P(Masks, PaddedRowsComeFromAndGoToTheirSequences) {
  const Tensor bounds = ints({0, 2, 2, 5, 6, 6});  // an empty one inside and one at the end
  const int32_t* begin = bounds.data<int32_t>();
  const ops::PaddedRows padded = ops::padded_rows(*context_, begin, begin + 1, 5, 4, 6, true);
  EXPECT_EQ(values(padded.from),
            (Ints{0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5}));
  EXPECT_EQ(values(padded.to), (Ints{0, 1, 8, 9, 10, 12}));
  const Tensor first = ints({1, 0, 1}), last = ints({4, 2, 1});  // ranges that share rows
  const ops::PaddedRows shared =
      ops::padded_rows(*context_, first.data<int32_t>(), last.data<int32_t>(), 3, 3, 4, false);
  EXPECT_EQ(values(shared.from), (Ints{1, 2, 3, 0, 1, 1, 1, 1, 1}));
  EXPECT_FALSE(shared.to.defined());
  EXPECT_EQ(ops::padded_rows(*context_, nullptr, nullptr, 0, 7, 0, true).from.numel(), 0);
  EXPECT_EQ(ops::padded_rows(*context_, begin, begin + 1, 5, 0, 0, true).from.numel(), 0);
}

TEST_P(Masks, VisibleKeysAreThoseOfTheDefinition) {
  const Ints queries{0, 3, 3, 5, 9}, keys{0, 2, 6, 6, 11};
  const Ints hidden{0, 1, 0, 0, 2, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1};
  const Tensor q = ints(queries), k = ints(keys), h = ints(hidden);
  const int64_t most_queries = 4, most_keys = 5;
  for (const bool causal : {false, true})
    for (const bool padded : {false, true})
      for (const bool whole : {false, true}) {
        VisibleKeysParams p{};
        p.dtype = DType::f32;
        p.causal = causal;
        p.sequences = 4;
        p.queries = most_queries;
        p.keys = most_keys;
        if (padded) p.masked = h.data<int32_t>();
        if (!whole) {
          p.query_begin = q.data<int32_t>();
          p.query_end = p.query_begin + 1;
          p.key_begin = k.data<int32_t>();
          p.key_end = p.key_begin + 1;
        }
        const auto seen = floats(ops::visible_keys(*context_, p, {4, most_queries, most_keys}));
        size_t at = 0;
        for (size_t b = 0; b < 4; ++b)
          for (int64_t i = 0; i < most_queries; ++i)
            for (int64_t j = 0; j < most_keys; ++j, ++at) {
              const int64_t of_q = whole ? most_queries : queries[b + 1] - queries[b];
              const int64_t of_k = whole ? most_keys : keys[b + 1] - keys[b];
              bool sees = i < of_q && j < of_k;
              if (causal && j > i + of_k - of_q) sees = false;
              if (padded && hidden[b * static_cast<size_t>(most_keys) + static_cast<size_t>(j)])
                sees = false;
              ASSERT_EQ(seen[at], sees ? 1.0f : 0.0f) << b << ' ' << i << ' ' << j;
            }
      }
}

TEST_P(Masks, OneHotLeavesOutWhatIsIgnoredOrOutside) {
  const Tensor labels = ints({2, 0, -100, 1, 3, 1});
  EXPECT_EQ(floats(ops::one_hot(*context_, labels, 3, 0, DType::f32)),
            (std::vector<float>{0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(ops::one_hot(*context_, ints({}), 3, 0, DType::f32).numel(), 0);
  if (GetParam() == DeviceKind::cpu) return;
  const Tensor narrow = ops::one_hot(*context_, labels, 3, 0, DType::bf16);
  EXPECT_EQ(floats(ops::cast(*context_, narrow, DType::f32)),
            floats(ops::one_hot(*context_, labels, 3, 0, DType::f32)));
}

TEST_P(Masks, DropoutMasksAreThoseOfPhilox) {
  const Dropout dropout{0.3f, 0x123456789abcdefull, 17, 4};
  const auto mask = floats(ops::dropout_mask(*context_, {37, 11}, DType::f32, dropout));
  for (size_t i = 0; i < mask.size(); ++i)
    ASSERT_EQ(mask[i], dropout_keeps(dropout, static_cast<int64_t>(i))
                           ? static_cast<float>(dropout.scale())
                           : 0.0f);
}

}  // namespace
}  // namespace trafo
