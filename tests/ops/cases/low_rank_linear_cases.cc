#include "engine/ops/low_rank_linear/low_rank_linear.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

OpCase layer_case(const char* label, int64_t tokens, int64_t in, int64_t out, int64_t rank,
                  std::vector<ColumnRange> ranges, bool with_bias = false, double scale = 2) {
  OpCase test;
  test.label = label;
  int64_t rows = 0;
  for (const ColumnRange& range : ranges) rows += range.count;
  const auto count = static_cast<int64_t>(ranges.size());
  test.inputs = [=](InputMaker& make) {
    std::vector<Tensor> inputs{make.uniform({tokens, in}), make.uniform({count * rank, in}),
                               make.uniform({rows, rank})};
    if (with_bias) inputs.push_back(make.uniform({out}));
    return inputs;
  };
  test.run = [=](Context& context, const std::vector<Tensor>& in_tensors) {
    // The weight is frozen: no input of the case.
    InputMaker make(context, in_tensors[0].dtype(), 17);
    const LowRankUpdate update{in_tensors[1], in_tensors[2], scale,
                               std::make_shared<const std::vector<ColumnRange>>(ranges)};
    return std::vector<Tensor>{ops::low_rank_linear(context, in_tensors[0],
                                                    {make.uniform({out, in}), nullptr},
                                                    with_bias ? in_tensors[3] : Tensor{}, update)};
  };
  return test;
}

}  // namespace

OpCases low_rank_linear_cases() {
  OpCases cases = {
      layer_case("widths 1", 3, 1, 1, 1, {{0, 1}}),
      layer_case("the whole row", 5, 8, 12, 4, {{0, 12}}),
      layer_case("odd", 3, 5, 7, 3, {{0, 7}}, true, 0.5),
      layer_case("queries and values", 4, 8, 24, 2, {{0, 8}, {16, 8}}, true),
      layer_case("a packed projection", 4, 8, 24, 8, {{0, 8}, {8, 8}, {16, 8}}),
      layer_case("keys of another width", 5, 6, 16, 4, {{0, 8}, {8, 4}, {12, 4}}),
      layer_case("an empty range", 3, 4, 6, 2, {{2, 0}, {2, 3}}),
      layer_case("empty batch", 0, 8, 8, 2, {{0, 4}, {4, 4}}),
      layer_case("one row", 1, 8, 16, 8, {{0, 16}}),
      layer_case("a wide term", 4, 8, 72, 24, {{0, 24}, {24, 24}, {48, 24}}),
  };
  // The gradients of two uses meet in one buffer.
  OpCase twice = layer_case("used twice", 4, 8, 10, 3, {{1, 6}});
  const auto once = twice.run;
  twice.run = [once](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{once(context, in)[0], once(context, in)[0]};
  };
  cases.push_back(twice);
  return cases;
}

}  // namespace trafo::testing
