#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/softmax/softmax.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

struct SoftLossCase {
  int64_t rows, classes;
  double smoothing = 0;
  bool weighted = false, by_class = false;
  Reduction reduction = Reduction::mean;
  double range = 3;  // of the logits, and of the targets'
};

OpCase soft_loss_case(const char* label, const SoftLossCase& c) {
  OpCase test;
  test.label = label;
  test.inputs = [c](InputMaker& maker) {
    return std::vector<Tensor>{maker.uniform({c.rows, c.classes}, -c.range, c.range),
                               maker.uniform({c.rows, c.classes}, -c.range, c.range)};
  };
  test.run = [c](Context& context, const std::vector<Tensor>& inputs) {
    ops::CrossEntropyOptions options;
    options.label_smoothing = c.smoothing;
    options.reduction = c.reduction;
    InputMaker maker(context, inputs[0].dtype(), 35);
    if (c.weighted) options.weights = maker.weights({c.rows}, 0.25, 2);
    if (c.by_class) options.class_weights = maker.weights({c.classes}, 0, 2);
    const Tensor targets = ops::softmax(context, inputs[1]);  // of a teacher
    return std::vector<Tensor>{ops::soft_cross_entropy(context, inputs[0], targets, options)};
  };
  return test;
}

}  // namespace

OpCases soft_cross_entropy_cases() {
  return {
      soft_loss_case("one class", {3, 1}),
      soft_loss_case("one row", {1, 5}),
      soft_loss_case("odd", {3, 7, 0, false, false, Reduction::sum}),
      soft_loss_case("no vector divides the classes", {4, 37}),
      soft_loss_case("empty batch", {0, 5}),
      soft_loss_case("empty batch, losses apart", {0, 5, 0.1, true, true, Reduction::none}),
      soft_loss_case("smoothed", {3, 6, 0.2}),
      soft_loss_case("weights of rows", {4, 6, 0.1, true}),
      soft_loss_case("weights of classes", {4, 6, 0.1, false, true}),
      soft_loss_case("losses apart", {4, 6, 0.1, true, true, Reduction::none}),
      soft_loss_case("large logits", {3, 9, 0, false, false, Reduction::mean, 40}),
  };
}

}  // namespace trafo::testing
