#include "engine/ops/swiglu/swiglu.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

OpCase gate_case(const char* label, const Shape& shape, double reach = 3,
                 Activation activation = Activation::silu) {
  OpCase test;
  test.label = label;
  test.inputs = [shape, reach](InputMaker& make) {
    return std::vector<Tensor>{make.uniform(shape, -reach, reach)};
  };
  test.run = [activation](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{ops::gated_unit(context, in[0], activation)};
  };
  test.tolerance = 3e-6;
  return test;
}

}  // namespace

OpCases swiglu_cases() {
  OpCases cases = {
      gate_case("width 1", {5, 2}),
      gate_case("width 2", {3, 4}),
      gate_case("odd", {3, 14}),
      gate_case("one more than two vectors", {5, 66}),
      gate_case("one row", {1, 32}),
      gate_case("vector without rows", {24}),
      gate_case("empty batch", {0, 8}),
      gate_case("three dimensions", {2, 3, 20}),
      gate_case("many narrow rows", {60, 2}),
      gate_case("width no vector divides", {4, 94}),
      gate_case("far from zero", {4, 32}, 30),
      gate_case("GEGLU, width 1", {5, 2}, 3, Activation::gelu),
      gate_case("GEGLU, odd", {3, 14}, 3, Activation::gelu),
      gate_case("GEGLU, vectors and more", {5, 66}, 3, Activation::gelu),
      gate_case("GEGLU, empty batch", {0, 8}, 3, Activation::gelu),
      gate_case("GEGLU, far from zero", {4, 32}, 30, Activation::gelu),
      gate_case("exact GEGLU, odd", {3, 14}, 3, Activation::gelu_erf),
      gate_case("exact GEGLU, vectors and more", {5, 66}, 3, Activation::gelu_erf),
      gate_case("exact GEGLU, far from zero", {4, 32}, 30, Activation::gelu_erf),
  };
  // The gradients of two uses meet in one buffer.
  OpCase twice = gate_case("used twice", {4, 22});
  twice.run = [](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{ops::swiglu(context, in[0]), ops::swiglu(context, in[0])};
  };
  cases.push_back(twice);
  return cases;
}

}  // namespace trafo::testing
