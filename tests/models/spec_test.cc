// The specifications of known families, and of stacks that differ.
#include "engine/models/spec.h"

#include <gtest/gtest.h>

#include "tests/models/llama_models.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

TEST(ModelSpecTest, AnEncoderDecoderHasTwoStacksOfOneForm) {
  ModelConfig config;
  config.width = 16;
  config.heads = 4;
  config.encoder_layers = 3;
  config.decoder_tied_layers = {1, 1, 2, 2, 1, 6};
  config.depth_scaled_init = true;
  const ModelSpec spec = spec_of(config);
  ASSERT_TRUE(spec.encoder.has_value());
  EXPECT_EQ(spec.encoder->layers(), 3);
  EXPECT_EQ(spec.decoder.layers(), 6);
  EXPECT_EQ(spec.decoder.sharing.sets, (std::vector<int64_t>{0, 0, 1, 1, 0, 2}));
  EXPECT_EQ(spec.decoder.init_depth(2), 3);
  EXPECT_FALSE(spec.encoder->causal || spec.encoder->cross_attention);
  EXPECT_TRUE(spec.decoder.causal && spec.decoder.cross_attention);
  EXPECT_EQ(spec.decoder.attention.head_dim, 4);
  EXPECT_EQ(spec.embedding.positions, PositionTable::sinusoidal);
  EXPECT_EQ(spec.embedding.scale, 4);
  EXPECT_TRUE(spec.embedding.shared && spec.output.tied && spec.output.bias);
  EXPECT_FALSE(spec.embedding.norm);
  config.tied_embeddings = config.depth_scaled_init = false;
  EXPECT_FALSE(spec_of(config).embedding.shared || spec_of(config).output.tied);
  EXPECT_EQ(spec_of(config).decoder.init_depth(2), 0);
}

