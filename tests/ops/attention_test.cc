#include "engine/ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/op_kernel.h"
#include "engine/ops/view/view.h"
#include "engine/runtime/trace_report.h"
#include "tests/ops/op_cases.h"
#include "tests/ops/row_test.h"

namespace trafo::testing {
namespace {

class AttentionTest : public ::testing::Test {
 protected:
  Tensor ints(std::vector<int32_t> values) {
    return context_->from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
  }
  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 2);
  InputMaker maker_{*context_, DType::f32, 3};
};

// One sentence of a single query beside a longer one: the CPU chooses for each.
TEST_F(AttentionTest, ProfilesNameTheKernels) {
  ops::AttentionOptions options;
  options.heads = 2;
  options.head_dim = 4;
  const auto run = [&](const std::vector<int32_t>& offsets, bool gradient) {
    Tensor x = maker_.uniform({offsets.back(), 8});
    if (gradient) set_requires_grad(x, true);
    context_->start_profile();
    const Tensor out =
        ops::attention(*context_, {x}, {x}, {x}, ints(offsets), ints(offsets), options);
    if (gradient) context_->backward(out, maker_.uniform({offsets.back(), 8}));
    return context_->finish_profile();
  };
  const auto kernels = [](const Trace& trace) {
    std::vector<std::string> names;
    for (const TraceRange& range : trace.ranges)
      if (std::string_view(range.name) == "attention")
        names.push_back(concat(trace_kind_name(range.kind), " ", range.kernel));
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(kernels(run({0, 5, 12}, false)), Names{"forward tiles"});
  EXPECT_EQ(kernels(run({0, 1, 2}, false)), Names{"forward one_query"});
  EXPECT_EQ(kernels(run({0, 1, 12}, false)), Names{"forward one_query, tiles"});
  const Trace trained = run({0, 1, 12}, true);
  EXPECT_EQ(kernels(trained), (Names{"forward tiles", "backward tiles"}));
  EXPECT_NE(trace_table(trained).find("attention (tiles)"), std::string::npos);
  MemorySink sink;
  write_chrome_trace(sink, trained);
  const std::string_view json(reinterpret_cast<const char*>(sink.bytes().data()),
                              sink.bytes().size());
  EXPECT_NE(json.find(R"("kernel":"tiles")"), std::string_view::npos);
}

// Equal scores make every probability 1 / keys; values that are unit vectors show which were
// dropped.
TEST_F(AttentionTest, DropsTheProbabilitiesThatPhiloxSays) {
  const std::vector<int32_t> queries{0, 3, 70, 74}, keys{0, 5, 75, 80};
  const int64_t heads = 2, head_dim = 75, rows = 74, max_keys = 70;
  const int64_t width = heads * head_dim;
  std::vector<float> values(static_cast<size_t>(80 * width), 0.0f);
  for (size_t b = 0; b + 1 < keys.size(); ++b)
    for (int32_t j = keys[b]; j < keys[b + 1]; ++j)
      for (int64_t h = 0; h < heads; ++h)
        values[static_cast<size_t>(j * width + h * head_dim + j - keys[b])] =
            static_cast<float>(keys[b + 1] - keys[b]);
  ops::AttentionOptions options;
  options.heads = heads;
  options.head_dim = head_dim;
  options.dropout = Dropout{0.4f, 8, 4, 2};
  const Tensor out = ops::attention(*context_, {context_->zeros({rows, width}, DType::f32)},
                                    {context_->zeros({80, width}, DType::f32)},
                                    {context_->from_values<float>(values, {80, width})},
                                    ints(queries), ints(keys), options);
  const auto y = context_->values<float>(out);
  for (size_t b = 0; b + 1 < queries.size(); ++b)
    for (int64_t i = queries[b]; i < queries[b + 1]; ++i)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t j = 0; j < keys[b + 1] - keys[b]; ++j) {
          const bool kept =
              dropout_keeps(options.dropout, (i * heads + h) * dropout_key_stride(max_keys) + j);
          ASSERT_NEAR(y[static_cast<size_t>(i * width + h * head_dim + j)],
                      kept ? options.dropout.scale() : 0, 1e-5)
              << b << ' ' << i << ' ' << h << ' ' << j;
        }
}

// Padding to a bucket adds rows and may add a longer sequence; the masks of the others stay.
TEST_F(AttentionTest, ABatchPaddedToABucketDropsTheSameElements) {
  const Tensor alone = maker_.uniform({7, 24});
  const Tensor both[] = {alone, maker_.uniform({9, 24})};
  const Tensor filled = ops::concat(*context_, both, 0);
  ops::AttentionOptions options;
  options.heads = 2;
  options.head_dim = 4;
  options.dropout = Dropout{0.4f, 8, 4, 2};
  for (const bool fused : {true, false}) {
    context_->set_fused_kernels(fused);
    const auto run = [&](const Tensor& qkv, const std::vector<int32_t>& bounds) {
      return context_->values<float>(ops::attention(*context_, {qkv, 0}, {qkv, 8}, {qkv, 16},
                                                    ints(bounds), ints(bounds), options));
    };
    const auto x = run(alone, {0, 3, 7}), y = run(filled, {0, 3, 7, 16});
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 1e-6) << fused << ' ' << i;
  }
}

