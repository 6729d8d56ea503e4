// Captured decode steps of search and of generation: on a stand-in for a GPU that repeats what it
// recorded, and on a GPU if there is one.
#include "engine/decode/step_graphs.h"

#include <functional>
#include <memory>
#include <vector>

#include "engine/decode/generator.h"
#include "engine/ops/kv_cache/kv_cache.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/rotary/rotary.h"
#include "engine/ops/swiglu/swiglu.h"
#include "tests/decode/decode_models.h"
#include "tests/ops/cuda/cuda_test.h"
#include "tests/support/errors.h"
#include "tests/train/step/accelerator.h"

namespace trafo::testing {
namespace {

using Translations = std::vector<std::vector<Hypothesis>>;

// Records the kernels of decode steps, with the parameters that they are given, and repeats them.
class GraphAccelerator final : public StreamAccelerator {
 public:
  void begin_capture() override { recorded_ = std::make_unique<Graph>(); }
  void* end_capture(char*, size_t) override {
    ++captures;
    return recorded_.release();
  }
  void launch_graph(void* graph) override {
    for (const auto& work : *static_cast<Graph*>(graph)) work();
  }
  void release_graph(void* graph) noexcept override { delete static_cast<Graph*>(graph); }
  void gemm(const GemmParams& params) override {
    issue([this, params] { StreamAccelerator::gemm(params); });
  }
  void copy(void* target, const void* source, size_t bytes) override {
    issue([=, this] { StreamAccelerator::copy(target, source, bytes); });
  }
  void fill_zero(void* target, size_t bytes) override {
    issue([=, this] { StreamAccelerator::fill_zero(target, bytes); });
  }
  void copy_from_host(void* device, const void* host, size_t bytes) override {
    require(!recorded_, ErrorCode::internal, "test", "a step uploads while it is captured");
    StreamAccelerator::copy_from_host(device, host, bytes);
  }
  void copy_to_host(void* host, const void* device, size_t bytes) override {
    require(!recorded_, ErrorCode::internal, "test", "a step waits while it is captured");
    StreamAccelerator::copy_to_host(host, device, bytes);
  }

  int64_t captures = 0;

 protected:
  void run(int kernel, const void* params) override {
    if (!recorded_) return StreamAccelerator::run(kernel, params);
    switch (static_cast<OpKernel>(kernel)) {
      case OpKernel::embedding_forward:
        return record<EmbeddingForwardParams>(kernel, params);
      case OpKernel::layer_norm_forward:
        return record<LayerNormForwardParams>(kernel, params);
      case OpKernel::rms_norm_forward:
        return record<RmsNormForwardParams>(kernel, params);
      case OpKernel::kv_cache_append:
        return record<KvCacheAppendParams>(kernel, params);
      case OpKernel::attention_forward:
        return record<AttentionForwardParams>(kernel, params);
      case OpKernel::bias_act_dropout_forward:
        return record<BiasActDropoutForwardParams>(kernel, params);
      case OpKernel::bias_dropout_residual_forward:
        return record<BiasDropoutResidualForwardParams>(kernel, params);
      case OpKernel::rotary_forward:
        return record<RotaryForwardParams>(kernel, params);
      case OpKernel::swiglu_forward:
        return record<SwigluForwardParams>(kernel, params);
      default:
        fail(ErrorCode::internal, "test", "a step has the kernel ",
             op_kernel_name(static_cast<OpKernel>(kernel)));
    }
  }

 private:
  using Graph = std::vector<std::function<void()>>;

  template <class Work>
  void issue(Work work) {
    if (recorded_)
      recorded_->push_back(work);
    else
      work();
  }
  template <class Params>
  void record(int kernel, const void* params) {
    recorded_->push_back([this, kernel, copy = *static_cast<const Params*>(params)] {
      StreamAccelerator::run(kernel, &copy);
    });
  }

  std::unique_ptr<Graph> recorded_;
};

std::unique_ptr<Context> graph_stand_in() {
  return std::make_unique<Context>(std::make_shared<GraphAccelerator>());
}

std::vector<std::vector<int32_t>> sentences(int64_t count, uint64_t seed) {
  PhiloxStream random(seed, 3);
  std::vector<std::vector<int32_t>> result(static_cast<size_t>(count));
  for (std::vector<int32_t>& sentence : result) {
    for (uint32_t left = 1 + random.next_u32() % 14; left > 0; --left)
      sentence.push_back(static_cast<int32_t>(4 + random.next_u32() % 9));
    sentence.push_back(kEos);
  }
  return result;
}

void expect_same_bits(const Translations& got, const Translations& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), 1u);
    EXPECT_EQ(got[i][0].tokens, expected[i][0].tokens) << i;
    EXPECT_EQ(got[i][0].log_probability, expected[i][0].log_probability) << i;
  }
}

