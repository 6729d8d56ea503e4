#include "engine/ops/int8_linear/int8_linear.h"

#include "engine/ops/op_kernel.h"
#include "tests/ops/op_cases.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

TEST(Int8Linear, RefusesShapesThatDoNotFit) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  ThreadPool pool(1);
  const std::vector<float> values(6, 1.0f);
  const Int8Matrix weight = Int8Matrix::quantized(pool, values.data(), 2, 3);
  const auto refused = [&](const Shape& x, const Shape& bias, const char* text) {
    const Error error = error_of([&] {
      ops::int8_linear(*context, context->zeros(x, DType::f32), weight,
                       context->zeros(bias, DType::f32));
    });
    EXPECT_EQ(error.code(), ErrorCode::shape_mismatch) << error.message();
    EXPECT_TRUE(mentions(error, text)) << error.message();
  };
  refused({}, {2}, "does not end in the 3 columns");
  refused({3, 2}, {2}, "does not end in the 3 columns");
  refused({2, 3}, {3}, "bias must be [2]");
  EXPECT_EQ(ops::int8_linear(*context, context->zeros({4, 5, 3}, DType::f32), weight, {}).shape(),
            (Shape{4, 5, 2}));
}

}  // namespace
}  // namespace trafo::testing
