#include "engine/ops/activation/activation.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

OpCase activation_case(Activation kind, const char* label, const Shape& shape, double range = 3) {
  OpCase test;
  test.label = concat(enum_name(kind), ", ", label);
  test.inputs = [shape, range](InputMaker& make) {
    return std::vector<Tensor>{make.uniform(shape, -range, range)};
  };
  test.run = [kind](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{ops::activation(context, in[0], kind)};
  };
  return test;
}

}  // namespace

OpCases activation_cases() {
  OpCases cases;
  for (const Activation kind :
       {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf}) {
    cases.push_back(activation_case(kind, "one element", {1}));
    cases.push_back(activation_case(kind, "odd", {3, 7}));
    cases.push_back(activation_case(kind, "empty batch", {0, 5}));
    cases.push_back(activation_case(kind, "three dimensions", {2, 3, 11}));
    cases.push_back(activation_case(kind, "large values", {65}, 30));
    cases.push_back(activation_case(kind, "count no vector divides", {131}));
  }
  OpCase twice = activation_case(Activation::gelu, "used twice", {9});
  twice.run = [](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{ops::activation(context, in[0], Activation::gelu),
                               ops::activation(context, in[0], Activation::silu)};
  };
  cases.push_back(twice);
  return cases;
}

}  // namespace trafo::testing
