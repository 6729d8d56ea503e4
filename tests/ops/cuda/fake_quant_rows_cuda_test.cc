// fake_quant_rows on a GPU: the bits of the CPU. For TRAFO_TEST_DEVICE=cuda.
#include <cmath>
#include <limits>

#include "engine/ops/fake_quant_rows/fake_quant_rows.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

class FakeQuantRowsCuda : public CudaTest {};

TEST_F(FakeQuantRowsCuda, HasTheBitsOfTheCpu) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  for (const int64_t width : {1, 7, 32, 33, 36, 64, 100, 128, 515, 1024, 1028, 4096})
    for (const int64_t bits : {8, 4}) {
      std::vector<float> values(static_cast<size_t>(19 * width));
      PhiloxStream random(3, static_cast<uint64_t>(width));
      for (float& value : values) value = static_cast<float>(random.uniform(-3, 3));
      for (int64_t c = 0; c < width; ++c) values[static_cast<size_t>(5 * width + c)] = 1e-33f;
      const auto rounded = [&](Context& context) {
        const Tensor x = context.from_values<float>(values, {19, width});
        const Tensor y = context.empty({19, width}, DType::f32);
        fake_quant_into(context, y, x, bits);
        return context.values<float>(y);
      };
      EXPECT_EQ(rounded(*context_), rounded(*cpu)) << width << " columns, " << bits << " bits";
    }
}

TEST_F(FakeQuantRowsCuda, Bfloat16IsRoundedOnce) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  InputMaker make(*cpu, DType::f32, 4), on_gpu(*context_, DType::f32, 4);
  const Tensor x = make.uniform({6, 70}), same = on_gpu.uniform({6, 70});
  const Tensor y = cpu->empty({6, 70}, DType::f32);
  const Tensor narrow = context_->empty({6, 70}, DType::bf16);
  fake_quant_into(*cpu, y, x, 8);
  fake_quant_into(*context_, narrow, same, 8);
  const auto expected = cpu->values<float>(y);
  const auto actual = context_->values<BFloat16>(narrow);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(actual[i].to_float(), BFloat16::from_float(expected[i]).to_float());
}

TEST_F(FakeQuantRowsCuda, Bfloat16HasTheBitsOfFloat32Rounded) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  for (const int64_t width : {1, 7, 33, 40, 128, 256, 1024, 2048, 2056, 4100})
    for (const int64_t bits : {8, 4}) {
      InputMaker make(*cpu, DType::f32, 5, DType::bf16), on_gpu(*context_, DType::bf16, 5);
      const Tensor x = make.uniform({17, width}), same = on_gpu.uniform({17, width});
      const Tensor y = cpu->empty({17, width}, DType::f32);
      const Tensor narrow = context_->empty({17, width}, DType::bf16);
      fake_quant_into(*cpu, y, x, bits);
      fake_quant_into(*context_, narrow, same, bits);
      const auto expected = cpu->values<float>(y);
      const auto actual = context_->values<BFloat16>(narrow);
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(actual[i].to_float(), BFloat16::from_float(expected[i]).to_float())
            << width << " columns, " << bits << " bits, element " << i;
    }
}

// More matrices than a launch takes, with and without whole packs, empty ones too.
TEST_F(FakeQuantRowsCuda, MatricesOfAWorkspaceHaveTheBitsOfTheCpu) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  std::vector<MatrixPlace> places;
  int64_t elements = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const MatrixPlace place{elements, i % 11, i % 3 == 0 ? 1 + 5 * i : 16 + 4 * i};
    places.push_back(place);
    elements += (place.rows * place.width + 15) / 16 * 16 + 16;
  }
  InputMaker make(*cpu, DType::f32, 6), on_gpu(*context_, DType::f32, 6);
  const Tensor x = make.uniform({elements}, -3, 3), same = on_gpu.uniform({elements}, -3, 3);
  for (const int64_t bits : {8, 4}) {
    const Tensor y = cpu->zeros({elements}, DType::f32);
    fake_quant_into(*cpu, y, x, places, bits);
    const auto expected = cpu->values<float>(y);
    const Tensor wide = context_->zeros({elements}, DType::f32);
    fake_quant_into(*context_, wide, same, places, bits);
    EXPECT_EQ(context_->values<float>(wide), expected) << bits;
    const Tensor narrow = context_->zeros({elements}, DType::bf16);
    fake_quant_into(*context_, narrow, same, places, bits);
    const auto actual = context_->values<BFloat16>(narrow);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(actual[i].to_float(), BFloat16::from_float(expected[i]).to_float())
          << bits << " bits, element " << i;
  }
}

TEST_F(FakeQuantRowsCuda, ARowThatIsNotFiniteIsNaN) {
  std::vector<float> values(3 * 40, 1.0f);
  values[45] = std::numeric_limits<float>::infinity();
  const Tensor x = context_->from_values<float>(values, {3, 40});
  const auto y = context_->values<float>(ops::fake_quant_rows(*context_, x));
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 40 == 1) << i;
}

}  // namespace
}  // namespace trafo::testing
