#include "engine/ops/rotary/rotary.h"

#include "engine/ops/view/view.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

OpCase rotary_case(const char* label, int64_t rows, int64_t heads, int64_t kv_heads,
                   int64_t head_dim, double theta = 10000, int32_t last_position = 40) {
  OpCase test;
  test.label = label;
  ops::RotaryOptions options;
  options.heads = heads;
  options.kv_heads = kv_heads;
  options.head_dim = head_dim;
  options.angles.theta = theta;
  test.inputs = [=](InputMaker& make) {
    return std::vector<Tensor>{make.uniform({rows, (heads + 2 * kv_heads) * head_dim}),
                               make.integers({rows}, 0, last_position + 1)};
  };
  test.run = [options](Context& context, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{ops::rotary(context, in[0], in[1], options)};
  };
  return test;
}

}  // namespace

OpCases rotary_cases() {
  OpCases cases = {
      rotary_case("one pair", 5, 1, 0, 2),
      rotary_case("two heads", 3, 2, 0, 4),
      rotary_case("odd pairs", 4, 3, 0, 6),
      rotary_case("half that no vector divides", 3, 2, 0, 26),
      rotary_case("one row", 1, 2, 0, 16),
      rotary_case("empty batch", 0, 2, 0, 8),
      rotary_case("packed projection", 4, 2, 2, 8),
      rotary_case("packed projection, one head", 5, 1, 1, 16),
      rotary_case("packed projection, half that no vector divides", 3, 3, 3, 10),
      rotary_case("grouped queries", 4, 4, 2, 8),
      rotary_case("one head of keys", 3, 6, 1, 4),
      rotary_case("grouped queries, empty batch", 0, 4, 2, 8),
      rotary_case("large theta", 4, 2, 2, 8, 500000),
      rotary_case("far positions", 4, 2, 0, 8, 10000, 100000),
      rotary_case("positions beyond the table", 4, 2, 0, 4, 10000, 2000000),
      rotary_case("packed projection of vectors", 3, 2, 2, 32),
  };
  // Queries and keys of one packed projection, rotated apart.
  OpCase views = rotary_case("parts of a packed projection", 5, 6, 0, 8);
  views.run = [](Context& context, const std::vector<Tensor>& in) {
    ops::RotaryOptions options;
    options.heads = 2;
    options.head_dim = 8;
    const Tensor queries = ops::slice(context, in[0], 1, 0, 16),
                 keys = ops::slice(context, in[0], 1, 16, 32);
    return std::vector<Tensor>{ops::rotary(context, queries, in[1], options),
                               ops::rotary(context, keys, in[1], options)};
  };
  cases.push_back(views);
  // Stretched positions, all pairs or, of 32 pairs that turn between 0.05 and 64 times in 400
  // positions, the slow ones.
  for (const RotaryAngles& angles :
       {RotaryAngles{.theta = 10000, .factor = 4},
        RotaryAngles{.theta = 10000, .factor = 8, .original_positions = 400},
        RotaryAngles{.theta = 10000,
        .factor = 8,
        .original_positions = 400,
        .high_turns = 32,
        .scaling = RopeScaling::yarn,
        .magnitude = 1.2},
        RotaryAngles{.theta = 10000,
        .factor = 2,
        .original_positions = 7,
        .high_turns = 32,
        .scaling = RopeScaling::yarn,
        .query_growth = 0.4}}) {
    OpCase stretched = rotary_case(angles.query_growth > 0               ? "queries that grow"
                                   : angles.scaling == RopeScaling::yarn ? "stretched by YaRN"
                                   : angles.original_positions > 0       ? "slow pairs stretched"
                                                                         : "all pairs stretched",
                                   5, 2, 1, 64);
    stretched.run = [angles](Context& context, const std::vector<Tensor>& in) {
      ops::RotaryOptions options;
      options.heads = 2;
      options.kv_heads = 1;
      options.head_dim = 64;
      options.angles = angles;
      return std::vector<Tensor>{ops::rotary(context, in[0], in[1], options)};
    };
    cases.push_back(stretched);
  }
  // The gradients of two uses meet in one buffer.
  OpCase twice = rotary_case("used twice", 4, 2, 1, 6);
  twice.run = [](Context& context, const std::vector<Tensor>& in) {
    ops::RotaryOptions options;
    options.heads = 2;
    options.kv_heads = 1;
    options.head_dim = 6;
    const Tensor first = ops::rotary(context, in[0], in[1], options);
    options.angles.theta = 100;
    return std::vector<Tensor>{first, ops::rotary(context, in[0], in[1], options)};
  };
  cases.push_back(twice);
  return cases;
}

}  // namespace trafo::testing
