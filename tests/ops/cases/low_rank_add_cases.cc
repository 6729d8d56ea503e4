#include "engine/ops/low_rank_add/low_rank_add.h"

#include "engine/ops/unary/unary.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

OpCase add_case(const char* label, int64_t tokens, int64_t width, int64_t rank,
                std::vector<ColumnRange> ranges) {
  OpCase test;
  test.label = label;
  int64_t rows = 0;
  for (const ColumnRange& range : ranges) rows += range.count;
  const auto count = static_cast<int64_t>(ranges.size());
  test.inputs = [=](InputMaker& make) {
    return std::vector<Tensor>{make.uniform({tokens, width}), make.uniform({tokens, count * rank}),
                               make.uniform({rows, rank})};
  };
  test.run = [ranges](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{ops::low_rank_add(context, in[0], in[1], in[2], ranges)};
  };
  return test;
}

}  // namespace

OpCases low_rank_add_cases() {
  OpCases cases = {
      add_case("width 1", 3, 1, 1, {{0, 1}}),
      add_case("the whole row", 5, 12, 4, {{0, 12}}),
      add_case("odd", 3, 7, 3, {{0, 7}}),
      add_case("queries and values", 4, 24, 2, {{0, 8}, {16, 8}}),
      add_case("all of a packed projection", 4, 24, 8, {{0, 8}, {8, 8}, {16, 8}}),
      add_case("keys of another width", 5, 16, 4, {{0, 8}, {8, 4}, {12, 4}}),
      add_case("ranges in another order", 4, 15, 3, {{10, 5}, {0, 4}}),
      add_case("an empty range", 3, 6, 2, {{2, 0}, {2, 3}}),
      add_case("empty batch", 0, 8, 2, {{0, 4}, {4, 4}}),
      add_case("one row", 1, 16, 8, {{0, 16}}),
      add_case("more rank than columns", 6, 3, 9, {{0, 3}}),
  };
  // The result takes the memory of a tensor that nobody else reads.
  OpCase in_place = add_case("in place", 4, 24, 2, {{0, 8}, {16, 8}});
  in_place.run = [](Context& context, const std::vector<Tensor>& in) {
    const std::vector<ColumnRange> ranges = {{0, 8}, {16, 8}};
    return std::vector<Tensor>{
        ops::low_rank_add(context, ops::scale(context, in[0], 1.5), in[1], in[2], ranges, true)};
  };
  cases.push_back(in_place);
  // The gradients of two uses meet in one buffer.
  OpCase twice = add_case("used twice", 4, 10, 3, {{1, 6}});
  twice.run = [](Context& context, const std::vector<Tensor>& in) {
    const std::vector<ColumnRange> first = {{1, 6}}, second = {{4, 6}};
    return std::vector<Tensor>{ops::low_rank_add(context, in[0], in[1], in[2], first),
                               ops::low_rank_add(context, in[0], in[1], in[2], second)};
  };
  cases.push_back(twice);
  return cases;
}

}  // namespace trafo::testing
