#include "engine/ops/qk_norm/qk_norm.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

// `values`: columns after queries and keys.
struct QkShape {
  int64_t rows, heads, key_heads, query_size, key_size, values;
  int64_t columns() const { return heads * query_size + key_heads * key_size + values; }
};

Tensor normed(Context& context, const std::vector<Tensor>& in, const QkShape& shape,
              double epsilon = 1e-6) {
  return ops::qk_norm(context, in[0], in[1], in[2], shape.heads * shape.query_size,
                      shape.key_heads * shape.key_size, epsilon);
}

OpCase qk_norm_case(const char* label, const QkShape& shape, double epsilon = 1e-6) {
  OpCase test;
  test.label = label;
  test.inputs = [shape](InputMaker& make) {
    return std::vector<Tensor>{make.uniform({shape.rows, shape.columns()}),
                               make.uniform({shape.query_size}, 0.5, 1.5),
                               make.uniform({shape.key_size}, 0.5, 1.5)};
  };
  test.run = [=](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{normed(context, in, shape, epsilon)};
  };
  test.tolerance = 5e-6;
  return test;
}

// Input `frozen` is a constant: it comes from inside the run, without a gradient.
OpCase without_grad(const char* label, const QkShape& shape, size_t frozen) {
  OpCase test = qk_norm_case(label, shape);
  test.inputs = [inputs = test.inputs, frozen](InputMaker& make) {
    std::vector<Tensor> all = inputs(make);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(frozen));
    return all;
  };
  test.run = [shape, frozen](Context& context, const std::vector<Tensor>& in) {
    InputMaker make(context, in[0].dtype(), 5);
    const Shape shapes[] = {{shape.rows, shape.columns()}, {shape.query_size}, {shape.key_size}};
    std::vector<Tensor> all = in;
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(frozen),
               make.uniform(shapes[frozen], 0.5, 1.5));
    return std::vector<Tensor>{normed(context, all, shape)};
  };
  return test;
}

}  // namespace

OpCases qk_norm_cases() {
  OpCases cases = {
      qk_norm_case("one head", {5, 1, 1, 8, 8, 8}),
      qk_norm_case("several heads", {4, 3, 3, 4, 4, 12}),
      qk_norm_case("grouped queries", {4, 4, 2, 8, 8, 16}),
      qk_norm_case("heads of width 1", {3, 2, 1, 1, 1, 1}),
      qk_norm_case("heads that no vector divides", {3, 2, 1, 7, 7, 7}),
      qk_norm_case("heads of one more than two vectors", {3, 2, 1, 33, 33, 33}),
      qk_norm_case("without values", {4, 2, 2, 6, 6, 0}),
      qk_norm_case("values of another width", {4, 2, 1, 6, 6, 5}),
      qk_norm_case("keys of another width", {4, 3, 2, 6, 10, 9}),
      qk_norm_case("one row", {1, 2, 1, 16, 16, 16}),
      qk_norm_case("many narrow rows", {40, 2, 1, 2, 2, 2}),
      qk_norm_case("empty batch", {0, 2, 1, 8, 8, 8}),
      qk_norm_case("large epsilon", {4, 2, 1, 6, 6, 6}, 0.1),
      without_grad("constant x", {4, 2, 1, 6, 6, 6}, 0),
      without_grad("constant gamma of queries", {4, 2, 1, 6, 6, 6}, 1),
      without_grad("constant gamma of keys", {4, 2, 1, 6, 6, 6}, 2),
  };
  // The gradients of two uses meet in one buffer.
  const QkShape shape{5, 2, 1, 6, 6, 6};
  OpCase twice = qk_norm_case("used twice", shape);
  twice.run = [shape](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{normed(context, in, shape), normed(context, in, shape, 1e-3)};
  };
  cases.push_back(twice);
  // Queries and keys have one vector.
  OpCase shared = qk_norm_case("one gamma for both", shape);
  shared.run = [shape](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{normed(context, {in[0], in[1], in[1]}, shape)};
  };
  shared.inputs = [shape](InputMaker& make) {
    return std::vector<Tensor>{make.uniform({shape.rows, shape.columns()}),
                               make.uniform({shape.query_size}, 0.5, 1.5)};
  };
  cases.push_back(shared);
  return cases;
}

}  // namespace trafo::testing
