#include "engine/ops/attention/attention.h"

#include <limits>

#include "engine/ops/pointwise/pointwise.h"
#include "tests/ops/op_cases.h"

namespace trafo::testing {
namespace {

using Lengths = std::vector<int32_t>;

Tensor cumulative(Context& context, const Lengths& lengths) {
  std::vector<int32_t> bounds{0};
  for (const int32_t length : lengths) bounds.push_back(bounds.back() + length);
  return context.from_values<int32_t>(bounds, {static_cast<int64_t>(bounds.size())});
}

int64_t total(const Lengths& lengths) {
  int64_t sum = 0;
  for (const int32_t length : lengths) sum += length;
  return sum;
}

// Where q, k and v live.
enum class Layout { separate, packed, packed_keys_values, one, wide_keys_values };

struct AttentionCase {
  int64_t heads, head_dim;
  Lengths queries, keys;
  Layout layout = Layout::separate;
  bool causal = false;
  double scale = 0;
  Dropout dropout = {};
  int64_t kv_heads = 0;
  Shape mask = {};     // its rank 0: no mask
  bool added = false;  // the mask is an input, and some of it -infinity; else int32
  int64_t window = 0;
  int64_t distances = 0;  // n of distance_bias [heads, 2 n - 1], the last input; 0: none
  double soft_cap = 0;

