#include "engine/ops/view/view.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

using Tensors = std::vector<Tensor>;

// Each case chains views and ends contiguous, so that the copy and its gradient take part too.
OpCase one(const char* label, Shape shape, std::function<Tensor(Context&, const Tensor&)> view) {
  return {label, [shape](InputMaker& maker) { return Tensors{maker.uniform(shape)}; },
          [view](Context& context, const Tensors& in) {
            return Tensors{ops::contiguous(context, view(context, in[0]))};
          }};
}

OpCase joined(const char* label, std::vector<Shape> shapes, int dim) {
  return {label,
          [shapes](InputMaker& maker) {
            Tensors tensors;
            for (const Shape& shape : shapes) tensors.push_back(maker.uniform(shape));
            return tensors;
          },
          [dim](Context& context, const Tensors& in) {
            return Tensors{ops::concat(context, in, dim)};
          }};
}

}  // namespace

OpCases view_cases() {
  return {
      one("width 1", {1, 1},
          [](Context& c, const Tensor& x) { return ops::transpose(c, x, 0, 1); }),
      one("transpose of odd sizes", {5, 7},
          [](Context& c, const Tensor& x) { return ops::transpose(c, x, 0, 1); }),
      one("transpose over a tile edge", {17, 33},
          [](Context& c, const Tensor& x) { return ops::transpose(c, x, -1, -2); }),
      one("heads: split, swap, merge", {2, 3, 8},
          [](Context& c, const Tensor& x) {
            const Tensor heads = ops::transpose(c, ops::reshape(c, x, {2, 3, 4, 2}), 1, 2);
            return ops::reshape(c, ops::transpose(c, heads, 1, 2), {2, 3, -1});
          }),
      one("transpose, then merge", {3, 4, 5},
          [](Context& c, const Tensor& x) {
            return ops::reshape(c, ops::transpose(c, x, 0, 2), {5, 12});
          }),
      one("outermost swap of rank 4", {2, 3, 4, 5},
          [](Context& c, const Tensor& x) { return ops::transpose(c, x, 0, 3); }),
      one("slices of one tensor", {4, 9},
          [](Context& c, const Tensor& x) {
            const Tensors parts{ops::slice(c, x, 1, 6, 9), ops::slice(c, x, -1, 0, 3),
                                ops::slice(c, x, 1, 2, 5)};
            return ops::concat(c, parts, 0);
          }),
      one("slice of rows, reshaped in place", {6, 4},
          [](Context& c, const Tensor& x) {
            return ops::reshape(c, ops::slice(c, x, 0, 1, 5), {2, 2, 4});
          }),
      one("slice of columns, split in place", {3, 12},
          [](Context& c, const Tensor& x) {
            return ops::reshape(c, ops::slice(c, x, 1, 4, 10), {3, 2, 3});
          }),
      one("empty slice", {3, 4},
          [](Context& c, const Tensor& x) { return ops::slice(c, x, 0, 3, 3); }),
      one("empty batch", {0, 4},
          [](Context& c, const Tensor& x) {
            return ops::transpose(c, ops::reshape(c, x, {0, 2, 2}), 0, 1);
          }),
      one("permuted dimensions", {2, 3, 4, 5},
          [](Context& c, const Tensor& x) {
            return ops::permute(c, x, std::vector<int>{2, 0, -1, 1});
          }),
      one("permuted twice", {3, 4, 5},
          [](Context& c, const Tensor& x) {
            const std::vector<int> turn{1, 2, 0};
            return ops::permute(c, ops::permute(c, x, turn), turn);
          }),
      one("expanded in front and inside", {3, 1, 2},
          [](Context& c, const Tensor& x) {
            return ops::expand(c, x, {4, -1, 5, 2});
          }),
      one("expanded from rank 0", {},
          [](Context& c, const Tensor& x) {
            return ops::expand(c, x, {2, 3});
          }),
      one("expanded to nothing", {1, 4},
          [](Context& c, const Tensor& x) {
            return ops::expand(c, x, {0, 4});
          }),
      joined("concat of rows", {{1, 3}, {4, 3}, {2, 3}}, 0),
      joined("concat of columns, one empty", {{3, 2}, {3, 0}, {3, 5}}, -1),
      joined("concat in the middle", {{2, 1, 3}, {2, 3, 3}}, 1),
      joined("concat of one", {{7}}, 0),
  };
}

}  // namespace trafo::testing