class StepGraphsTest : public ::testing::TestWithParam<TestDevice> {
 protected:
  void SetUp() override {
    context_ = GetParam().make();
    if (!context_) GTEST_SKIP() << "TRAFO_TEST_DEVICE is not cuda";
  }

  // Weights with which sentences finish one after the other, some at the maximum length.
  std::unique_ptr<Model> model_of(const ModelConfig& config) {
    auto model = random_model(*context_, config, 17, DType::f32);
    set_output_bias(*context_, *model, kEos, 2);
    return model;
  }

  std::unique_ptr<Context> context_;
};

INSTANTIATE_TEST_SUITE_P(Devices, StepGraphsTest,
                         ::testing::Values(TestDevice{"StandIn", &graph_stand_in},
                                           TestDevice{"Cuda", &cuda_context}),
                         [](const auto& device) { return std::string(device.param.name); });

TEST_P(StepGraphsTest, HaveTheBitsOfStepsThatAreLaunched) {
  const auto model = model_of(decode_config(Architecture::encoder_decoder));
  StepGraphs graphs(*context_, *model);
  for (const uint64_t seed : {1, 2, 3}) {
    // More sentences each time: the memory of the graphs grows.
    const auto sources = sentences(60 + 40 * static_cast<int64_t>(seed), seed);
    DecodeOptions options;
    options.beam = 1;
    options.batch_tokens = 700;  // several batches
    const Translations expected = translate_tokens(*context_, *model, sources, options);
    options.step_graphs = &graphs;
    for (int i = 0; i < 3; ++i)
      expect_same_bits(translate_tokens(*context_, *model, sources, options), expected);
  }
  EXPECT_GT(graphs.replays(), 100);
}

TEST_P(StepGraphsTest, SeeNewWeightsAndAMovedArena) {
  const auto model = model_of(decode_config(Architecture::encoder_decoder));
  StepGraphs graphs(*context_, *model);
  const auto sources = sentences(50, 4);
  DecodeOptions options;
  options.beam = 1;
  options.step_graphs = &graphs;
  for (int i = 0; i < 4; ++i) {
    set_output_bias(*context_, *model, 5, 0.3 * i);
    if (i == 2) context_->backend().set_arena_memory(context_->backend().arena_bytes() + (1 << 20));
    options.step_graphs = nullptr;
    const Translations expected = translate_tokens(*context_, *model, sources, options);
    options.step_graphs = &graphs;
    expect_same_bits(translate_tokens(*context_, *model, sources, options), expected);
  }
}

// More tokens that end a sentence are more of the best that are taken of a step's logits.
TEST_P(StepGraphsTest, LeaveTheNumberOfTheBestToTheSearch) {
  const auto model = model_of(decode_config(Architecture::encoder_decoder));
  StepGraphs graphs(*context_, *model);
  const auto sources = sentences(30, 7);
  for (const std::vector<int32_t>& ends : {std::vector<int32_t>{}, {5, 6}, {}}) {
    DecodeOptions options;
    options.beam = 1;
    options.more_ends = ends;
    const Translations expected = translate_tokens(*context_, *model, sources, options);
    options.step_graphs = &graphs;
    for (int i = 0; i < 2; ++i)
      expect_same_bits(translate_tokens(*context_, *model, sources, options), expected);
  }
}

// Its row grows past the first capacity, when the others have long left.
TEST_P(StepGraphsTest, GoOnWhenTheCacheGrows) {
  ModelConfig config = decode_config(Architecture::encoder_decoder);
  config.max_positions = 150;
  const auto model = model_of(config);
  set_output_bias(*context_, *model, kEos, -1e9);
  StepGraphs graphs(*context_, *model);
  auto sources = sentences(20, 5);
  sources.push_back({5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 8,
                     5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, kEos});
  DecodeOptions options;
  options.beam = 1;
  const Translations expected = translate_tokens(*context_, *model, sources, options);
  EXPECT_EQ(expected.back()[0].tokens.size(), 90u);
  options.step_graphs = &graphs;
  for (int i = 0; i < 3; ++i) {
    const int64_t before = graphs.replays();
    expect_same_bits(translate_tokens(*context_, *model, sources, options), expected);
    EXPECT_GE(graphs.replays() - before, i == 0 ? 0 : 85);
  }
}