TEST_F(AttentionTest, LongSequenceEqualsReferenceAndKeepsNoMatrixOfScores) {
  const int64_t length = 1000;
  Tensor qkv = maker_.uniform({length, 3 * 32}, -3, 3);
  set_requires_grad(qkv, true);
  const Tensor bounds = ints({0, 1000}), upstream = maker_.uniform({length, 32});
  ops::AttentionOptions options;
  options.heads = 2;
  options.head_dim = 16;
  options.causal = true;
  options.scale = 1;
  std::vector<std::vector<float>> outputs, grads;
  for (const bool fused : {true, false}) {
    context_->set_fused_kernels(fused);
    zero_grad(qkv);
    context_->backend().reset_peak_memory();
    const int64_t before = context_->backend().memory_stats().allocated_bytes;
    const Tensor y =
        ops::attention(*context_, {qkv, 0}, {qkv, 32}, {qkv, 64}, bounds, bounds, options);
    context_->backward(y, upstream);
    if (fused) {
      EXPECT_LT(context_->backend().memory_stats().peak_bytes - before, length * 32 * 4 * 6);
    }
    outputs.push_back(context_->values<float>(y));
    grads.push_back(context_->values<float>(grad_of(qkv)));
  }
  for (size_t i = 0; i < outputs[0].size(); ++i) ASSERT_NEAR(outputs[0][i], outputs[1][i], 1e-5);
  for (size_t i = 0; i < grads[0].size(); ++i) ASSERT_NEAR(grads[0][i], grads[1][i], 1e-4) << i;
}

// x [rows, kv_heads * head_dim] with every head `group` times in a row.
Tensor repeated(Context& context, const Tensor& x, int64_t kv_heads, int64_t group) {
  const int64_t rows = x.dim(0), dim = x.dim(1) / kv_heads;
  const std::vector<Tensor> copies(static_cast<size_t>(group),
                                   ops::reshape(context, x, {rows, kv_heads, 1, dim}));
  return ops::reshape(context, ops::concat(context, copies, 2), {rows, kv_heads * group * dim});
}

