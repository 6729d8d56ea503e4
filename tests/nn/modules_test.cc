// Modules against their definitions, written out with ops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/autograd/gradcheck.h"
#include "engine/decode/packing.h"
#include "engine/nn/embedding.h"
#include "engine/nn/linear.h"
#include "engine/nn/transformer_stack.h"
#include "engine/ops/activation/activation.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/matmul/matmul.h"
#include "tests/decode/decode_models.h"

namespace trafo::testing {
namespace {

constexpr int64_t kWidth = 8, kFfnWidth = 12, kTokens = 7, kSourceTokens = 5;
constexpr double kEpsilon = 1e-5;

std::vector<std::string> names_of(const ParameterStore& store) {
  std::vector<std::string> names;
  for (size_t i = 0; i < store.count(); ++i) names.push_back(store.name(static_cast<ParamId>(i)));
  return names;
}

StackSpec stack_spec(bool pre_norm, bool causal, int64_t layers = 1) {
  StackSpec spec;
  spec.width = kWidth;
  spec.sharing = layer_sharing(layers);
  spec.norm = {.kind = Norm::layer,
               .placement = pre_norm ? NormPlacement::before : NormPlacement::after,
               .epsilon = kEpsilon};
  spec.attention = {.heads = 2, .key_heads = 2, .head_dim = kWidth / 2, .dropout = 0.2};
  spec.feed_forward = {.width = kFfnWidth, .dropout = 0.1};
  spec.causal = causal;
  spec.dropout = 0.3;
  return spec;
}

class Modules : public ::testing::Test {
 protected:
  Tensor random(const Shape& shape, uint64_t stream) {
    PhiloxStream random(11, stream);
    std::vector<double> values(static_cast<size_t>(element_count(shape)));
    for (double& v : values) v = random.normal();
    return context_->from_values<double>(values, shape);
  }
  Tensor ints(const std::vector<int32_t>& values) {
    return context_->from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
  }
  // Allocates with values that hide nothing: biases and norms differ from 0 and 1.
  void allocate(ParameterStore& store) {
    store.allocate(*context_, DType::f64, 5);
    for (ParamId id = 0; id < static_cast<ParamId>(store.count()); ++id) {
      const auto values =
          context_->values<double>(random(store.shape(id), 100 + static_cast<uint64_t>(id)));
      store.set_value(*context_, id, values.data(), values.size() * sizeof(double));
    }
  }
  void expect_equal(const Tensor& a, const Tensor& b, double tolerance = 1e-12) {
    const auto x = context_->values<double>(a), y = context_->values<double>(b);
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], tolerance) << "element " << i;
  }

  std::unique_ptr<Context> context_ = cpu_context();
};

TEST_F(Modules, LinearAddsItsBiasNowOrLater) {
  ParameterStore store;
  const nn::Linear linear(store, "layer", {.in = 4, .out = 3});
  const nn::Linear bare(store, "bare", {.in = 4, .out = 3, .bias = false});
  EXPECT_EQ(names_of(store),
            (std::vector<std::string>{"layer.weight", "layer.bias", "bare.weight"}));
  allocate(store);
  const NoGrad no_grad(*context_);
  const Tensor x = random({5, 4}, 1);
  const nn::PendingBias pending = linear.forward_pending_bias(*context_, x);
  expect_equal(linear.forward(*context_, x), ops::add(*context_, pending.matmul, pending.bias));
  EXPECT_FALSE(bare.bias().defined());
  EXPECT_FALSE(bare.forward_pending_bias(*context_, x).bias.defined());
}

