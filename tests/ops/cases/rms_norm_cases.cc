#include "engine/ops/rms_norm/rms_norm.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

OpCase rms_norm_case(const char* label, const Shape& shape, double epsilon = 1e-6) {
  OpCase test;
  test.label = label;
  test.inputs = [shape](InputMaker& make) {
    return std::vector<Tensor>{make.uniform(shape), make.uniform({shape.back()}, 0.5, 1.5)};
  };
  test.run = [epsilon](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{ops::rms_norm(context, in[0], in[1], epsilon)};
  };
  test.tolerance = 5e-6;
  return test;
}

enum class Used { both, sum, normed };

OpCase residual_case(const char* label, const Shape& shape, double p = 0, Used used = Used::both) {
  OpCase test;
  test.label = label;
  test.inputs = [shape](InputMaker& make) {
    return std::vector<Tensor>{make.uniform(shape), make.uniform(shape),
                               make.uniform({shape.back()}, 0.5, 1.5)};
  };
  test.run = [p, used](Context& context, const std::vector<Tensor>& in) {
    Dropout dropout;
    dropout.p = static_cast<float>(p);
    dropout.seed = 7;
    const ops::ResidualRmsNorm out =
        ops::residual_rms_norm(context, in[0], in[1], in[2], 1e-6, dropout);
    if (used == Used::both) return std::vector<Tensor>{out.sum, out.normed};
    return std::vector<Tensor>{used == Used::sum ? out.sum : out.normed};
  };
  test.tolerance = 5e-6;
  return test;
}

// Input `frozen` is a constant: it comes from inside the run, without a gradient.
OpCase without_grad(OpCase test, size_t frozen) {
  test.inputs = [inputs = test.inputs, frozen](InputMaker& make) {
    std::vector<Tensor> all = inputs(make);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(frozen));
    return all;
  };
  test.run = [run = test.run, frozen](Context& context, const std::vector<Tensor>& in) {
    InputMaker make(context, in[0].dtype(), 5);
    std::vector<Tensor> all = in;
    const bool row_vector = frozen == in.size();
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(frozen),
               make.uniform(row_vector ? Shape{9} : Shape{6, 9}, 0.5, 1.5));
    return run(context, all);
  };
  return test;
}

}  // namespace

OpCases rms_norm_cases() {
  OpCases cases = {
      rms_norm_case("width 1", {5, 1}),
      rms_norm_case("width 2", {3, 2}),
      rms_norm_case("odd", {3, 7}),
      rms_norm_case("one more than two vectors", {9, 33}),
      rms_norm_case("one row", {1, 16}),
      rms_norm_case("vector without rows", {12}),
      rms_norm_case("empty batch", {0, 8}),
      rms_norm_case("three dimensions", {2, 3, 20}),
      rms_norm_case("many narrow rows", {50, 3}),
      rms_norm_case("width no vector divides", {4, 67}),
      rms_norm_case("large epsilon", {4, 10}, 0.1),
      without_grad(rms_norm_case("constant x", {6, 9}), 0),
      without_grad(rms_norm_case("constant gamma", {6, 9}), 1),
      residual_case("residual", {5, 12}),
      residual_case("residual, width 1", {4, 1}),
      residual_case("residual, odd", {3, 7}),
      residual_case("residual, empty batch", {0, 8}),
      residual_case("residual, one more than two vectors", {9, 33}),
      residual_case("residual with dropout", {6, 24}, 0.3),
      residual_case("residual with dropout, odd", {5, 13}, 0.3),
      residual_case("residual, only the sum is used", {5, 9}, 0, Used::sum),
      residual_case("residual with dropout, only the sum is used", {5, 9}, 0.3, Used::sum),
      residual_case("residual, only the norm is used", {5, 9}, 0, Used::normed),
      residual_case("residual with dropout, only the norm is used", {5, 9}, 0.3, Used::normed),
      without_grad(residual_case("residual, constant x", {6, 9}), 0),
      without_grad(residual_case("residual, constant residual", {6, 9}), 1),
      without_grad(residual_case("residual, constant gamma", {6, 9}), 2),
  };
  // The gradients of two uses meet in one buffer.
  OpCase twice = rms_norm_case("used twice", {5, 11});
  twice.run = [](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{ops::rms_norm(context, in[0], in[1], 1e-6),
                               ops::rms_norm(context, in[0], in[1], 1e-3)};
  };
  cases.push_back(twice);
  OpCase to_itself = rms_norm_case("added to itself", {5, 11});
  to_itself.run = [](Context& context, const std::vector<Tensor>& in) {
    const auto out = ops::residual_rms_norm(context, in[0], in[0], in[1], 1e-6, {});
    return std::vector<Tensor>{out.sum, out.normed};
  };
  cases.push_back(to_itself);
  return cases;
}

}  // namespace trafo::testing