// Grouped queries give the bits that repeated keys and values give, and gradients of a shared head
// are the sums over its copies.
TEST_F(AttentionTest, GroupedQueriesEqualRepeatedKeysAndValues) {
  const int64_t heads = 6;
  const Tensor queries = ints({0, 3, 80, 80, 96}), keys = ints({0, 70, 75, 77, 90});
  for (const int64_t dim : {5, 16})
    for (const int64_t kv_heads : {1, 2, 3})
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(concat("head_dim ", dim, ", kv_heads ", kv_heads, causal ? ", causal" : ""));
        Tensor inputs[] = {maker_.uniform({96, heads * dim}), maker_.uniform({90, kv_heads * dim}),
                           maker_.uniform({90, kv_heads * dim})};
        const Tensor upstream = maker_.uniform({96, heads * dim});
        ops::AttentionOptions options;
        options.heads = heads;
        options.head_dim = dim;
        options.causal = causal;
        options.dropout = Dropout{0.2f, 8, 4, 2};
        for (Tensor& input : inputs) set_requires_grad(input, true);
        std::vector<std::vector<float>> outputs, grads[3];
        for (const bool grouped : {true, false}) {
          options.kv_heads = grouped ? kv_heads : 0;
          const auto spread = [&](const Tensor& x) {
            return grouped ? x : repeated(*context_, x, kv_heads, heads / kv_heads);
          };
          for (Tensor& input : inputs) zero_grad(input);
          const Tensor y = ops::attention(*context_, {inputs[0]}, {spread(inputs[1])},
                                          {spread(inputs[2])}, queries, keys, options);
          context_->backward(y, upstream);
          outputs.push_back(context_->values<float>(y));
          for (size_t i = 0; i < 3; ++i)
            grads[i].push_back(context_->values<float>(grad_of(inputs[i])));
        }
        EXPECT_EQ(outputs[0], outputs[1]);
        EXPECT_EQ(grads[0][0], grads[0][1]) << "dq";
        for (const size_t i : {1, 2})
          for (size_t e = 0; e < grads[i][0].size(); ++e)
            ASSERT_NEAR(grads[i][0][e], grads[i][1][e], 1e-5) << i << ' ' << e;
      }
}

// Heads of every width in vectors: several at once, single ones and a part of one.
TEST_F(AttentionTest, OneQueryEqualsTheReferenceForEveryWidth) {
  const Tensor queries = ints({0, 1, 2, 3, 4}), keys = ints({0, 1, 6, 83, 83});
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t dim : {4, 16, 32, 36, 64, 72, 100, 128}) {
      SCOPED_TRACE(concat(dtype_name(dtype), ", head_dim ", dim));
      InputMaker maker(*context_, dtype, static_cast<uint64_t>(dim));
      ops::AttentionOptions options;
      options.heads = 4;
      options.kv_heads = 2;
      options.head_dim = dim;
      const Tensor q = maker.uniform({4, 4 * dim}), k = maker.uniform({83, 2 * dim}),
                   v = maker.uniform({83, 2 * dim});
      const Tensor y = ops::attention(*context_, {q}, {k}, {v}, queries, keys, options);
      const Tensor expected =
          ops::attention_reference(*context_, {q}, {k}, {v}, queries, keys, options);
      EXPECT_LT(relative_error(doubles(y), doubles(expected)), dtype == DType::f32 ? 1e-5 : 1e-13);
    }
}

TEST_F(AttentionTest, DecodeWithGroupedQueriesEqualsRepeatedKeysAndValues) {
  const int64_t heads = 6;
  const Tensor begin = ints({3, 3, 20, 0}), end = ints({9, 9, 20, 150});
  for (const int64_t dim : {5, 16})
    for (const int64_t kv_heads : {1, 3})
      for (const bool fused : {true, false}) {
        context_->set_fused_kernels(fused);
        const Tensor q = maker_.uniform({4, heads * dim}),
                     k = maker_.uniform({150, kv_heads * dim}),
                     v = maker_.uniform({150, kv_heads * dim});
        ops::AttentionOptions options;
        options.heads = heads;
        options.head_dim = dim;
        const int64_t group = heads / kv_heads;
        const auto wide = context_->values<float>(
            ops::attention_decode(*context_, {q}, {repeated(*context_, k, kv_heads, group)},
                                  {repeated(*context_, v, kv_heads, group)}, begin, end, options));
        options.kv_heads = kv_heads;
        const auto narrow = context_->values<float>(
            ops::attention_decode(*context_, {q}, {k}, {v}, begin, end, options));
        for (size_t i = 0; i < wide.size(); ++i)
          ASSERT_NEAR(narrow[i], wide[i], fused ? 0 : 1e-6) << i;
      }
}