TEST_F(Modules, InitialWeightsScaleWithFanOutAndDepth) {
  const auto largest = [&](const nn::LinearOptions& options, int64_t begin, int64_t end) {
    ParameterStore store;
    const nn::Linear linear(store, "layer", options);
    store.allocate(*context_, DType::f64, 1);
    const auto values = context_->values<double>(linear.weight().values);
    double most = 0;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      most = std::max(most, std::abs(values[i]));
    return most;
  };
  // Uniform values reach close to their bound and never exceed it.
  const auto expect_bound = [](double found, double bound) {
    EXPECT_LE(found, bound);
    EXPECT_GE(found, 0.98 * bound);
  };
  const int64_t in = 40, out = 120, all = in * out;
  expect_bound(largest({.in = in, .out = out}, 0, all), std::sqrt(6.0 / 160));
  expect_bound(largest({.in = in, .out = out, .fan_out = 40}, 0, all), std::sqrt(6.0 / 80));
  expect_bound(largest({.in = in, .out = out, .depth = 4}, 0, all), std::sqrt(6.0 / 160) / 2);
  const nn::LinearOptions stacked{.in = in, .out = out, .fan_out = 40, .stacked_layers = 3};
  for (int64_t layer = 0; layer < 3; ++layer)
    expect_bound(largest(stacked, layer * all / 3, (layer + 1) * all / 3),
                 std::sqrt(6.0 / 80) / std::sqrt(static_cast<double>(layer + 1)));
}

