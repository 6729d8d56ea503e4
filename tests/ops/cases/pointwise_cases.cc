#include "engine/ops/pointwise/pointwise.h"

#include <limits>

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

using Tensors = std::vector<Tensor>;

// The functions of one tensor. Bounds of clamp lie between the drawn values.
OpCase unary(const char* label, Shape shape, double low = -3, double high = 3) {
  return {label, [=](InputMaker& maker) { return Tensors{maker.uniform(shape, low, high)}; },
          [](Context& context, const Tensors& in) {
            const Tensor& x = in[0];
            return Tensors{ops::abs(context, x),      ops::sin(context, x),
                           ops::cos(context, x),      ops::erf(context, x),
                           ops::gelu_erf(context, x), ops::power(context, x, 2),
                           ops::power(context, x, 3), ops::clamp(context, x, -1.0625, 0.8125)};
          }};
}

// Exponents that need positive numbers.
OpCase powers(const char* label, Shape shape) {
  return {label, [shape](InputMaker& maker) { return Tensors{maker.uniform(shape, 0.5, 2)}; },
          [](Context& context, const Tensors& in) {
            return Tensors{ops::power(context, in[0], -0.5), ops::power(context, in[0], 1.75),
                           ops::power(context, in[0], 0),
                           ops::clamp(context, in[0], 1, std::numeric_limits<double>::infinity())};
          }};
}

OpCase binary(const char* label, Shape a, Shape b) {
  return {label,
          [a, b](InputMaker& maker) {
            return Tensors{maker.uniform(a, 0.5, 2), maker.uniform(b, 0.25, 2.5)};
          },
          [](Context& context, const Tensors& in) {
            return Tensors{ops::maximum(context, in[0], in[1]), ops::minimum(context, in[0], in[1]),
                           ops::pow(context, in[0], in[1])};
          }};
}

OpCase choice(const char* label, Shape mask, Shape a, Shape b) {
  return {label,
          [=](InputMaker& maker) {
            return Tensors{maker.uniform(a), maker.uniform(b), maker.integers(mask, 0, 2)};
          },
          [](Context& context, const Tensors& in) {
            return Tensors{ops::where(context, in[2], in[0], in[1]),
                           ops::masked_fill(context, in[0], in[2], -7.5)};
          }};
}

OpCase triangles(const char* label, Shape shape, int64_t diagonal) {
  return {
      label, [shape](InputMaker& maker) { return Tensors{maker.uniform(shape)}; },
      [diagonal](Context& context, const Tensors& in) {
        return Tensors{ops::tril(context, in[0], diagonal), ops::triu(context, in[0], diagonal)};
      }};
}

}  // namespace

OpCases pointwise_cases() {
  return {
      unary("width 1", {1}),
      unary("rank 0", {}),
      unary("odd", {3, 5}),
      unary("over a piece", {2, 300}),
      unary("rank 4", {2, 1, 3, 4}),
      unary("empty batch", {0, 7}),
      unary("far out", {41}, -9, 9),
      powers("powers", {3, 7}),
      binary("same shape", {3, 7}, {3, 7}),
      binary("vector over rows", {5, 9}, {9}),
      binary("a column and a row", {4, 1, 3}, {1, 5, 1}),
      binary("a number over everything", {}, {2, 3, 4}),
      binary("outer and inner repeated", {2, 3, 4, 5}, {1, 3, 1, 5}),
      binary("empty against one row", {0, 3}, {1, 3}),
      choice("all of one shape", {4, 9}, {4, 9}, {4, 9}),
      choice("a mask of columns", {4, 9}, {4, 9}, {}),
      choice("a mask of rows", {7, 1}, {7, 5}, {1, 5}),
      choice("everything repeated", {3, 1, 1}, {1, 4, 1}, {1, 1, 5}),
      triangles("triangle of a square", {5, 5}, 0),
      triangles("above the diagonal", {2, 3, 4}, 1),
      triangles("beyond the corner", {3, 2}, -9),
      {"equal elements and a tensor with itself",
       [](InputMaker& maker) {
         return Tensors{maker.uniform({3, 4})};
       },
       [](Context& context, const Tensors& in) {
         return Tensors{ops::maximum(context, in[0], in[0]), ops::minimum(context, in[0], in[0])};
       }},
  };
}

}  // namespace trafo::testing
