#include "engine/ops/dropout/dropout.h"

#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

using Tensors = std::vector<Tensor>;

OpCase dropped(const char* label, Shape shape, Dropout dropout) {
  return {label, [shape](InputMaker& maker) { return Tensors{maker.uniform(shape)}; },
          [dropout](Context& context, const Tensors& in) {
            return Tensors{ops::dropout(context, in[0], dropout)};
          }};
}

}  // namespace

OpCases dropout_cases() {
  return {
      dropped("width 1", {1}, {0.5f, 1, 2, 3}),
      dropped("rank 0", {}, {0.5f, 2, 2, 3}),
      dropped("odd", {3, 7}, {0.1f, 3, 0, 1}),
      dropped("whole blocks of eight", {4, 16}, {0.3f, 4, 7, 2}),
      dropped("no block divides it", {37}, {0.25f, 0xffffffffffffffffull, 0xffffffffu, 9}),
      dropped("batch of one", {1, 9}, {0.5f, 5, 1, 1}),
      dropped("empty batch", {0, 8}, {0.5f, 5, 1, 1}),
      dropped("off", {2, 5}, {0.0f, 5, 1, 1}),
      dropped("nearly everything", {33}, {0.999f, 6, 1, 1}),
  };
}

}  // namespace trafo::testing