TEST_F(AttentionTest, DecodeReadsAnyRangeOfKeys) {
  const Tensor q = maker_.uniform({4, 8}), kv = maker_.uniform({150, 20});
  ops::AttentionOptions options;
  options.heads = 2;
  options.head_dim = 4;
  const std::vector<int32_t> begin{3, 3, 20, 0},
      end{9, 9, 20, 150};  // shared, empty, longer than a tile
  for (const bool fused : {true, false}) {
    context_->set_fused_kernels(fused);
    const auto y = context_->values<float>(
        ops::attention_decode(*context_, {q}, {kv, 2}, {kv, 12}, ints(begin), ints(end), options));
    EXPECT_EQ(context_->values<float>(ops::attention_decode(*context_, {q}, {kv, 2}, {kv, 12},
                                                            ints(begin), ints(end), options,
                                                            ints({0, 1, 2, 3, 4}))),
              y);
    EXPECT_THROW(ops::attention_decode(*context_, {q}, {kv, 2}, {kv, 12}, ints(begin), ints(end),
                                       options, ints({0, 1, 2, 3})),
                 Error);
    const float *qs = q.data<float>(), *rows = kv.data<float>();
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t h = 0; h < 2; ++h) {
        double sum = 0;
        std::vector<double> expected(4, 0.0);
        for (int64_t j = begin[static_cast<size_t>(i)]; j < end[static_cast<size_t>(i)]; ++j) {
          double score = 0;
          for (int64_t c = 0; c < 4; ++c)
            score += static_cast<double>(qs[i * 8 + h * 4 + c]) * rows[j * 20 + 2 + h * 4 + c] / 2;
          sum += std::exp(score);
          for (int64_t c = 0; c < 4; ++c)
            expected[static_cast<size_t>(c)] += std::exp(score) * rows[j * 20 + 12 + h * 4 + c];
        }
        for (int64_t c = 0; c < 4; ++c)
          EXPECT_NEAR(y[static_cast<size_t>(i * 8 + h * 4 + c)],
                      sum > 0 ? expected[static_cast<size_t>(c)] / sum : 0, 1e-5);
      }
  }
}

// A query alone, in training and in a decode step, sees the last keys of its window.
TEST_F(AttentionTest, AWindowOfOneQueryIsTheEndOfItsKeys) {
  const std::vector<int32_t> begin{3, 3, 20, 0, 60}, end{9, 9, 20, 150, 61};
  const Tensor q = maker_.uniform({5, 8}), kv = maker_.uniform({150, 20});
  ops::AttentionOptions options;
  options.heads = 2;
  options.head_dim = 4;
  for (const bool fused : {true, false})
    for (const int32_t window : {1, 4, 6, 100, 1000}) {
      context_->set_fused_kernels(fused);
      options.window = 0;
      std::vector<int32_t> late;
      for (size_t i = 0; i < begin.size(); ++i) late.push_back(std::max(begin[i], end[i] - window));
      const auto decode = [&](const std::vector<int32_t>& first) {
        return context_->values<float>(ops::attention_decode(*context_, {q}, {kv, 2}, {kv, 12},
                                                             ints(first), ints(end), options));
      };
      const auto expected = decode(late);
      options.window = window;
      const auto found = decode(begin);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], expected[i], 1e-6) << "window " << window << ", " << i;
    }
}

