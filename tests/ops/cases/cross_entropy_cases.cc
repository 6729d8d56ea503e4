#include "engine/ops/cross_entropy/cross_entropy.h"

#include <numeric>

#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/pointwise/pointwise.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

struct LossCase {
  int64_t classes;
  std::vector<int32_t> labels;
  double smoothing = 0;
  bool weighted = false;
  Reduction reduction = Reduction::mean;
  double range = 3;       // of the logits
  bool by_class = false;  // the classes have weights, the weight of class 1 is 0
};

std::vector<int32_t> class_numbers(int64_t count) {
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

OpCase loss_case(const char* label, const LossCase& c) {
  OpCase test;
  test.label = label;
  const int64_t rows = static_cast<int64_t>(c.labels.size());
  test.inputs = [c, rows](InputMaker& maker) {
    return std::vector<Tensor>{maker.uniform({rows, c.classes}, -c.range, c.range)};
  };
  test.run = [c, rows](Context& context, const std::vector<Tensor>& inputs) {
    ops::CrossEntropyOptions options;
    options.label_smoothing = c.smoothing;
    options.reduction = c.reduction;
    if (c.weighted) {
      InputMaker maker(context, inputs[0].dtype(), 31);
      options.weights = maker.weights({rows}, 0.25, 2);
    }
    if (c.by_class) {
      InputMaker maker(context, inputs[0].dtype(), 34);
      const Tensor other =
          ops::compare(context, context.from_values<int32_t>(class_numbers(c.classes), {c.classes}),
                       1, Comparison::not_equal);
      const Tensor weights = maker.weights({c.classes}, 0.25, 2);
      options.class_weights =
          ops::multiply(context, weights, ops::cast(context, other, weights.dtype()));
    }
    const Tensor labels = context.from_values<int32_t>(c.labels, {rows});
    return std::vector<Tensor>{ops::cross_entropy(context, inputs[0], labels, options).loss};
  };
  return test;
}

}  // namespace

OpCases cross_entropy_cases() {
  return {
      loss_case("one class", {1, {0, 0, 0}}),
      loss_case("one row", {5, {3}, 0.1}),
      loss_case("odd", {7, {0, 6, 3}, 0, false, Reduction::sum}),
      loss_case("no vector divides the classes", {37, {36, 0, 17, 5}, 0.2}),
      loss_case("empty batch", {5, {}, 0.1}),
      loss_case("empty batch, losses apart", {5, {}, 0.1, true, Reduction::none}),
      loss_case("every label ignored", {6, {-100, -100}, 0.1}),
      loss_case("ignored labels and weights", {9, {2, -100, 8, -100, 0}, 0.1, true}),
      loss_case("losses apart", {9, {2, -100, 8, 4}, 0.3, true, Reduction::none}),
      loss_case("large logits", {16, {3, 9, 0}, 0, false, Reduction::mean, 40}),
      loss_case("more classes than a piece", {1100, {1099}, 0.1, true, Reduction::sum}),
      loss_case("weights of classes", {7, {0, -100, 1, 3}, 0, false, Reduction::mean, 3, true}),
      loss_case("weights of classes and rows, smoothed",
                {6, {2, 1, -100, 5}, 0.2, true, Reduction::mean, 3, true}),
      loss_case("weights of classes, losses apart, smoothed",
                {6, {2, 1, -100, 5}, 0.2, false, Reduction::none, 3, true}),
      loss_case("weights of classes, empty batch", {5, {}, 0.1, false, Reduction::sum, 3, true}),
  };
}

}  // namespace trafo::testing
