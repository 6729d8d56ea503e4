#include "engine/ops/binary/binary.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

using Tensors = std::vector<Tensor>;

// All four operations; b stays away from zero, which divides.
OpCase four(const char* label, Shape a, Shape b) {
  return {label,
          [a, b](InputMaker& maker) {
            return Tensors{maker.uniform(a), maker.uniform(b, 0.5, 2)};
          },
          [](Context& context, const Tensors& in) {
            return Tensors{ops::add(context, in[0], in[1]), ops::subtract(context, in[0], in[1]),
                           ops::multiply(context, in[0], in[1]),
                           ops::divide(context, in[0], in[1])};
          }};
}

// The mask is a constant: every third element of it is 0.
OpCase select(const char* label, Shape a, Shape mask) {
  return {label, [a](InputMaker& maker) { return Tensors{maker.uniform(a)}; },
          [mask](Context& context, const Tensors& in) {
            std::vector<double> values(static_cast<size_t>(element_count(mask)));
            for (size_t i = 0; i < values.size(); ++i) values[i] = i % 3 == 0 ? 0 : 1;
            return Tensors{
                ops::select(context, in[0], context.from_doubles(values, mask, in[0].dtype()))};
          }};
}

}  // namespace

OpCases binary_cases() {
  return {
      four("width 1", {1}, {1}),
      four("same shape, odd", {3, 7}, {3, 7}),
      four("vector over rows", {5, 9}, {9}),
      four("rows over a vector", {9}, {5, 9}),
      four("column over rows", {5, 9}, {5, 1}),
      four("one element", {4, 5}, {1}),
      four("rank 0", {3}, {}),
      four("both sides repeated", {4, 1, 3}, {1, 5, 1}),
      four("outer and inner repeated", {2, 3, 4, 5}, {1, 3, 1, 5}),
      four("batch of one", {1, 6}, {1, 6}),
      four("empty batch", {0, 5}, {5}),
      four("empty against one row", {0, 3}, {1, 3}),
      four("no width", {3, 0}, {1}),
      select("select, same shape", {3, 7}, {3, 7}),
      select("select, a mask of rows", {5, 9}, {5, 1}),
      select("select, both sides repeated", {4, 1, 3}, {1, 5, 1}),
      {"a tensor with itself",
       [](InputMaker& maker) {
         return Tensors{maker.uniform({3, 5}, 0.5, 2)};
       },
       [](Context& context, const Tensors& in) {
         return Tensors{ops::add(context, in[0], in[0]), ops::subtract(context, in[0], in[0]),
                        ops::multiply(context, in[0], in[0]), ops::divide(context, in[0], in[0])};
       }},
  };
}

}  // namespace trafo::testing
