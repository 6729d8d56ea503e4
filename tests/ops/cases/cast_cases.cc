#include "engine/ops/cast/cast.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

using Tensors = std::vector<Tensor>;

// To float64 and back: exact for both dtypes under test, so that gradients can be compared with
// differences. cast_test.cc tests the rounding to narrow types.
OpCase there_and_back(const char* label, Shape shape) {
  return {label, [shape](InputMaker& maker) { return Tensors{maker.uniform(shape)}; },
          [](Context& context, const Tensors& in) {
            const Tensor wide = ops::cast(context, in[0], DType::f64);
            return Tensors{ops::cast(context, wide, in[0].dtype()), wide};
          }};
}

}  // namespace

OpCases cast_cases() {
  return {there_and_back("width 1", {1}),
          there_and_back("rank 0", {}),
          there_and_back("odd", {3, 5}),
          there_and_back("no vector width divides it", {31}),
          there_and_back("whole vectors", {2, 16}),
          there_and_back("rank 4", {2, 1, 3, 4}),
          there_and_back("empty batch", {0, 7}),
          there_and_back("batch of one", {1, 9})};
}

}  // namespace trafo::testing
