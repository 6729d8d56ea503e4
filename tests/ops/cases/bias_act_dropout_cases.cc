#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

OpCase add_norm_case(const char* label, const Shape& shape, Activation kind, float p,
                     bool with_bias = true) {
  OpCase test;
  test.label = concat(enum_name(kind), ", ", label);
  test.inputs = [shape, with_bias](InputMaker& make) {
    std::vector<Tensor> inputs{make.uniform(shape, -2, 2)};
    if (with_bias) inputs.push_back(make.uniform({shape.back()}));
    return inputs;
  };
  test.run = [kind, p, with_bias](Context& context, const std::vector<Tensor>& in) {
    const Dropout dropout{p, 1234, 5, 6};
    return std::vector<Tensor>{
        ops::bias_act_dropout(context, in[0], with_bias ? in[1] : Tensor{}, kind, dropout)};
  };
  return test;
}

}  // namespace

OpCases bias_act_dropout_cases() {
  OpCases cases;
  for (const Activation kind :
       {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf}) {
    cases.push_back(add_norm_case("width 1", {6, 1}, kind, 0.3f));
    cases.push_back(add_norm_case("odd", {3, 7}, kind, 0.1f));
    cases.push_back(add_norm_case("no dropout", {4, 9}, kind, 0));
    cases.push_back(add_norm_case("no bias", {4, 33}, kind, 0.5f, false));
    cases.push_back(add_norm_case("no bias, no dropout", {2, 18}, kind, 0, false));
    cases.push_back(add_norm_case("empty batch", {0, 8}, kind, 0.3f));
    cases.push_back(add_norm_case("one row", {1, 16}, kind, 0.3f));
    cases.push_back(add_norm_case("three dimensions", {2, 3, 20}, kind, 0.3f));
    cases.push_back(add_norm_case("many narrow rows", {70, 3}, kind, 0.3f));
  }
  OpCase constant = add_norm_case("constant x", {5, 6}, Activation::gelu, 0.2f);
  constant.inputs = [](InputMaker& make) { return std::vector<Tensor>{make.uniform({6})}; };
  constant.run = [run = constant.run](Context& context, const std::vector<Tensor>& in) {
    InputMaker make(context, in[0].dtype(), 5);
    return run(context, {make.uniform({5, 6}), in[0]});
  };
  cases.push_back(constant);
  OpCase twice = add_norm_case("used twice", {5, 6}, Activation::silu, 0.2f);
  twice.run = [run = twice.run](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{run(context, in)[0], run(context, in)[0]};
  };
  cases.push_back(twice);
  OpCase itself = add_norm_case("x is the bias", {6}, Activation::gelu, 0.2f, false);
  itself.run = [](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{
        ops::bias_act_dropout(context, in[0], in[0], Activation::gelu, Dropout{0.2f, 9, 8, 7})};
  };
  cases.push_back(itself);
  return cases;
}

}  // namespace trafo::testing