// Without a cap the scores, up to 12, would make other outputs. Keys before the window stay hidden.
TEST_F(AttentionTest, DecodeCapsScores) {
  const std::vector<int32_t> bounds{0, 5, 6, 80};
  ops::AttentionOptions options;
  options.heads = 2;
  options.head_dim = 4;
  options.causal = true;
  options.scale = 3;
  const Tensor q = maker_.uniform({80, 8}), kv = maker_.uniform({80, 20});
  const auto last_rows = [&](bool fused) {
    context_->set_fused_kernels(fused);
    const auto all = context_->values<float>(
        ops::attention(*context_, {q}, {kv, 2}, {kv, 12}, ints(bounds), ints(bounds), options));
    std::vector<float> last, decoded;
    for (size_t s = 0; s < 3; ++s) {
      const int32_t row = bounds[s + 1] - 1;
      last.insert(last.end(), all.begin() + row * 8, all.begin() + row * 8 + 8);
      for (const float value : context_->values<float>(ops::attention_decode(
               *context_, {ops::slice(*context_, q, 0, row, row + 1)}, {kv, 2}, {kv, 12},
               ints({bounds[s]}), ints({row + 1}), options)))
        decoded.push_back(value);
    }
    for (size_t i = 0; i < last.size(); ++i) EXPECT_NEAR(decoded[i], last[i], 1e-5) << i;
    return last;
  };
  for (const int64_t window : {0, 7}) {
    options.window = window;
    options.soft_cap = 0;
    const auto plain = last_rows(true);
    options.soft_cap = 1;
    const auto fused = last_rows(true), reference = last_rows(false);
    float change = 0;
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_NEAR(fused[i], reference[i], 1e-5) << i;
      change = std::max(change, std::abs(fused[i] - plain[i]));
    }
    EXPECT_GT(change, 0.05F);
  }
}

// A decode step adds the biases that the last query of a sequence has.
TEST_F(AttentionTest, DecodeAddsTheBiasesOfDistances) {
  const std::vector<int32_t> bounds{0, 5, 6, 80};
  ops::AttentionOptions options;
  options.heads = 2;
  options.head_dim = 4;
  options.causal = true;
  options.scale = 1;
  options.distance_bias = maker_.uniform({2, 2 * 90 - 1}, -3, 3);
  const Tensor q = maker_.uniform({80, 8}), kv = maker_.uniform({80, 20});
  for (const bool fused : {true, false}) {
    context_->set_fused_kernels(fused);
    const auto all = context_->values<float>(
        ops::attention(*context_, {q}, {kv, 2}, {kv, 12}, ints(bounds), ints(bounds), options));
    for (size_t s = 0; s < 3; ++s) {
      const int32_t last = bounds[s + 1] - 1;
      const auto one = context_->values<float>(
          ops::attention_decode(*context_, {ops::slice(*context_, q, 0, last, last + 1)}, {kv, 2},
                                {kv, 12}, ints({bounds[s]}), ints({last + 1}), options));
      for (size_t c = 0; c < 8; ++c)
        ASSERT_NEAR(one[c], all[static_cast<size_t>(last) * 8 + c], 1e-5) << "sequence " << s;
    }
    // The last three queries of a sequence at once.
    options.max_queries = 3;
    const auto three = context_->values<float>(
        ops::attention_decode(*context_, {ops::slice(*context_, q, 0, 77, 80)}, {kv, 2}, {kv, 12},
                              ints({6}), ints({80}), options, ints({0, 3})));
    options.max_queries = 0;
    for (size_t i = 0; i < 24; ++i) ASSERT_NEAR(three[i], all[77 * 8 + i], 1e-5) << i;
  }
}

// Keys outside of the window are not read: NaN there reaches no result.
TEST_F(AttentionTest, KernelsSkipWhatIsOutsideOfTheWindow) {
  constexpr int64_t kRows = 640, kWindow = 70;
  ops::AttentionOptions options;
  options.heads = 1;
  options.head_dim = 4;
  options.window = kWindow;
  const Tensor all = ints({0, kRows});
  for (const bool causal : {true, false}) {
    options.causal = causal;
    Tensor x = maker_.uniform({kRows, 12});
    const auto output = [&] {
      return context_->values<float>(
          ops::attention(*context_, {x, 0}, {x, 4}, {x, 8}, all, all, options));
    };
    const auto expected = output();
    const auto spoil = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t c = 4; c < 12; ++c) x.data<float>()[i * 12 + c] = NAN;
    };
    spoil(0, 64);
    spoil(kRows - 64, kRows);
    const auto found = output();
    // Tiles of 64: the windows of the fourth tile of queries begin after the first tile of keys,
    // and those of the fourth tile from the end end before the last one.
    for (size_t i = 192; i < kRows - 192; ++i)
      for (size_t c = 0; c < 4; ++c)
        ASSERT_EQ(found[i * 4 + c], expected[i * 4 + c]) << "query " << i << ", causal " << causal;
  }
}