TEST(ModelSpecTest, LearnedPositionsOfAnEncoderDecoder) {
  ModelConfig config;
  config.vocabulary = 8;
  config.width = 16;
  config.heads = 4;
  config.learned_positions = true;
  validate(config);
  EXPECT_EQ(spec_of(config).embedding.positions, PositionTable::learned);
  EXPECT_TRUE(spec_of(config).embedding.norm);
  EXPECT_EQ(spec_of(config).embedding.scale, 4);
  config.embedding_scale = 1;
  validate(config);
  EXPECT_EQ(spec_of(config).embedding.scale, 1);
  const auto refused = [&](auto change) {
    ModelConfig other = config;
    change(other);
    const Error error = error_of([&] { validate(other); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(mentions(error, "learned_positions")) << error.what();
  };
  refused([](ModelConfig& c) { c.fairseq_positions = true; });
  refused([](ModelConfig& c) { c.architecture = Architecture::decoder_lm; });
}

TEST(ModelSpecTest, RelativePositionsOfAnEncoderDecoder) {
  ModelConfig config;
  config.vocabulary = 8;
  config.width = 16;
  config.heads = 4;
  config = gated_t5_of(config);
  validate(config);
  const ModelSpec spec = spec_of(config);
  EXPECT_EQ(spec.embedding.positions, PositionTable::none);
  EXPECT_TRUE(spec.embedding.shared);
  EXPECT_FALSE(spec.output.tied || spec.output.bias);
  for (const StackSpec* stack : {&*spec.encoder, &spec.decoder}) {
    ASSERT_TRUE(stack->attention.relative.has_value());
    EXPECT_EQ(stack->attention.relative->buckets, 8);
    EXPECT_EQ(stack->attention.relative->most_distance, 6);
    EXPECT_EQ(stack->attention.scale, 1);
    EXPECT_EQ(stack->norm.kind, Norm::rms);
  }
  const auto refused = [&](const char* text, auto change) {
    ModelConfig other = config;
    change(other);
    const Error error = error_of([&] { validate(other); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(mentions(error, text)) << error.what();
  };
  refused("relative_buckets", [](ModelConfig& c) { c.fairseq_positions = true; });
  refused("relative_buckets", [](ModelConfig& c) { c.learned_positions = true; });
  refused("relative_buckets", [](ModelConfig& c) { c.architecture = Architecture::decoder_lm; });
  refused("relative_buckets must be 0", [](ModelConfig& c) { c.relative_buckets = 3; });
  refused("relative_distance must be above half", [](ModelConfig& c) { c.relative_distance = 4; });
  refused("separate_output goes with", [](ModelConfig& c) { c.tied_embeddings = false; });
  refused("relative_buckets", [](ModelConfig& c) { c.relative_buckets = 0; });
  refused("rotary", [](ModelConfig& c) { c.positions = Positions::rotary; });
}

TEST(ModelSpecTest, ModernBertIsAnEncoderWithNormsBeforeItsBlocks) {
  ModelConfig config;
  config.vocabulary = 8;
  config.width = 16;
  config.heads = 4;
  config = modernbert_of(config, EncoderHead::sequence, 5);
  config.classifier_pooling = Pooling::mean;
  validate(config);
  const ModelSpec spec = spec_of(config);
  const StackSpec& stack = spec.decoder;
  EXPECT_FALSE(stack.causal || stack.norm.bias || stack.norm.first);
  EXPECT_EQ(stack.norm.placement, NormPlacement::before);
  const std::vector<int64_t> windows{0, 5, 0, 5, 0, 5};
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(stack.attention.window_of(i), windows[static_cast<size_t>(i)]);
    EXPECT_EQ(stack.attention.angles_of(i).theta, i % 2 == 0 ? 160000 : 100);
  }
  EXPECT_EQ(spec.embedding.positions, PositionTable::none);
  EXPECT_TRUE(spec.embedding.norm && spec.output.bias && spec.head.has_transform());
  EXPECT_FALSE(spec.head.pooler);
  EXPECT_EQ(spec.head.pooling, Pooling::mean);
  const auto refused = [&](const char* text, auto change) {
    ModelConfig other = config;
    change(other);
    const Error error = error_of([&] { validate(other); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(mentions(error, text)) << error.what();
  };
  refused("pre_norm must be 1", [](ModelConfig& c) { c.pre_norm = false; });
  refused("positions must be rotary", [](ModelConfig& c) {
    c.positions = Positions::standard;
    c.rope_local_theta = 0;
  });
  refused("ffn must be gated", [](ModelConfig& c) { c.ffn = FeedForward::plain; });
  refused("biases must be 0", [](ModelConfig& c) { c.biases = true; });
  refused("token_types must be 0", [](ModelConfig& c) { c.token_types = 2; });
  refused("head_width must be 0", [](ModelConfig& c) { c.head_width = 6; });
  refused("pooler is not in", [](ModelConfig& c) {
    c.encoder_head = EncoderHead::none;
    c.labels = 0;
    c.pooler = true;
  });
  const auto as_bert = [](ModelConfig& c) {
    c.encoder_class = EncoderClass::bert;
    c.pre_norm = false;
    c.positions = Positions::standard;
    c.ffn = FeedForward::plain;
    c.biases = true;
    c.rope_local_theta = 0;
  };
  refused("sliding_window must be 0", as_bert);
  refused("classifier_pooling must be first", [&](ModelConfig& c) {
    as_bert(c);
    c.sliding_window = c.full_attention_interval = 0;
  });
}

// Heads of a pruned encoder: as many of keys as of queries, also where kv_heads says the number.
TEST(ModelSpecTest, AnEncoderHasItsOwnHeadsAndWidth) {
  ModelConfig config;
  config.vocabulary = 8;
  config.width = 16;
  config.heads = config.kv_heads = 4;
  config.head_width = 4;
  config.encoder_heads = 3;
  config.encoder_ffn_width = 24;
  validate(config);
  const ModelSpec spec = spec_of(config);
  EXPECT_EQ(spec.encoder->attention.heads, 3);
  EXPECT_EQ(spec.encoder->attention.key_heads, 3);
  EXPECT_EQ(spec.encoder->attention.query_width(), 12);
  EXPECT_EQ(spec.encoder->feed_forward.width, 24);
  EXPECT_EQ(spec.decoder.attention.key_heads, 4);
  EXPECT_EQ(spec.decoder.feed_forward.width, config.ffn_width);
}

TEST(ModelSpecTest, LlamaAndGpt2AreValues) {
  ModelConfig config = llama_of(ModelConfig{});
  config.qkv_biases = true;
  config.rope_theta = 500;
  const ModelSpec llama = spec_of(config);
  EXPECT_FALSE(llama.encoder.has_value());
  EXPECT_EQ(llama.decoder.norm.kind, Norm::rms);
  EXPECT_TRUE(llama.decoder.feed_forward.gated);
  EXPECT_EQ(llama.embedding.positions, PositionTable::none);
  EXPECT_EQ(llama.decoder.attention.rotary->theta, 500);
  EXPECT_TRUE(llama.decoder.attention.qkv_bias);
  EXPECT_FALSE(llama.decoder.attention.output_bias || llama.decoder.feed_forward.bias ||
               llama.output.bias);
  EXPECT_EQ(llama.decoder.attention.qk_norm, QkNorm::none);
  EXPECT_EQ(llama.decoder.attention.rotary->magnitude, 1);
  config = qwen3_of(ModelConfig{});
  config.rope_scaling = RopeScaling::yarn;
  config.rope_factor = 4;
  config.rope_original_positions = 256;
  EXPECT_EQ(spec_of(config).decoder.attention.qk_norm, QkNorm::head);
  EXPECT_EQ(spec_of(config).decoder.attention.head_dim, config.width / config.heads + 4);
  EXPECT_EQ(spec_of(config).decoder.attention.rotary->scaling, RopeScaling::yarn);
  EXPECT_NEAR(spec_of(config).decoder.attention.rotary->magnitude, 1.138629436111989, 1e-15);
  config.rope_magnitude = 0.5;
  EXPECT_EQ(spec_of(config).decoder.attention.rotary->magnitude, 0.5);
  EXPECT_EQ(spec_of(config).decoder.attention.rotary->query_growth, 0);
  config.rope_query_growth = 0.1;
  EXPECT_EQ(spec_of(config).decoder.attention.rotary->query_growth, 0.1);
  config = llama_of(ModelConfig{});
  config.no_rope_interval = 4;
  const AttentionSpec smollm3 = spec_of(config).decoder.attention;
  EXPECT_TRUE(smollm3.rotates(0) && smollm3.rotates(2) && smollm3.rotates(4));
  EXPECT_FALSE(smollm3.rotates(3) || smollm3.rotates(7));
  config = gemma3_of(ModelConfig{}, 512);
  config.full_attention_interval = 6;
  const StackSpec gemma3 = spec_of(config).decoder;
  EXPECT_EQ(gemma3.norm.placement, NormPlacement::sandwich);
  EXPECT_TRUE(gemma3.ends_with_norm() && gemma3.pre_norm() && gemma3.feed_forward.gated);
  EXPECT_EQ(gemma3.attention.window_of(0), 512);
  EXPECT_EQ(gemma3.attention.window_of(5), 0);
  EXPECT_EQ(gemma3.attention.window_of(6), 512);
  EXPECT_EQ(gemma3.attention.angles_of(0).theta, 100);
  EXPECT_EQ(gemma3.attention.angles_of(0).factor, 1);
  EXPECT_EQ(gemma3.attention.angles_of(5).theta, 1e6);
  EXPECT_EQ(gemma3.attention.angles_of(5).factor, 8);
  const ModelSpec gemma2 = spec_of(gemma2_of(ModelConfig{}, 512));
  EXPECT_EQ(gemma2.decoder.attention.soft_cap, 0.5);
  EXPECT_EQ(gemma2.output.soft_cap, 1.5);
  EXPECT_EQ(gemma2.decoder.attention.angles_of(0).theta, 1e4);
  const AttentionSpec mistral = spec_of(mistral_of(ModelConfig{}, 7)).decoder.attention;
  EXPECT_TRUE(mistral.window_of(0) == 7 && mistral.window_of(5) == 7);
  EXPECT_EQ(mistral.angles_of(0).theta, 1e4);
  config = llama_of(ModelConfig{});
  config.norm_outputs = true;
  EXPECT_EQ(spec_of(config).decoder.norm.placement, NormPlacement::on_output);
  EXPECT_TRUE(spec_of(config).decoder.ends_with_norm() && !spec_of(config).decoder.pre_norm());
  ModelConfig gpt2;
  gpt2.architecture = Architecture::decoder_lm;
  gpt2.pre_norm = false;
  const ModelSpec learned = spec_of(gpt2);
  EXPECT_EQ(learned.embedding.positions, PositionTable::learned);
  EXPECT_EQ(learned.embedding.scale, 1);
  EXPECT_FALSE(learned.decoder.attention.rotary.has_value());
  EXPECT_FALSE(learned.decoder.pre_norm() || learned.decoder.cross_attention);
}

}  // namespace
}  // namespace trafo::testing