  int64_t width() const { return heads * head_dim; }
  int64_t kv_width() const { return (kv_heads > 0 ? kv_heads : heads) * head_dim; }
};

OpCase attention_case(const char* label, const AttentionCase& c) {
  OpCase test;
  test.label = label;
  // A score of 60 in float32 is rounded by up to 4e-6, and its exponential by as much, relative.
  if (c.scale > 10) test.tolerance = 1e-5;
  // In bfloat16 that score is off by 0.12.
  if (c.scale > 10) test.reference_bfloat16_tolerance = 0.25;
  test.inputs = [c](InputMaker& maker) {
    const int64_t width = c.width(), kv_width = c.kv_width();
    const int64_t tq = total(c.queries), tk = total(c.keys);
    switch (c.layout) {
      case Layout::packed: {
        std::vector<Tensor> inputs{maker.uniform({tq, width + 2 * kv_width})};
        if (c.distances > 0) inputs.push_back(maker.uniform({c.heads, 2 * c.distances - 1}, -2, 2));
        return inputs;
      }
      case Layout::one:
        return std::vector<Tensor>{maker.uniform({tq, width + 1})};
      case Layout::packed_keys_values:
        return std::vector<Tensor>{maker.uniform({tq, width}), maker.uniform({tk, 2 * kv_width})};
      case Layout::wide_keys_values:
        return std::vector<Tensor>{maker.uniform({tq, width}), maker.uniform({tk, 5 * kv_width})};
      default: {
        std::vector<Tensor> inputs{maker.uniform({tq, width}), maker.uniform({tk, kv_width}),
                                   maker.uniform({tk, kv_width})};
        if (c.added) inputs.push_back(maker.uniform(c.mask, -2, 2));
        if (c.distances > 0) inputs.push_back(maker.uniform({c.heads, 2 * c.distances - 1}, -2, 2));
        return inputs;
      }
    }
  };
  test.run = [c](Context& context, const std::vector<Tensor>& x) {
    const int64_t width = c.width(), kv_width = c.kv_width();
    ops::AttentionOptions options;
    options.heads = c.heads;
    options.kv_heads = c.kv_heads;
    options.head_dim = c.head_dim;
    options.causal = c.causal;
    options.scale = c.scale;
    options.window = c.window;
    options.dropout = c.dropout;
    options.soft_cap = c.soft_cap;
    if (c.distances > 0) options.distance_bias = x.back();
    if (c.mask.rank() > 0) {
      InputMaker maker(context, x[0].dtype(), 33);
      const Tensor hidden =
          ops::compare(context, maker.integers(c.mask, 0, 3), 0, Comparison::equal);
      options.mask = c.added ? ops::masked_fill(context, x[3], hidden,
                                                -std::numeric_limits<double>::infinity())
                             : hidden;
    }
    const Tensor cu_q = cumulative(context, c.queries), cu_k = cumulative(context, c.keys);
    const auto run = [&](const ops::AttentionInput& q, const ops::AttentionInput& k,
                         const ops::AttentionInput& v) {
      return ops::attention(context, q, k, v, cu_q, cu_k, options);
    };
    switch (c.layout) {
      case Layout::packed:
        return std::vector<Tensor>{run({x[0], 0}, {x[0], width}, {x[0], width + kv_width})};
      case Layout::one:  // k shares all columns with q, v all but one
        return std::vector<Tensor>{run({x[0], 0}, {x[0], 0}, {x[0], 1})};
      case Layout::packed_keys_values:
        return std::vector<Tensor>{run({x[0], 0}, {x[1], 0}, {x[1], kv_width})};
      case Layout::wide_keys_values:  // two layers on the columns of one tensor, one column range
                                      // idle
        return std::vector<Tensor>{run({x[0], 0}, {x[1], 0}, {x[1], kv_width}),
                                   run({x[0], 0}, {x[1], 3 * kv_width}, {x[1], 2 * kv_width})};
      default:
        return std::vector<Tensor>{run({x[0], 0}, {x[1], 0}, {x[2], 0})};
    }
  };
  return test;
}

AttentionCase with_mask(AttentionCase c, const Shape& mask, bool added) {
  c.mask = mask;
  c.added = added;
  return c;
}

AttentionCase with_distances(AttentionCase c, int64_t distances) {
  c.distances = distances;
  return c;
}

AttentionCase with_cap(AttentionCase c, double cap) {
  c.soft_cap = cap;
  return c;
}

AttentionCase with_window(AttentionCase c, int64_t window) {
  c.causal = true;
  c.window = window;
  return c;
}

AttentionCase with_sides(AttentionCase c, int64_t window) {
  c.window = window;
  return c;
}

// Windows to both sides.
OpCases attention_side_cases(const Dropout& dropout) {
  return {
      attention_case("sides, packed", with_sides({2, 3, {4, 7, 1}, {4, 7, 1}, Layout::packed}, 3)),
      attention_case("sides of one key", with_sides({2, 2, {5, 2}, {5, 2}, Layout::packed}, 1)),
      attention_case("sides, other numbers of keys than of queries",
                     with_sides({2, 2, {3, 6, 2, 0}, {9, 4, 0, 3}}, 2)),
      attention_case("sides longer than the keys, not the queries",
                     with_sides({1, 4, {9, 5}, {3, 5}}, 5)),
      attention_case("sides inside of a tile", with_sides({1, 1, {131}, {131}, Layout::packed}, 9)),
      attention_case("sides over tiles, dropout",
                     with_sides({1, 1, {200}, {200}, Layout::packed, false, 2, dropout}, 75)),
      attention_case("sides over tiles, more keys",
                     with_sides({1, 2, {70}, {201}, Layout::separate, false, 2}, 66)),
      attention_case("sides, whole vectors", with_sides({2, 8, {9, 4}, {9, 4}, Layout::packed}, 3)),
      attention_case("sides, grouped",
                     with_sides({4, 2, {6, 3}, {6, 3}, Layout::packed, false, 0, {}, 2}, 2)),
      attention_case(
          "sides, masked pairs",
          with_mask(with_sides({2, 2, {4, 3}, {4, 3}, Layout::packed}, 2), {2, 2, 4, 4}, false)),
      attention_case("soft cap, sides over tiles, scores of the other sign",
                     with_cap(with_sides({1, 2, {131}, {131}, Layout::packed, false, -2}, 75), 1)),
  };
}

}  // namespace

OpCases attention_cases() {
  const Dropout dropout{0.3f, 11, 2, 9};
  OpCases cases = {
      attention_case("width 1", {1, 1, {3, 1}, {2, 4}}),
      attention_case("one token", {2, 3, {1}, {1}, Layout::packed}),
      attention_case("odd head, packed, causal", {2, 3, {4, 5}, {4, 5}, Layout::packed, true}),
      attention_case("cross", {2, 4, {2, 3}, {4, 3}, Layout::packed_keys_values}),
      attention_case("no vector divides the head", {1, 19, {3}, {5}, Layout::separate}),
      attention_case("empty sequences and queries without keys",
                     {2, 2, {0, 3, 0, 1}, {2, 0, 1, 2}}),
      attention_case("empty batch", {2, 2, {}, {}}),
      attention_case("empty sequences only", {2, 2, {0, 0}, {0, 3}, Layout::packed_keys_values}),
      attention_case("causal with masked rows", {1, 2, {5, 2}, {2, 4}, Layout::separate, true}),
      attention_case("dropout", {2, 2, {3, 6}, {5, 4}, Layout::separate, false, 0, dropout}),
      attention_case("dropout, causal, packed",
                     {2, 2, {3, 6}, {3, 6}, Layout::packed, true, 0.8, dropout}),
      attention_case("more than a tile", {1, 1, {70}, {131}, Layout::separate, false, 2, dropout}),
      attention_case("more than a tile, causal", {1, 2, {67}, {67}, Layout::packed, true, 2}),
      attention_case("shared columns", {2, 2, {3, 2}, {3, 2}, Layout::one, true}),
      attention_case("columns of several layers", {2, 2, {2, 3}, {3, 1}, Layout::wide_keys_values}),
      attention_case("peaked", {1, 4, {4}, {6}, Layout::separate, false, 30}),
      attention_case("one head of keys", {4, 2, {3, 2}, {3, 2}, Layout::packed, true, 0, {}, 1}),
      attention_case("two query heads a head of keys, odd head",
                     {4, 3, {2, 5}, {4, 1}, Layout::packed_keys_values, false, 0, {}, 2}),
      attention_case("three query heads a head of keys, no vector divides the head",
                     {6, 5, {4}, {4}, Layout::packed, false, 0, {}, 2}),
      attention_case("grouped, dropout",
                     {4, 2, {3, 6}, {5, 4}, Layout::separate, false, 0, dropout, 2}),
      attention_case("grouped, more than a tile",
                     {2, 1, {70}, {67}, Layout::separate, true, 2, {}, 1}),
      attention_case("grouped, whole vectors",
                     {4, 16, {3, 2}, {3, 2}, Layout::packed, true, 0, {}, 2}),
      attention_case("grouped, shared columns",
                     {4, 2, {3, 2}, {3, 2}, Layout::one, true, 0, {}, 2}),
      attention_case("grouped, columns of several layers",
                     {4, 2, {2, 3}, {3, 1}, Layout::wide_keys_values, false, 0, {}, 2}),
      attention_case("grouped, empty sequences",
                     {2, 2, {0, 3, 0}, {2, 0, 1}, Layout::separate, false, 0, {}, 1}),
      attention_case("grouped, empty batch", {2, 2, {}, {}, Layout::separate, false, 0, {}, 1}),
      attention_case("masked keys", with_mask({2, 3, {4, 2}, {3, 5}}, {2, 1, 1, 5}, false)),
      attention_case("masked pairs of every head, packed, causal",
                     with_mask({2, 2, {4, 3}, {4, 3}, Layout::packed, true}, {2, 2, 4, 4}, false)),
      attention_case("added to the scores of all sequences",
                     with_mask({2, 2, {3, 4}, {5, 2}}, {1, 2, 4, 5}, true)),
      attention_case("added to every score, causal, dropout",
                     with_mask({2, 2, {3, 4}, {3, 4}, Layout::separate, true, 0.7, dropout},
                               {2, 2, 4, 4}, true)),
      attention_case(
          "added to grouped heads",
          with_mask({4, 3, {3, 1}, {2, 4}, Layout::separate, false, 0, {}, 2}, {2, 4, 1, 4}, true)),
      attention_case("masked, empty batch", with_mask({2, 2, {}, {}}, {1, 1, 1, 1}, false)),
      attention_case("masked, queries without keys",
                     with_mask({2, 2, {2, 3}, {0, 3}}, {2, 1, 3, 3}, true)),
      attention_case("window, packed",
                     with_window({2, 3, {4, 7, 1}, {4, 7, 1}, Layout::packed}, 3)),
      attention_case("window of one key", with_window({2, 2, {5, 2}, {5, 2}, Layout::packed}, 1)),
      attention_case("window, other numbers of keys than of queries",
                     with_window({2, 2, {3, 6, 2, 0}, {9, 4, 0, 3}}, 2)),
      attention_case("window longer than the sequences",
                     with_window({1, 4, {3, 5}, {3, 5}, Layout::packed}, 6)),
      attention_case("window inside of a tile",
                     with_window({1, 1, {131}, {131}, Layout::packed}, 9)),
      attention_case("window over tiles, dropout",
                     with_window({1, 1, {200}, {200}, Layout::packed, true, 2, dropout}, 75)),
      attention_case("window over tiles, more keys",
                     with_window({1, 2, {70}, {201}, Layout::separate, true, 2}, 66)),
      attention_case("window, grouped",
                     with_window({4, 2, {6, 3}, {6, 3}, Layout::packed, true, 0, {}, 2}, 2)),
      attention_case("window, scores of the other sign",
                     with_window({2, 2, {7}, {7}, Layout::packed, true, -0.6}, 3)),
      attention_case(
          "window, masked pairs",
          with_mask(with_window({2, 2, {4, 3}, {4, 3}, Layout::packed}, 2), {2, 2, 4, 4}, false)),
      attention_case("distances, packed",
                     with_distances({2, 3, {4, 6}, {4, 6}, Layout::packed}, 6)),
      attention_case("distances, packed, causal, more of them than keys",
                     with_distances({2, 4, {5, 3, 1}, {5, 3, 1}, Layout::packed, true, 1}, 9)),
      attention_case(
          "distances, other numbers of keys than of queries, dropout",
          with_distances({2, 2, {3, 6, 2, 0}, {9, 4, 0, 3}, Layout::separate, false, 0.7, dropout},
                         9)),
      attention_case("distances over tiles",
                     with_distances({1, 2, {70}, {131}, Layout::separate, false, 1}, 131)),
      attention_case("distances over tiles, causal",
                     with_distances({2, 1, {131, 67}, {131, 67}, Layout::packed, true, 1}, 140)),
      attention_case(
          "distances, grouped, window",
          with_distances(with_window({4, 2, {6, 3}, {6, 3}, Layout::packed, true, 0, {}, 2}, 2),
                         6)),
      attention_case(
          "distances, masked pairs",
          with_distances(
              with_mask({2, 2, {4, 3}, {4, 3}, Layout::packed, true}, {2, 2, 4, 4}, false), 4)),
      attention_case("distances, empty batch", with_distances({2, 2, {}, {}}, 1)),
      attention_case("soft cap", with_cap({2, 3, {4, 1}, {5, 2}}, 1)),
      attention_case("soft cap, packed, causal",
                     with_cap({2, 4, {4, 6}, {4, 6}, Layout::packed, true, 2}, 1.5)),
      attention_case("soft cap far above the scores",
                     with_cap({2, 2, {3, 6}, {3, 6}, Layout::packed, true}, 50)),
      attention_case("soft cap over tiles, dropout",
                     with_cap({1, 2, {70}, {131}, Layout::separate, false, 2, dropout}, 0.75)),
      attention_case("soft cap, no vector divides the head",
                     with_cap({1, 19, {3}, {5}, Layout::separate}, 2)),
      attention_case("soft cap, grouped, queries without keys",
                     with_cap({4, 2, {0, 3, 2}, {2, 0, 4}, Layout::separate, false, 0, {}, 2}, 1)),
      attention_case(
          "soft cap, grouped, window",
          with_cap(with_window({4, 2, {6, 3}, {6, 3}, Layout::packed, true, 3, {}, 2}, 2), 1)),
      attention_case("soft cap, window over tiles, scores of the other sign",
                     with_cap(with_window({1, 2, {131}, {131}, Layout::packed, true, -2}, 75), 1)),
      attention_case(
          "soft cap, masked pairs",
          with_cap(with_mask({2, 2, {4, 3}, {4, 3}, Layout::packed, true}, {2, 2, 4, 4}, false),
                   1)),
  };
  const OpCases sides = attention_side_cases(dropout);
  cases.insert(cases.end(), sides.begin(), sides.end());
  return cases;
}

}  // namespace trafo::testing
