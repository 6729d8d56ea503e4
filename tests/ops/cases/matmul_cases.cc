#include "engine/ops/matmul/matmul.h"

#include "engine/ops/view/view.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

using Tensors = std::vector<Tensor>;

OpCase product(const char* label, Shape a, Shape b, ops::MatmulOptions options = {}) {
  return {label,
          [a, b](InputMaker& maker) {
            return Tensors{maker.uniform(a), maker.uniform(b)};
          },
          [options](Context& context, const Tensors& in) {
            return Tensors{ops::matmul(context, in[0], in[1], options)};
          }};
}

OpCase linear(const char* label, Shape x, int64_t out, bool bias = true) {
  const Shape weight{out, x.back()};
  return {label,
          [=](InputMaker& maker) {
            Tensors inputs{maker.uniform(x), maker.uniform(weight)};
            if (bias) inputs.push_back(maker.uniform({out}));
            return inputs;
          },
          [bias](Context& context, const Tensors& in) {
            return Tensors{ops::linear(context, in[0], in[1], bias ? in[2] : Tensor{})};
          }};
}

}  // namespace

OpCases matmul_cases() {
  return {
      product("width 1", {1, 1}, {1, 1}),
      product("odd", {3, 5}, {5, 7}),
      product("a transposed", {5, 3}, {5, 7}, {.transpose_a = true}),
      product("b transposed", {3, 5}, {7, 5}, {.transpose_b = true}),
      product("both transposed", {5, 3}, {7, 5}, {.transpose_a = true, .transpose_b = true}),
      product("batched", {3, 2, 4}, {3, 4, 5}),
      product("batched, both transposed", {2, 4, 3}, {2, 5, 4},
              {.transpose_a = true, .transpose_b = true}),
      product("row times column", {1, 9}, {9, 1}),
      product("column times row", {6, 1}, {1, 5}),
      product("empty batch", {0, 2, 3}, {0, 3, 4}),
      product("no rows", {0, 3}, {3, 4}),
      product("nothing to sum", {2, 0}, {0, 3}),
      product("rank 4", {2, 3, 4, 5}, {2, 3, 5, 2}),
      product("rank 4, transposed", {2, 3, 5, 4}, {2, 3, 2, 5},
              {.transpose_a = true, .transpose_b = true}),
      product("both sides repeated", {3, 1, 2, 4}, {2, 4, 3}),
      product("one matrix for a batch", {2, 3, 4, 5}, {5, 2}),
      product("one matrix for a batch, transposed", {3, 5, 4}, {2, 5},
              {.transpose_a = true, .transpose_b = true}),
      product("a batch behind one matrix", {4, 5}, {3, 5, 2}),
      product("vector times vector", {5}, {5}),
      product("matrix times vector", {3, 5}, {5}),
      product("vector times batch", {5}, {2, 5, 3}),
      product("empty batch, repeated", {0, 1, 2, 3}, {4, 3, 2}),
      linear("linear", {4, 5}, 3),
      linear("linear without bias", {4, 5}, 3, false),
      linear("linear of rank 3", {2, 3, 4}, 5),
      linear("linear of one vector", {6}, 4),
      linear("linear, empty batch", {0, 3, 4}, 5),
      linear("linear, width 1", {3, 1}, 1),
      {"one matrix on both sides",
       [](InputMaker& maker) {
         return Tensors{maker.uniform({3, 3})};
       },
       [](Context& context, const Tensors& in) {
         return Tensors{ops::matmul(context, in[0], in[0]), ops::linear(context, in[0], in[0])};
       }},
      {"views read in place",
       [](InputMaker& maker) {
         return Tensors{maker.uniform({4, 9}), maker.uniform({5, 3})};
       },
       [](Context& context, const Tensors& in) {
         const Tensor part = ops::slice(context, in[0], 1, 2, 5);
         return Tensors{ops::matmul(context, part, ops::transpose(context, in[1], 0, 1)),
                        ops::linear(context, part, in[1])};
       }},
  };
}

}  // namespace trafo::testing
