#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

struct HeadCase {
  int64_t width, classes;
  std::vector<int32_t> labels;
  int64_t chunk_rows = 1000;
  bool bias = true;
  double smoothing = 0;
  bool weighted = false;
  Reduction reduction = Reduction::mean;
  bool by_class = false;
  double teacher_share = 0;  // above 0: with a teacher of temperature 2
  double soft_cap = 0;       // of both
};

OpCase head_case(const char* label, const HeadCase& c) {
  OpCase test;
  test.label = label;
  const int64_t rows = static_cast<int64_t>(c.labels.size());
  test.inputs = [c, rows](InputMaker& maker) {
    std::vector<Tensor> inputs{maker.uniform({rows, c.width}), maker.uniform({c.classes, c.width})};
    if (c.bias) inputs.push_back(maker.uniform({c.classes}));
    return inputs;
  };
  test.run = [c, rows](Context& context, const std::vector<Tensor>& inputs) {
    ops::LinearCrossEntropyOptions options;
    const DType dtype = inputs[0].dtype();
    options.chunk_bytes = c.chunk_rows * c.classes * static_cast<int64_t>(dtype_size(dtype));
    options.loss.label_smoothing = c.smoothing;
    options.loss.reduction = c.reduction;
    if (c.weighted) {
      InputMaker maker(context, dtype, 32);
      options.loss.weights = maker.weights({rows}, 0.25, 2);
    }
    if (c.by_class) {
      InputMaker maker(context, dtype, 36);
      options.loss.class_weights = maker.weights({c.classes}, 0.25, 2);
    }
    if (c.teacher_share > 0) {
      InputMaker maker(context, dtype, 38);
      options.teacher = {maker.uniform({rows, 3}),
                         maker.uniform({c.classes, 3}),
                         maker.uniform({c.classes}),
                         c.teacher_share,
                         2,
                         c.soft_cap};
    }
    options.soft_cap = c.soft_cap;
    const Tensor labels = context.from_values<int32_t>(c.labels, {rows});
    const Tensor bias = c.bias ? inputs[2] : Tensor{};
    return std::vector<Tensor>{
        ops::linear_cross_entropy(context, inputs[0], inputs[1], bias, labels, options).loss};
  };
  return test;
}

}  // namespace

OpCases linear_cross_entropy_cases() {
  return {
      head_case("width 1", {1, 3, {2, 0}}),
      head_case("one class", {3, 1, {0, 0}}),
      head_case("one row", {5, 4, {3}, 1, true, 0.1}),
      head_case("chunks of one row", {5, 7, {0, 6, 3, 2, 5}, 1, true, 0.1, true}),
      head_case("ragged last chunk",
                {4, 6, {0, 5, 3, 2, 5, 1, 1}, 3, false, 0.1, false, Reduction::sum}),
      head_case("no vector divides", {13, 19, {18, 0, 7}, 2, true}),
      head_case("empty batch", {4, 5, {}, 8, true, 0.1}),
      head_case("weights of classes and rows",
                {4, 6, {0, 5, -100, 2, 5}, 2, true, 0, true, Reduction::mean, true}),
      head_case("every label ignored", {4, 5, {-100, -100, -100}, 2}),
      head_case("ignored labels and weights", {4, 9, {2, -100, 8, -100, 0}, 2, true, 0.2, true}),
      head_case("a teacher",
                {4, 9, {2, -100, 8, 1, 0}, 4, true, 0.2, true, Reduction::mean, false, 0.5}),
      head_case("the teacher alone",
                {4, 9, {2, -100, 8, 1, 0}, 4, false, 0, false, Reduction::sum, false, 1}),
      head_case("a soft cap",
                {4, 9, {2, -100, 8, 1, 0}, 4, true, 0.2, true, Reduction::mean, false, 0, 0.8}),
      head_case("a soft cap, chunks of one row",
                {5, 7, {0, 6, 3}, 2, false, 0, false, Reduction::sum, false, 0, 1.5}),
      head_case("a soft cap, weights of classes",
                {4, 6, {0, 5, -100, 2, 5}, 2, true, 0, true, Reduction::mean, true, 0, 1}),
      head_case("a soft cap, a teacher with one",
                {4, 9, {2, -100, 8, 1, 0}, 4, true, 0.2, true, Reduction::mean, false, 0.5, 0.8}),
      head_case("a soft cap, empty batch",
                {4, 5, {}, 8, true, 0.1, false, Reduction::mean, false, 0, 1}),
      head_case("a chunk without labels",
                {3, 4, {-100, -100, 1, 3}, 2, true, 0.1, true, Reduction::sum}),
  };
}

}  // namespace trafo::testing
