#include "engine/ops/segment_mean/segment_mean.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

using Tensors = std::vector<Tensor>;

OpCase segments(const char* label, Shape x, std::vector<int32_t> bounds) {
  return {label,
          [=](InputMaker& maker) {
            return Tensors{maker.uniform(x), maker.integers(bounds)};
          },
          [](Context& context, const Tensors& in) {
            return Tensors{ops::segment_mean(context, in[0], in[1])};
          }};
}

}  // namespace

OpCases segment_mean_cases() {
  return {
      segments("one row", {1, 4}, {0, 1}),
      segments("sequences of several lengths", {7, 5}, {0, 2, 3, 7}),
      segments("sequences without rows", {4, 3}, {0, 0, 3, 3, 4, 4}),
      segments("vectors", {6}, {0, 4, 6}),
      segments("more dimensions", {5, 2, 3}, {0, 3, 5}),
      segments("width 1", {5, 1}, {0, 1, 5}),
      segments("no rows at all", {0, 4}, {0, 0}),
      segments("no sequences", {0, 4}, {0}),
      segments("many rows", {130, 3}, {0, 1, 100, 130}),
  };
}

}  // namespace trafo::testing