TEST_F(Modules, WithoutASeedNoInitialValueIsRandom) {
  const auto values_of = [&](DType dtype, std::optional<uint64_t> seed) {
    ParameterStore store;
    store.declare("uniform", {3, 5}, Init::xavier_uniform(5, 3));
    store.declare("normal", {4, 2}, Init::normal(0.1));
    store.declare("ones", {6}, Init::ones());
    store.declare("zeros", {2}, Init::zeros());
    store.allocate(*context_, dtype, seed);
    std::vector<double> values;
    for (ParamId id = 0; id < static_cast<ParamId>(store.count()); ++id) {
      const std::vector<double> part = to_doubles(*context_, store.value(id));
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  };
  std::vector<double> constants(15 + 8, 0);
  constants.insert(constants.end(), 6, 1);
  constants.insert(constants.end(), 2, 0);
  for (const DType dtype : {DType::f32, DType::f64}) {
    EXPECT_EQ(values_of(dtype, std::nullopt), constants);
    const std::vector<double> drawn = values_of(dtype, 0);
    EXPECT_EQ(std::count(drawn.begin(), drawn.begin() + 15 + 8, 0.0), 0);
    EXPECT_TRUE(std::equal(drawn.begin() + 15 + 8, drawn.end(), constants.begin() + 15 + 8));
  }
}

TEST_F(Modules, BlockDeclaresItsParametersInTheOrderOfModelFiles) {
  ParameterStore store;
  StackSpec spec = stack_spec(true, true);
  spec.cross_attention = true;
  const nn::TransformerBlock block(store, "decoder.0", spec, 0, 1);
  std::vector<std::string> expected;
  for (const char* part : {"attention_norm", "cross_norm", "ffn_norm", "attention.qkv",
                           "attention.output", "cross.query", "cross.output", "ffn.up", "ffn.down"})
    for (const char* kind : {".weight", ".bias"})
      expected.push_back(std::string("decoder.0.") + part + kind);
  EXPECT_EQ(names_of(store), expected);
}

// The computation of one block, written out: each sublayer on its own, with the dropout ids of
// DropoutPass.
struct Definition {
  Context& context;
  const ParameterStore& store;
  bool pre_norm;
  DropoutPass pass;
  nn::BlockInputs inputs;

  Tensor at(const std::string& name) const { return store.value(store.find("block." + name)); }
  Tensor linear(const Tensor& x, const std::string& name) const {
    return ops::linear(context, x, at(name + ".weight"), at(name + ".bias"));
  }
  // Nothing, where the block has no such norm; it may have no bias.
  Tensor norm(const Tensor& x, const std::string& name) const {
    if (store.find("block." + name + ".weight") == kNoParam) return x;
    const bool bare = store.find("block." + name + ".bias") == kNoParam;
    const Tensor bias = bare ? context.zeros({kWidth}, DType::f64) : at(name + ".bias");
    return ops::layer_norm(context, x, at(name + ".weight"), bias, kEpsilon);
  }
  Dropout dropout(uint32_t number, double p) const {
    return {static_cast<float>(p), pass.seed, pass.step, 3 * DropoutPass::kPerLayer + number};
  }
  ops::AttentionOptions attention(bool causal, uint32_t number) const {
    ops::AttentionOptions options;
    options.heads = 2;
    options.head_dim = kWidth / 2;
    options.causal = causal;
    options.dropout = dropout(number, 0.2);
    return options;
  }
  // x + dropout(sublayer(norm(x))), or norm(x + dropout(sublayer(x))).
  template <class Sublayer>
  Tensor residual(const Tensor& x, const std::string& norm_name, uint32_t number,
                  Sublayer&& sublayer) const {
    const Tensor y = sublayer(pre_norm ? norm(x, norm_name) : x);
    const Tensor sum = ops::add(context, x, ops::dropout(context, y, dropout(number, 0.3)));
    return pre_norm ? sum : norm(sum, norm_name);
  }
  Tensor forward(const Tensor& x, bool causal, bool cross) const {
    uint32_t id = 0;
    const Tensor& cu = inputs.sequences.cu_seqlens;
    Tensor y = residual(x, "attention_norm", id + 1, [&](const Tensor& in) {
      const Tensor qkv = linear(in, "attention.qkv");
      return linear(ops::attention(context, {qkv, 0}, {qkv, kWidth}, {qkv, 2 * kWidth}, cu, cu,
                                   attention(causal, id)),
                    "attention.output");
    });
    id += 2;
    if (cross) {
      y = residual(y, "cross_norm", id + 1, [&](const Tensor& in) {
        const Tensor query = linear(in, "cross.query");
        const Tensor& kv = inputs.encoder.values;
        return linear(ops::attention(context, {query, 0}, {kv, 0}, {kv, kWidth}, cu,
                                     inputs.encoder.sequences.cu_seqlens, attention(false, id)),
                      "cross.output");
      });
      id += 2;
    }
    return residual(y, "ffn_norm", id + 1, [&](const Tensor& in) {
      const Tensor up = ops::activation(context, linear(in, "ffn.up"), Activation::relu);
      return linear(ops::dropout(context, up, dropout(id, 0.1)), "ffn.down");
    });
  }
};

TEST_F(Modules, BlockComputesItsDefinition) {
  const NoGrad no_grad(*context_);
  for (const auto& [pre_norm, bare] : {std::pair{true, false}, {false, false}, {true, true}})
    for (const bool cross : {true, false}) {
      ParameterStore store;
      StackSpec spec = stack_spec(pre_norm, cross);
      spec.cross_attention = cross;
      spec.norm.bias = spec.norm.first = !bare;
      const nn::TransformerBlock block(store, "block", spec, 0, 3);
      const nn::Norm next(store, "next", spec.norm, kWidth);
      allocate(store);
      EXPECT_EQ(store.find("block.attention_norm.weight") == kNoParam, bare);
      EXPECT_EQ(store.find("block.ffn_norm.bias") == kNoParam, bare);
      nn::BlockInputs inputs;
      inputs.sequences.cu_seqlens = ints({0, 3, 3, kTokens});
      inputs.dropout = {9, 4, true};
      inputs.encoder.sequences.cu_seqlens = ints({0, 2, 3, kSourceTokens});
      inputs.encoder.values = random({kSourceTokens, 2 * kWidth}, 2);
      const Tensor x = random({kTokens, kWidth}, 1);
      const Tensor expected =
          Definition{*context_, store, pre_norm, inputs.dropout, inputs}.forward(x, cross, cross);
      const nn::ResidualStream result =
          block.forward(*context_, block.begin(*context_, x), inputs, next);
      expect_equal(result.residual, expected, 1e-10);
      expect_equal(result.input, pre_norm ? next.forward(*context_, expected) : expected, 1e-10);
    }
}

TEST_F(Modules, AnEmbeddingHasItsNormBeforeDropout) {
  ParameterStore store;
  const Place place{Stack::encoder};
  nn::Embedding embedding(store, "e", 6, kWidth, Init::zeros(), 3, place);
  embedding.add_positions(store, "p", 4, kWidth, Init::zeros(), place);
  embedding.add_norm(store, "n", {.epsilon = kEpsilon}, kWidth, place);
  EXPECT_EQ(names_of(store),
            (std::vector<std::string>{"e.weight", "p.weight", "n.weight", "n.bias"}));
  allocate(store);
  const Tensor ids = ints({5, 0, 5}), positions = ints({0, 1, 3});
  ops::EmbeddingOptions sum;
  sum.scale = 3;
  sum.positions = positions;
  sum.position_table = store.value(1);
  const Dropout dropout = DropoutPass{9, 4, true}.at(nn::kEmbeddingDropout, 0, 0.5);
  const Tensor normed =
      ops::layer_norm(*context_, ops::embedding(*context_, ids, store.value(0), sum),
                      store.value(2), store.value(3), kEpsilon);
  expect_equal(embedding.forward(*context_, ids, positions, dropout, false),
               ops::dropout(*context_, normed, dropout));
  expect_equal(embedding.forward(*context_, ids, positions, {}, false), normed);
}

TEST_F(Modules, StackRunsItsBlocksUnderEveryRecomputePolicyWithTheSameBits) {
  for (const auto& [pre_norm, bare] : {std::pair{true, false}, {false, false}, {true, true}}) {
    ParameterStore store;
    StackSpec spec = stack_spec(pre_norm, true, 3);
    spec.norm.bias = spec.norm.first = !bare;
    nn::TransformerStack stack(store, "stack", spec, 1);
    const size_t blocks = store.count();
    stack.add_final_norm(store);
    EXPECT_EQ(store.count(), blocks + (bare ? 1 : pre_norm ? 2 : 0));
    allocate(store);
    nn::BlockInputs inputs;
    inputs.sequences.cu_seqlens = ints({0, 3, kTokens});
    inputs.dropout = {9, 4, true};
    std::vector<std::vector<double>> results;
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      const StepScope scope(*context_, &StepContext::recompute, recompute);
      store.zero_grad();
      const Tensor y = stack.forward(*context_, random({kTokens, kWidth}, 1), inputs);
      results.push_back(context_->values<double>(y));
      context_->backward(y, random({kTokens, kWidth}, 2));
      store.complete_grads(*context_);
      results.push_back(context_->values<double>(store.flat_grad()));
    }
    for (size_t i = 2; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 2]);
  }
}

