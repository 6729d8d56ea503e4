#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

enum Outputs { both, only_sum, only_normed };

std::vector<Tensor> add_norm_inputs(InputMaker& make, const Shape& shape) {
  const Shape width{shape.back()};
  return {make.uniform(shape), make.uniform(width), make.uniform(shape),
          make.uniform(width, 0.5, 1.5), make.uniform(width)};
}

OpCase plain_case(const char* label, const Shape& shape, float p, bool with_bias = true) {
  OpCase test;
  test.label = concat("no norm, ", label);
  test.inputs = [shape, with_bias](InputMaker& make) {
    std::vector<Tensor> inputs{make.uniform(shape), make.uniform(shape)};
    if (with_bias) inputs.push_back(make.uniform({shape.back()}));
    return inputs;
  };
  test.run = [p, with_bias](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{ops::bias_dropout_residual(
        context, in[0], with_bias ? in[2] : Tensor{}, in[1], Dropout{p, 77, 3, 2})};
  };
  return test;
}

OpCase norm_case(const char* label, const Shape& shape, float p, Outputs used = both,
                 bool with_bias = true) {
  OpCase test;
  test.label = concat("norm, ", label);
  test.inputs = [shape](InputMaker& make) { return add_norm_inputs(make, shape); };
  test.run = [p, used, with_bias](Context& context, const std::vector<Tensor>& in) {
    const auto out =
        ops::bias_dropout_residual_norm(context, in[0], with_bias ? in[1] : Tensor{}, in[2], in[3],
                                        in[4], 1e-5, Dropout{p, 77, 3, 2});
    if (used == only_sum) return std::vector<Tensor>{out.sum};
    if (used == only_normed) return std::vector<Tensor>{out.normed};
    return std::vector<Tensor>{out.sum, out.normed};
  };
  test.tolerance = 5e-6;
  // Gradients there are what cancelling leaves of terms of 1 / sqrt(epsilon).
  if (shape.back() == 1) test.reference_bfloat16_tolerance = 1;
  return test;
}

// Only the inputs in `wanted` get gradients; the others come from inside the run.
OpCase partly_constant_case(std::vector<size_t> wanted) {
  const Shape shape{5, 10};
  OpCase test = norm_case("some inputs constant", shape, 0.3f);
  test.inputs = [shape, wanted](InputMaker& make) {
    const std::vector<Tensor> all = add_norm_inputs(make, shape);
    std::vector<Tensor> inputs;
    for (const size_t i : wanted) inputs.push_back(all[i]);
    return inputs;
  };
  test.run = [run = test.run, shape, wanted](Context& context, const std::vector<Tensor>& in) {
    InputMaker make(context, in[0].dtype(), 5);
    std::vector<Tensor> all = add_norm_inputs(make, shape);
    for (size_t i = 0; i < wanted.size(); ++i) all[wanted[i]] = in[i];
    return run(context, all);
  };
  return test;
}

}  // namespace

OpCases bias_dropout_residual_cases() {
  OpCases cases = {
      plain_case("width 1", {6, 1}, 0.3f),
      plain_case("odd", {3, 7}, 0.1f),
      plain_case("no dropout", {4, 9}, 0),
      plain_case("no bias", {4, 33}, 0.5f, false),
      plain_case("no bias, no dropout", {3, 5}, 0, false),
      plain_case("empty batch", {0, 8}, 0.3f),
      plain_case("three dimensions", {2, 3, 20}, 0.3f),
      plain_case("many narrow rows", {70, 3}, 0.3f),
      norm_case("width 1", {6, 1}, 0.3f),
      norm_case("odd", {3, 7}, 0.1f),
      norm_case("no dropout", {4, 9}, 0),
      norm_case("no bias", {5, 33}, 0.5f, both, false),
      norm_case("only the sum used", {5, 12}, 0.3f, only_sum),
      norm_case("only the normed used", {5, 12}, 0.3f, only_normed),
      norm_case("empty batch", {0, 8}, 0.3f),
      norm_case("one row", {1, 16}, 0.3f),
      norm_case("three dimensions", {2, 3, 20}, 0.3f),
      norm_case("many narrow rows", {70, 3}, 0.3f),
      partly_constant_case({1, 2, 3, 4}),
      partly_constant_case({0, 3, 4}),
      partly_constant_case({3, 4}),
      partly_constant_case({0, 1, 2}),
      partly_constant_case({2}),
  };
  OpCase twice = norm_case("used twice", {5, 6}, 0.2f);
  twice.run = [run = twice.run](Context& context, const std::vector<Tensor>& in) {
    std::vector<Tensor> out = run(context, in), again = run(context, in);
    out.insert(out.end(), again.begin(), again.end());
    return out;
  };
  cases.push_back(twice);
  OpCase same = norm_case("x is the residual, gamma is beta", {4, 6}, 0.4f);
  same.run = [](Context& context, const std::vector<Tensor>& in) {
    const auto out = ops::bias_dropout_residual_norm(context, in[0], in[1], in[0], in[3], in[3],
                                                     1e-5, Dropout{0.4f, 1, 2, 3});
    return std::vector<Tensor>{out.sum, out.normed};
  };
  cases.push_back(same);
  OpCase plain_same = plain_case("x is the residual", {4, 6}, 0.4f);
  plain_same.run = [](Context& context, const std::vector<Tensor>& in) {
    const Dropout on{0.4f, 1, 2, 3}, off{};
    return std::vector<Tensor>{ops::bias_dropout_residual(context, in[0], in[2], in[0], on),
                               ops::bias_dropout_residual(context, in[0], {}, in[0], off)};
  };
  cases.push_back(plain_same);
  // The chain of a pre-norm model: the sum of one fused add-norm is the residual of the next.
  OpCase chain = norm_case("two add-norms in a row", {5, 9}, 0.2f);
  chain.run = [](Context& context, const std::vector<Tensor>& in) {
    const auto one = ops::bias_dropout_residual_norm(context, in[0], in[1], in[2], in[3], in[4],
                                                     1e-5, Dropout{0.2f, 1, 2, 3});
    const auto two = ops::bias_dropout_residual_norm(context, one.normed, in[1], one.sum, in[3],
                                                     in[4], 1e-5, Dropout{0.2f, 1, 2, 4});
    return std::vector<Tensor>{two.sum, two.normed};
  };
  chain.tolerance = 1e-5;
  cases.push_back(chain);
  // With one column the gradient through the norm is 0, but 1 / sqrt(epsilon) enlarges what the
  // reference path rounds.
  for (OpCase& test : cases)
    if (test.label == "norm, width 1") test.tolerance = 3e-5;
  return cases;
}

}  // namespace trafo::testing
