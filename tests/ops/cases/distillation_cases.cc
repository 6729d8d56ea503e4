#include "engine/ops/distillation/distillation.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

struct TaughtCase {
  int64_t classes;
  std::vector<int32_t> labels;
  double share = 0.5, temperature = 1;
  double smoothing = 0;
  bool weighted = false;
  Reduction reduction = Reduction::mean;
  double range = 3;  // of the logits
};

OpCase taught_case(const char* label, const TaughtCase& c) {
  OpCase test;
  test.label = label;
  const int64_t rows = static_cast<int64_t>(c.labels.size());
  test.inputs = [c, rows](InputMaker& maker) {
    return std::vector<Tensor>{maker.uniform({rows, c.classes}, -c.range, c.range)};
  };
  test.run = [c, rows](Context& context, const std::vector<Tensor>& inputs) {
    InputMaker maker(context, inputs[0].dtype(), 37);
    ops::DistillationOptions options;
    options.share = c.share;
    options.temperature = c.temperature;
    options.loss.label_smoothing = c.smoothing;
    options.loss.reduction = c.reduction;
    if (c.weighted) options.loss.weights = maker.weights({rows}, 0.25, 2);
    const Tensor teacher = maker.uniform({rows, c.classes}, -c.range, c.range);
    const Tensor labels = context.from_values<int32_t>(c.labels, {rows});
    return std::vector<Tensor>{
        ops::distillation(context, inputs[0], teacher, labels, options).loss};
  };
  return test;
}

}  // namespace

OpCases distillation_cases() {
  return {
      taught_case("one class", {1, {0, 0, 0}, 0.5, 2}),
      taught_case("one row", {5, {3}, 0.3, 1, 0.1}),
      taught_case("the teacher alone", {7, {0, 6, 3}, 1, 1, 0, false, Reduction::sum}),
      taught_case("the teacher alone, warm", {7, {0, 6, 3}, 1, 3, 0.2, true, Reduction::sum}),
      taught_case("no teacher", {7, {0, 6, 3}, 0, 2, 0.1}),
      taught_case("no vector divides the classes", {37, {36, 0, 17, 5}, 0.5, 2, 0.2}),
      taught_case("cold", {19, {18, 0, 7}, 0.5, 0.5, 0.1}),
      taught_case("empty batch", {5, {}, 0.5, 2, 0.1}),
      taught_case("every label ignored", {6, {-100, -100}, 0.5, 2, 0.1}),
      taught_case("ignored labels and weights", {9, {2, -100, 8, -100, 0}, 0.7, 2, 0.1, true}),
      taught_case("losses apart", {9, {2, -100, 8, 4}, 0.5, 2, 0.3, true, Reduction::none}),
      taught_case("large logits", {16, {3, 9, 0}, 0.5, 4, 0, false, Reduction::mean, 40}),
      taught_case("more classes than a piece", {1100, {1099}, 0.5, 2, 0.1, true, Reduction::sum}),
  };
}

}  // namespace trafo::testing
