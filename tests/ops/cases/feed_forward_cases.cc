#include "engine/ops/feed_forward/feed_forward.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

OpCase block_case(const char* label, const Shape& shape, int64_t ffn, int64_t out, Activation kind,
                  float p, bool with_bias = true) {
  OpCase test;
  test.label = concat(enum_name(kind), ", ", label);
  test.inputs = [=](InputMaker& make) {
    std::vector<Tensor> inputs{make.uniform(shape), make.uniform({ffn, shape.back()}),
                               make.uniform({out, ffn})};
    if (with_bias) inputs.push_back(make.uniform({ffn}));
    return inputs;
  };
  test.run = [=](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{ops::feed_forward(
        context, in[0], in[1], with_bias ? in[3] : Tensor{}, in[2], kind, Dropout{p, 1234, 5, 6})};
  };
  return test;
}

}  // namespace

OpCases feed_forward_cases() {
  OpCases cases;
  for (const Activation kind : {Activation::relu, Activation::gelu}) {
    cases.push_back(block_case("widths 1", {3, 1}, 1, 1, kind, 0));
    cases.push_back(block_case("odd", {3, 5}, 7, 3, kind, 0));
    cases.push_back(block_case("dropout", {4, 6}, 9, 6, kind, 0.3f));
    cases.push_back(block_case("no bias", {2, 4}, 8, 4, kind, 0, false));
    cases.push_back(block_case("whole vectors", {5, 8}, 16, 8, kind, 0));
    cases.push_back(block_case("empty batch", {0, 8}, 16, 8, kind, 0));
    cases.push_back(block_case("one row", {1, 8}, 16, 8, kind, 0));
    cases.push_back(block_case("three dimensions", {2, 2, 4}, 8, 4, kind, 0));
  }
  cases.push_back(block_case("silu", {3, 4}, 8, 4, Activation::silu, 0.2f));
  OpCase shared = block_case("up and down are one matrix", {3, 4}, 4, 4, Activation::gelu, 0);
  shared.inputs = [](InputMaker& make) {
    return std::vector<Tensor>{make.uniform({3, 4}), make.uniform({4, 4}), make.uniform({4})};
  };
  shared.run = [](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{
        ops::feed_forward(context, in[0], in[1], in[2], in[1], Activation::gelu, {})};
  };
  cases.push_back(shared);
  return cases;
}

}  // namespace trafo::testing