// The parameters of a skipped block have a zero gradient, and the others the
// bits of a stack that has never had it.
TEST_F(Modules, AStackWithSkippedBlocksIsTheStackOfTheOthers) {
  constexpr uint32_t kBlocks = 3, kFirst = 1;
  for (const bool pre_norm : {true, false})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
      for (uint32_t mask = 0; mask < 1u << kBlocks; ++mask) {
        StackSpec spec = stack_spec(pre_norm, true, kBlocks);
        spec.dropout = spec.attention.dropout = spec.feed_forward.dropout = 0;  // they have ids
        std::vector<bool> skipped(kFirst + kBlocks);
        std::vector<uint32_t> kept;
        for (uint32_t i = 0; i < kBlocks; ++i)
          if (mask >> i & 1)
            skipped[kFirst + i] = true;
          else
            kept.push_back(i);
        ParameterStore store, short_store;
        nn::TransformerStack stack(store, "stack", spec, kFirst);
        spec.sharing = layer_sharing(std::ssize(kept));
        nn::TransformerStack short_stack(short_store, "stack", spec, kFirst);
        stack.add_final_norm(store);
        short_stack.add_final_norm(short_store);
        allocate(store);
        allocate(short_store);
        // Calls visit(parameter of the short stack, the same of the whole one).
        const auto for_each_kept = [&](auto&& visit) {
          for (ParamId id = 0; id < static_cast<ParamId>(short_store.count()); ++id) {
            std::string name = short_store.name(id);
            const auto digit = static_cast<size_t>(name[6] - '0');  // after "stack."
            if (name.compare(6, 4, "norm") != 0) name[6] = static_cast<char>('0' + kept[digit]);
            visit(id, store.find(name));
          }
        };
        for_each_kept([&](ParamId short_id, ParamId id) {
          const auto values = context_->values<double>(store.value(id).detach());
          short_store.set_value(*context_, short_id, values.data(), values.size() * sizeof(double));
        });
        nn::BlockInputs inputs;
        inputs.sequences.cu_seqlens = ints({0, 3, kTokens});
        const auto run = [&](const nn::TransformerStack& which, ParameterStore& parameters,
                             const DropoutPass& pass) {
          const StepScope scope(*context_, &StepContext::recompute, recompute);
          inputs.dropout = pass;
          parameters.zero_grad();
          Tensor x = random({kTokens, kWidth}, 1);
          set_requires_grad(x, true);
          const Tensor y = which.forward(*context_, x, inputs);
          context_->backward(y, random({kTokens, kWidth}, 2));
          parameters.complete_grads(*context_);
          return std::pair{context_->values<double>(y.detach()),
                           context_->values<double>(grad_of(x))};
        };
        EXPECT_EQ(run(stack, store, {9, 4, true, skipped}), run(short_stack, short_store, {}));
        std::vector<bool> seen(store.count());
        for_each_kept([&](ParamId short_id, ParamId id) {
          seen[static_cast<size_t>(id)] = true;
          EXPECT_EQ(context_->values<double>(store.grad(id)),
                    context_->values<double>(short_store.grad(short_id)))
              << store.name(id);
        });
        for (size_t i = 0; i < seen.size(); ++i) {
          if (seen[i]) continue;
          for (const double g : context_->values<double>(store.grad(static_cast<ParamId>(i))))
            EXPECT_EQ(g, 0) << store.name(static_cast<ParamId>(i));
        }
        // Outside of training nothing is skipped.
        EXPECT_EQ(run(stack, store, {9, 4, false, skipped}), run(stack, store, {}));
      }
}

