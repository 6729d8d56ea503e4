#include "engine/ops/layer_norm/layer_norm.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

OpCase layer_norm_case(const char* label, const Shape& shape, double epsilon = 1e-5) {
  OpCase test;
  test.label = label;
  test.inputs = [shape](InputMaker& make) {
    const Shape width{shape.back()};
    return std::vector<Tensor>{make.uniform(shape), make.uniform(width, 0.5, 1.5),
                               make.uniform(width)};
  };
  test.run = [epsilon](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{ops::layer_norm(context, in[0], in[1], in[2], epsilon)};
  };
  test.tolerance = 5e-6;
  return test;
}

// Input `frozen` is a constant: it comes from inside the run, without a gradient.
OpCase constant_input(OpCase test, size_t frozen) {
  test.inputs = [inputs = test.inputs, frozen](InputMaker& make) {
    std::vector<Tensor> all = inputs(make);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(frozen));
    return all;
  };
  test.run = [run = test.run, frozen](Context& context, const std::vector<Tensor>& in) {
    InputMaker make(context, in[0].dtype(), 5);
    std::vector<Tensor> all = in;
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(frozen),
               make.uniform(frozen == 0 ? Shape{6, 9} : Shape{9}, 0.5, 1.5));
    return run(context, all);
  };
  return test;
}

}  // namespace

OpCases layer_norm_cases() {
  OpCases cases = {
      layer_norm_case("width 1", {5, 1}),
      layer_norm_case("width 2", {3, 2}),
      layer_norm_case("odd", {3, 7}),
      layer_norm_case("one more than two vectors", {9, 33}),
      layer_norm_case("one row", {1, 16}),
      layer_norm_case("vector without rows", {12}),
      layer_norm_case("empty batch", {0, 8}),
      layer_norm_case("three dimensions", {2, 3, 20}),
      layer_norm_case("many narrow rows", {50, 3}),
      layer_norm_case("width no vector divides", {4, 67}),
      layer_norm_case("large epsilon", {4, 10}, 0.1),
      constant_input(layer_norm_case("constant x", {6, 9}), 0),
      constant_input(layer_norm_case("constant gamma", {6, 9}), 1),
      constant_input(layer_norm_case("constant beta", {6, 9}), 2),
  };
  // The gradients of two uses meet in one buffer.
  OpCase twice = layer_norm_case("used twice", {5, 11});
  twice.run = [](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{ops::layer_norm(context, in[0], in[1], in[2], 1e-5),
                               ops::layer_norm(context, in[0], in[2], in[1], 1e-3)};
  };
  cases.push_back(twice);
  OpCase one_tensor = layer_norm_case("gamma is beta", {4, 5});
  one_tensor.run = [](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{ops::layer_norm(context, in[0], in[1], in[1], 1e-5)};
  };
  cases.push_back(one_tensor);
  return cases;
}

}  // namespace trafo::testing
