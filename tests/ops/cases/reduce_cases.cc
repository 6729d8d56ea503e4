#include "engine/ops/reduce/reduce.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

using Tensors = std::vector<Tensor>;

OpCase along(const char* label, Shape shape, int dim, bool keep_dim = false) {
  return {label, [shape](InputMaker& maker) { return Tensors{maker.uniform(shape)}; },
          [=](Context& context, const Tensors& in) {
            return Tensors{ops::sum(context, in[0], dim, keep_dim),
                           ops::mean(context, in[0], dim, keep_dim),
                           ops::max(context, in[0], dim, keep_dim)};
          }};
}

OpCase several(const char* label, Shape shape, std::vector<int> dims, bool keep_dim = false) {
  return {label, [shape](InputMaker& maker) { return Tensors{maker.uniform(shape)}; },
          [=](Context& context, const Tensors& in) {
            return Tensors{
                ops::sum(context, in[0], dims, keep_dim), ops::mean(context, in[0], dims, keep_dim),
                ops::max(context, in[0], dims, keep_dim), ops::min(context, in[0], dims, keep_dim)};
          }};
}

OpCase over_all(const char* label, Shape shape) {
  return {label, [shape](InputMaker& maker) { return Tensors{maker.uniform(shape)}; },
          [](Context& context, const Tensors& in) {
            return Tensors{ops::sum(context, in[0]), ops::mean(context, in[0])};
          }};
}

}  // namespace

OpCases reduce_cases() {
  return {
      along("width 1", {4, 1}, 1),
      along("last dimension, odd", {5, 7}, -1),
      along("first dimension", {5, 7}, 0),
      along("middle dimension", {3, 4, 5}, 1),
      along("kept dimension", {3, 4, 5}, -2, true),
      along("to rank 0", {6}, 0),
      along("one row", {1, 33}, 1),
      along("over a row chunk", {259, 2}, 0),
      along("empty batch", {0, 5}, 1),
      along("no columns", {3, 0, 4}, 0, true),
      over_all("everything", {3, 5, 2}),
      over_all("one element", {1}),
      several("the last two", {2, 3, 4}, {-1, 1}),
      several("outer and inner", {2, 3, 4}, {0, 2}, true),
      several("all dimensions", {3, 5}, {}),
      several("all dimensions, kept", {3, 5}, {0, 1}, true),
      several("one, first of four", {2, 3, 1, 2}, {0}),
      {"sum over nothing",
       [](InputMaker& maker) {
         return Tensors{maker.uniform({3, 0})};
       },
       [](Context& context, const Tensors& in) {
         return Tensors{ops::sum(context, in[0], 1), ops::sum(context, in[0])};
       }},
  };
}

}  // namespace trafo::testing