TEST_F(Modules, SkippedBlocksPassGradcheck) {
  for (const bool pre_norm : {true, false})
    for (const std::vector<bool>& skipped : {std::vector<bool>{false, true},
                                             {false, false, true},
                                             {false, true, false, true},
                                             {false, true, true, true}}) {
      ParameterStore store;
      nn::TransformerStack stack(store, "stack", stack_spec(pre_norm, true, 3), 1);
      stack.add_final_norm(store);
      allocate(store);
      nn::BlockInputs inputs;
      inputs.sequences.cu_seqlens = ints({0, 3, kTokens});
      inputs.dropout = {9, 4, true, skipped};
      const GradcheckResult result =
          gradcheck(*context_,
                    [&](Context& context, const std::vector<Tensor>& in) {
                      return std::vector<Tensor>{stack.forward(context, in[0], inputs)};
                    },
                    {random({kTokens, kWidth}, 1)});
      EXPECT_TRUE(result.ok) << result.message;
      EXPECT_EQ(result.checked, kTokens * kWidth);
    }
}

TEST(LayerDrop, SkipsTheShareOfPassesThatItIsGiven) {
  constexpr uint32_t kPasses = 20000, kFirst = 1, kCount = 4;
  for (const double p : {0.05, 0.2, 0.9}) {
    std::vector<double> counts(kFirst + kCount);
    double pairs = 0;
    for (uint32_t step = 0; step < kPasses; ++step) {
      std::vector<bool> skipped = skipped_layers(7, step, kFirst, kCount, p);
      EXPECT_EQ(skipped, skipped_layers(7, step, kFirst, kCount, p));
      EXPECT_TRUE(skipped.empty() || skipped.back());  // one form for one set
      skipped.resize(kFirst + kCount);
      for (size_t i = 0; i < skipped.size(); ++i) counts[i] += skipped[i];
      pairs += skipped[1] && skipped[2];
    }
    const auto bound = [](double share) { return 5 * std::sqrt(share * (1 - share) / kPasses); };
    EXPECT_EQ(counts[0], 0);  // embeddings
    for (size_t i = kFirst; i < counts.size(); ++i)
      EXPECT_NEAR(counts[i] / kPasses, p, bound(p)) << "layer " << i;
    EXPECT_NEAR(pairs / kPasses, p * p, bound(p * p)) << "layers are drawn by themselves";
  }
  EXPECT_TRUE(skipped_layers(7, 3, 1, 1000, 0).empty());
  EXPECT_NE(skipped_layers(7, 3, 1, 1000, 0.5), skipped_layers(8, 3, 1, 1000, 0.5));
}

}  // namespace
}  // namespace trafo::testing
