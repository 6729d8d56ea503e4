#include "engine/ops/along_dim/along_dim.h"

#include <algorithm>

#include "tests/ops/op_cases.h"

namespace trafo::testing {

OpCases gather_cases();
OpCases cumulative_sum_cases();

namespace {

using Tensors = std::vector<Tensor>;

// gather, scatter_add and scatter with one index. Places are drawn, so that some come twice.
OpCase indexed(const char* label, Shape x, int dim, Shape index) {
  const auto places = static_cast<int32_t>(x[dim < 0 ? dim + x.rank() : dim]);
  return {label,
          [=](InputMaker& maker) {
            return Tensors{maker.uniform(x), maker.integers(index, 0, std::max(places, 1)),
                           maker.uniform(index)};
          },
          [dim](Context& context, const Tensors& in) {
            return Tensors{ops::gather(context, in[0], dim, in[1]),
                           ops::scatter_add(context, in[0], dim, in[1], in[2]),
                           ops::scatter(context, in[0], dim, in[1], in[2])};
          }};
}

OpCase top(const char* label, Shape x, int64_t k, int dim) {
  return {label, [x](InputMaker& maker) { return Tensors{maker.uniform(x)}; },
          [=](Context& context, const Tensors& in) {
            return Tensors{ops::top_k_of(context, in[0], k, dim).values};
          }};
}

OpCase sums(const char* label, Shape x, int dim) {
  return {label, [x](InputMaker& maker) { return Tensors{maker.uniform(x)}; },
          [dim](Context& context, const Tensors& in) {
            return Tensors{ops::cumsum(context, in[0], dim)};
          }};
}

}  // namespace

OpCases gather_cases() {
  return {
      indexed("width 1", {1}, 0, {1}),
      indexed("last dimension", {4, 7}, -1, {4, 3}),
      indexed("first dimension", {4, 7}, 0, {9, 7}),
      indexed("middle dimension", {3, 5, 2}, 1, {3, 4, 2}),
      indexed("part of the other dimensions", {3, 5, 4}, 1, {2, 6, 3}),
      indexed("many to few places", {2, 3}, 1, {2, 150}),
      indexed("nothing indexed", {3, 4}, 1, {3, 0}),
      indexed("empty batch", {0, 4}, 1, {0, 2}),
      top("largest of rows", {5, 9}, 3, -1),
      top("largest of columns", {6, 4}, 2, 0),
      top("all of them", {2, 7}, 7, 1),
      top("over a block", {2, 700}, 5, 1),
  };
}

OpCases cumulative_sum_cases() {
  return {
      sums("width 1", {1}, 0),
      sums("last dimension", {4, 7}, -1),
      sums("first dimension", {4, 7}, 0),
      sums("middle dimension", {3, 5, 2}, 1),
      sums("over a block", {2, 700}, 1),
      sums("exactly a block", {256, 2}, 0),
      sums("empty batch", {0, 7}, 1),
      sums("nothing to sum", {3, 0}, 1),
  };
}

}  // namespace trafo::testing