TEST_F(AttentionTest, NamesWhatIsWrong) {
  Tensor x = context_->zeros({4, 12}, DType::f32);
  ops::AttentionOptions options;
  options.heads = 2;
  options.head_dim = 2;
  const auto expect_error = [&](ErrorCode code, const char* part, const std::vector<int32_t>& cu_q,
                                const std::vector<int32_t>& cu_k, int64_t column) {
    try {
      ops::attention(*context_, {x, 0}, {x, 4}, {x, column}, ints(cu_q), ints(cu_k), options);
      ADD_FAILURE() << "no error: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  using enum ErrorCode;
  expect_error(invalid_argument, "cu_seqlens_q must start with 0 and end with 4", {0, 3}, {0, 4},
               8);
  expect_error(invalid_argument, "cu_seqlens_k must not fall", {0, 2, 3, 4}, {0, 3, 2, 4}, 8);
  expect_error(shape_mismatch, "entries", {0, 2, 4}, {0, 4}, 8);
  expect_error(shape_mismatch, "4 columns from number 9 on", {0, 4}, {0, 4}, 9);
  options.max_keys = 3;
  expect_error(invalid_argument, "max_keys is 3, the longest sequence has 4", {0, 4}, {0, 4}, 8);
  options.max_keys = options.max_queries = 4;
  ops::attention(*context_, {x, 0}, {x, 4}, {x, 8}, ints({0, 4}), ints({0, 4}), options);
  options.max_keys = options.max_queries = 0;
  options.kv_heads = 3;
  expect_error(invalid_argument, "kv_heads must be 0 or a divisor of heads = 2, got 3", {0, 4},
               {0, 4}, 8);
  options.kv_heads = -1;
  expect_error(invalid_argument, "kv_heads must be", {0, 4}, {0, 4}, 8);
  options.kv_heads = 1;  // two columns of keys and of values
  ops::attention(*context_, {x, 0}, {x, 4}, {x, 10}, ints({0, 4}), ints({0, 4}), options);
  expect_error(shape_mismatch, "v needs 2 columns", {0, 4}, {0, 4}, 11);
  options.kv_heads = 0;
  options.dropout.p = 1;
  expect_error(invalid_argument, "attention", {0, 4}, {0, 4}, 8);
  options.dropout.p = 0;
  options.window = -1;
  expect_error(invalid_argument, "window must be 0, for none, or more, got -1", {0, 4}, {0, 4}, 8);
  options.window = 0;
  options.distance_bias = context_->zeros({2, 5}, DType::f32);
  expect_error(shape_mismatch, "distance_bias must be [2, 2 n - 1], n 4 or more, got [2, 5]",
               {0, 4}, {0, 4}, 8);
  options.distance_bias = context_->zeros({1, 7}, DType::f32);
  expect_error(shape_mismatch, "distance_bias must be", {0, 4}, {0, 4}, 8);
  options.distance_bias = context_->zeros({2, 8}, DType::f32);
  expect_error(shape_mismatch, "distance_bias must be", {0, 4}, {0, 4}, 8);
  options.distance_bias = context_->zeros({2, 7}, DType::f32);
  options.soft_cap = 1;
  expect_error(ErrorCode::unsupported, "a soft cap of scores does not go with biases", {0, 4},
               {0, 4}, 8);
  for (const double cap : {-1.0, HUGE_VAL}) {
    options.soft_cap = cap;
    expect_error(invalid_argument, "soft_cap must be 0, for none, or a finite number", {0, 4},
                 {0, 4}, 8);
  }
  options.soft_cap = 0;
  options.distance_bias = context_->zeros({2, 7}, DType::f64);
  expect_error(dtype_mismatch, "distance_bias must be float32 as q", {0, 4}, {0, 4}, 8);
  options.distance_bias = {};
  set_requires_grad(x, true);
  EXPECT_THROW(ops::attention_decode(*context_, {x}, {x}, {x}, ints({0, 0, 0, 0}),
                                     ints({4, 4, 4, 4}), options),
               Error);
}

}  // namespace
}  // namespace trafo::testing
