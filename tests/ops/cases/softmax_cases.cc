#include "engine/ops/softmax/softmax.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

struct Options {
  double scale = 1;
  bool causal = false;
  bool padded = false;
};

OpCase softmax_case(const char* label, const Shape& shape, Options options = {}) {
  OpCase test;
  test.label = label;
  test.inputs = [shape, options](InputMaker& make) {
    std::vector<Tensor> inputs{make.uniform(shape, -3, 3)};
    const int64_t batch = shape.rank() == 4 ? shape[0] : 1;
    if (options.padded) inputs.push_back(make.integers({batch, shape.back()}, 0, 2));
    return inputs;
  };
  test.run = [options](Context& context, const std::vector<Tensor>& in) {
    ops::SoftmaxOptions softmax;
    softmax.scale = options.scale;
    softmax.causal = options.causal;
    if (options.padded) softmax.padding_mask = in[1];
    return std::vector<Tensor>{ops::softmax(context, in[0], softmax)};
  };
  return test;
}

// Every key of the second sentence is padding.
OpCase all_hidden_case(bool causal) {
  OpCase test = softmax_case("all-masked rows", {2, 2, 3, 5}, {0.5, causal, true});
  test.inputs = [](InputMaker& make) {
    std::vector<Tensor> inputs{make.uniform({2, 2, 3, 5}, -3, 3)};
    inputs.push_back(make.integers({0, 1, 0, 0, 1, 1, 2, 1, -1, 1}).reshaped({2, 5}));
    return inputs;
  };
  return test;
}

}  // namespace

OpCases softmax_cases() {
  return {
      softmax_case("one key", {2, 2, 3, 1}),
      softmax_case("odd", {1, 2, 3, 7}),
      softmax_case("scaled", {2, 1, 4, 9}, {0.125}),
      softmax_case("negative scale", {1, 1, 3, 18}, {-2}),
      softmax_case("causal square", {2, 2, 5, 5}, {1, true}),
      softmax_case("causal, more keys than queries", {1, 2, 3, 8}, {1, true}),
      softmax_case("causal, more queries than keys: rows that see nothing", {1, 2, 6, 3},
                   {1, true}),
      softmax_case("padded", {3, 2, 2, 17}, {1, false, true}),
      softmax_case("padded and causal", {2, 2, 6, 6}, {0.7, true, true}),
      all_hidden_case(false),
      all_hidden_case(true),
      softmax_case("two dimensions", {4, 33}),
      softmax_case("one dimension", {13}),
      softmax_case("three dimensions, padded", {3, 4, 6}, {1, true, true}),
      softmax_case("empty batch", {0, 2, 3, 4}),
      softmax_case("empty batch, padded", {0, 2, 3, 4}, {1, false, true}),
      softmax_case("no keys", {2, 3, 0}),
      softmax_case("keys no vector divides", {1, 1, 2, 131}),
  };
}

}  // namespace trafo::testing
