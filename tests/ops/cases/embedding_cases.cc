#include "engine/ops/embedding/embedding.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

struct EmbeddingCase {
  int64_t vocabulary, width;
  std::vector<int32_t> ids;
  double scale = 1;
  int64_t positions = 0;  // entries of a learned position table; 0: none
  bool fixed_positions = false;
  Dropout dropout = {};
  int64_t padding_id = -1;
};

OpCase embedding_case(const char* label, const EmbeddingCase& c) {
  OpCase test;
  test.label = label;
  test.inputs = [c](InputMaker& maker) {
    std::vector<Tensor> inputs{maker.uniform({c.vocabulary, c.width})};
    if (c.positions > 0 && !c.fixed_positions)
      inputs.push_back(maker.uniform({c.positions, c.width}));
    return inputs;
  };
  test.run = [c](Context& context, const std::vector<Tensor>& inputs) {
    ops::EmbeddingOptions options;
    options.scale = c.scale;
    options.dropout = c.dropout;
    options.padding_id = c.padding_id;
    const int64_t tokens = static_cast<int64_t>(c.ids.size());
    if (c.positions > 0) {
      std::vector<int32_t> positions;
      for (size_t t = 0; t < c.ids.size(); ++t)
        positions.push_back(static_cast<int32_t>(t % static_cast<size_t>(c.positions)));
      options.positions = context.from_values<int32_t>(positions, {tokens});
      options.position_table =
          c.fixed_positions ? sinusoidal_positions(context, c.positions, c.width, inputs[0].dtype())
                            : inputs[1];
    }
    const Tensor ids = context.from_values<int32_t>(c.ids, {tokens});
    return std::vector<Tensor>{ops::embedding(context, ids, inputs[0], options)};
  };
  return test;
}

}  // namespace

OpCases embedding_cases() {
  const Dropout dropout{0.3f, 7, 3, 5};
  std::vector<int32_t> many;
  for (int32_t t = 0; t < 300; ++t) many.push_back(t * t % 11);
  return {
      embedding_case("width 1", {3, 1, {2, 0, 2}}),
      embedding_case("one token", {4, 5, {3}, 2.5}),
      embedding_case("odd width", {5, 7, {1, 1, 4, 0, 1}, 1.5}),
      embedding_case("no vector divides the width", {3, 37, {2, 1, 2}, -1}),
      embedding_case("empty batch", {3, 4, {}}),
      embedding_case("empty batch with positions", {3, 4, {}, 1, 2}),
      embedding_case("learned positions", {4, 6, {0, 3, 3, 1, 2, 3}, 2, 4}),
      embedding_case("fixed positions, odd width", {4, 5, {0, 3, 3}, 2, 4, true}),
      embedding_case("dropout", {4, 9, {0, 3, 3, 1, 2, 3}, 3, 4, false, dropout}),
      embedding_case("many tokens on few rows", {11, 3, many, 1, 7, false, dropout}),
  };
}

}  // namespace trafo::testing
