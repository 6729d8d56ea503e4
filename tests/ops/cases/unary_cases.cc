#include "engine/ops/unary/unary.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

using Tensors = std::vector<Tensor>;

OpCase all(const char* label, Shape shape, double low = 0.25, double high = 3) {
  return {label, [=](InputMaker& maker) { return Tensors{maker.uniform(shape, low, high)}; },
          [](Context& context, const Tensors& in) {
            const Tensor& x = in[0];
            return Tensors{ops::scale(context, x, -1.75), ops::shift(context, x, 0.375),
                           ops::exp(context, x),          ops::log(context, x),
                           ops::sqrt(context, x),         ops::tanh(context, x),
                           ops::sigmoid(context, x),      ops::soft_cap(context, x, 1.5)};
          }};
}

// The kinds that are defined for every number.
OpCase everywhere(const char* label, Shape shape, double low, double high) {
  return {label, [=](InputMaker& maker) { return Tensors{maker.uniform(shape, low, high)}; },
          [](Context& context, const Tensors& in) {
            const Tensor& x = in[0];
            return Tensors{ops::scale(context, x, 0.5), ops::shift(context, x, -2),
                           ops::exp(context, x),        ops::tanh(context, x),
                           ops::sigmoid(context, x),    ops::soft_cap(context, x, 3)};
          }};
}

}  // namespace

OpCases unary_cases() {
  return {
      all("width 1", {1}),
      all("rank 0", {}),
      all("odd", {3, 5}),
      all("no vector width divides it", {31}),
      all("whole vectors", {2, 16}),
      all("rank 4", {2, 1, 3, 4}),
      all("empty batch", {0, 7}),
      all("batch of one", {1, 9}),
      everywhere("negative numbers", {19}, -4, 0),
      everywhere("saturating", {13}, -8, 8),
      {"chained", [](InputMaker& maker) { return Tensors{maker.uniform({7}, 0.5, 1.5)}; },
       [](Context& context, const Tensors& in) {
         const Tensor y = ops::log(context, ops::sqrt(context, ops::exp(context, in[0])));
         return Tensors{ops::scale(context, ops::sigmoid(context, ops::tanh(context, y)), 2)};
       }},
  };
}

}  // namespace trafo::testing