TEST_P(StepGraphsTest, OtherSearchesPassThemBy) {
  const auto model = model_of(decode_config(Architecture::encoder_decoder));
  StepGraphs graphs(*context_, *model);
  DecodeOptions options;
  options.step_graphs = &graphs;
  const auto sources = sentences(12, 6);
  translate_tokens(*context_, *model, sources, options);  // a beam
  options.beam = 1;
  options.shortlist = [](std::span<const int32_t>) { return std::vector<int32_t>{4, 5, 6}; };
  translate_tokens(*context_, *model, sources, options);
  EXPECT_EQ(graphs.replays(), 0);
  options.shortlist = {};
  options.step_graphs = nullptr;
  options.sampling.on = true;
  options.no_repeat_ngram_size = 2;
  const Translations expected = translate_tokens(*context_, *model, sources, options);
  options.step_graphs = &graphs;
  for (int i = 0; i < 2; ++i)
    expect_same_bits(translate_tokens(*context_, *model, sources, options), expected);
  EXPECT_GT(graphs.replays(), 0);
}

using Pieces = std::vector<GenerationPiece>;

void expect_same_pieces(const Pieces& got, const Pieces& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].sequence, expected[i].sequence) << i;
    EXPECT_EQ(got[i].token, expected[i].token) << i;
    EXPECT_EQ(got[i].log_probability, expected[i].log_probability) << i;
    EXPECT_EQ(got[i].cached_tokens, expected[i].cached_tokens) << i;
  }
}

// Sequences of many lengths begin and end while others are in flight; ended ones are kept. The
// cache grows, and is another one for the second round, which finds nothing in flight.
// With `switches`, graphs are not wanted for a while.
Pieces generate(Context& context, const Model& model, int64_t kept, bool switches = false) {
  Generator generator(context, model, std::nullopt, nullptr, kept);
  GenerationOptions options;
  options.translate.decode.word_scores = true;
  options.translate.decode.max_length = 100;
  Pieces pieces;
  const auto take = [&](int count) {
    for (; count > 0; --count) {
      GenerationPiece piece = generator.next();
      if (piece.sequence < 0) return;
      pieces.push_back(std::move(piece));
    }
  };
  for (int round = 0; round < 2; ++round) {
    generator.start_ids({{4, 5, 6, 7, 8, 9, 10}, {11}, {5, 5, 5}}, options);
    take(25);
    if (switches) context.set_graphs(false);
    take(5);
    if (switches) context.set_graphs(true);
    GenerationOptions drawn = options;
    drawn.translate.decode.sampling.on = true;
    drawn.translate.decode.n_best = 2;
    generator.start_ids({{4, 5, 6, 7, 12}, {9, 9}}, drawn);
    take(1000);
  }
  return pieces;
}

// The number of graphs that the stand-in has captured; -1 on a GPU.
int64_t captures(const Context& context) {
  const auto* accelerator = dynamic_cast<const GraphAccelerator*>(&context.backend());
  return accelerator ? accelerator->captures : -1;
}

TEST_P(StepGraphsTest, GenerateTheSameTokens) {
  for (const bool is_llama : {false, true}) {
    ModelConfig config = decode_config(Architecture::decoder_lm);
    if (is_llama) config = llama_of(config, 1);
    config.max_positions = 150;
    const auto model = random_model(*context_, config, 11, DType::f32);
    model->set_tokens(VocabularyTokens{});
    for (const int64_t kept : {0, 3}) {
      context_->set_graphs(false);
      const Pieces expected = generate(*context_, *model, kept);
      const int64_t before = captures(*context_);
      context_->set_graphs(true);
      expect_same_pieces(generate(*context_, *model, kept), expected);
      expect_same_pieces(generate(*context_, *model, kept, true), expected);
      if (before >= 0) {
        EXPECT_GT(captures(*context_), before);
      }
    }
  }
}

TEST_P(StepGraphsTest, AreUsableWhereStepsAreCaptured) {
  const auto model = model_of(decode_config(Architecture::encoder_decoder));
  EXPECT_TRUE(StepGraphs::usable(*context_, *model));
  context_->set_graphs(false);
  EXPECT_FALSE(StepGraphs::usable(*context_, *model));
  context_->set_graphs(true);
  context_->set_fused_kernels(false);
  EXPECT_FALSE(StepGraphs::usable(*context_, *model));
  context_->set_fused_kernels(true);
  const auto stream =
      random_model(*context_, decode_config(Architecture::decoder_lm), 3, DType::f32);
  EXPECT_TRUE(StepGraphs::usable(*context_, *stream));
  EXPECT_FALSE(StepGraphs::usable(*cpu_context(), *model));
}

}  // namespace
}  // namespace trafo::testing
