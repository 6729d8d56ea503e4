// GGUF files: the bytes of the container, the order of rows, types, and what the format cannot
// hold.
#include "engine/formats/formats.h"
#include "engine/formats/gguf/gguf_file.h"
#include "engine/formats/stored_weights.h"
#include "engine/formats/tensor_map.h"
#include "engine/formats/tokenizers/spm_subwords.h"
#include "tests/interop/interop_support.h"

namespace trafo {
namespace {

using namespace testing;
using interop::GgufReader;
using interop::GgufTensor;
using interop::GgufType;

const Tokenizer& bpe_tokenizer(bool bytes = true) {
  const auto trained = [](bool with_bytes) {
    const std::vector<std::string> lines{"der Hund sieht einen Baum", "die Katze sucht ein Licht"};
    TokenizerTrainOptions options;
    options.vocab_size = with_bytes ? 300 : 40;
    options.hard_vocab_limit = false;
    options.model = TokenizerModel::bpe;
    options.byte_fallback = with_bytes;
    return Tokenizer::train(std::span<const std::string>(lines), options);
  };
  static const Tokenizer with = trained(true), without = trained(false);
  return bytes ? with : without;
}

class GgufTest : public InteropTest {
 protected:
  static ModelConfig gguf_config(int64_t kv_heads, bool tied) {
    ModelConfig config = llama_config(kv_heads, tied);
    config.vocabulary = bpe_tokenizer().vocab_size();
    config.width = 32;
    config.ffn_width = 64;
    return config;
  }
  double gguf(const Model& model, ExportWeights weights, const std::string& name,
              const Tokenizer& tokenizer = bpe_tokenizer()) {
    return export_model(*context_, model, tokenizer, ExportFormat::gguf, path(name), weights);
  }
  void gguf_refused(const ModelConfig& config, ExportWeights weights, const char* text,
                    const Tokenizer& tokenizer = bpe_tokenizer()) {
    const auto model = make_model(*context_, config, 1);
    expect_error(ErrorCode::unsupported, text, [&] { gguf(*model, weights, "x", tokenizer); });
    EXPECT_TRUE(fs::is_empty(folder_.path())) << "something was left";
  }
  GgufReader reader(const std::string& name) const { return GgufReader(path(name) / "model.gguf"); }
};

TEST_F(GgufTest, TheContainerByteForByte) {
  const interop::GgufPairs pairs = {{"a", uint32_t{7}},
                                    {"b", "xy"},
                                    {"c", true},
                                    {"d", std::vector<int32_t>{-1, 2}},
                                    {"e", std::vector<std::string>{"z"}},
                                    {"f", 0.5f}};
  const std::vector<GgufTensor> tensors = {{"m", {2, 3}, GgufType::f16}, {"v", {1}, GgufType::f32}};
  interop::write_gguf_file(path("file"), pairs, tensors, [](const GgufTensor& tensor) {
    return std::vector<std::byte>(tensor.bytes(), tensor.name == "m" ? std::byte{1} : std::byte{2});
  });
  const auto u32 = [](char value) { return std::string{value, 0, 0, 0}; };
  const auto u64 = [&](char value) { return u32(value) + u32(0); };
  const auto text = [&](const std::string& value) {
    return u64(static_cast<char>(value.size())) + value;
  };
  std::string wanted = "GGUF" + u32(3) + u64(2) + u64(6);
  wanted += text("a") + u32(4) + u32(7) + text("b") + u32(8) + text("xy");
  wanted += text("c") + u32(7) + '\1';
  wanted += text("d") + u32(9) + u32(5) + u64(2) + "\xff\xff\xff\xff" + u32(2);
  wanted += text("e") + u32(9) + u32(8) + u64(1) + text("z");
  wanted += text("f") + u32(6) + std::string("\0\0\0\x3f", 4);
  // The innermost dimension first; the second tensor begins at the next multiple of 32.
  wanted += text("m") + u32(2) + u64(3) + u64(2) + u32(1) + u64(0);
  wanted += text("v") + u32(1) + u64(1) + u32(0) + u64(32);
  wanted.resize((wanted.size() + 31) / 32 * 32);
  wanted +=
      std::string(12, '\1') + std::string(20, '\0') + std::string(4, '\2') + std::string(28, '\0');
  EXPECT_EQ(read_text_file(path("file"), 1 << 20), wanted);

  GgufReader in(path("file"));
  EXPECT_EQ(in.pairs(), pairs);
  EXPECT_EQ(in.tensors(), tensors);
  EXPECT_EQ(in.data(1), std::vector<std::byte>(4, std::byte{2}));
  for (size_t size = wanted.size() - 29; size > 0; size = size * 9 / 10) {
    write_file_atomically(path("cut"), wanted.substr(0, size));
    EXPECT_EQ(code_of([&] { GgufReader(path("cut")).data(1); }), ErrorCode::corrupt_file) << size;
  }
}

TEST_F(GgufTest, WeightsComeBackWithinTheRoundingOfTheirType) {
  using enum ExportWeights;
  for (const int64_t kv_heads : {0, 1})
    for (const bool tied : {false, true}) {
      const auto model = model_of(gguf_config(kv_heads, tied));
      const auto difference = [&](ExportWeights weights) {
        return gguf(*model, weights, concat(enum_name(weights), kv_heads, tied));
      };
      EXPECT_EQ(difference(float32), 0);
      const double half = difference(float16), eight = difference(q8_0), four = difference(q4_0);
      EXPECT_GT(half, 0);
      EXPECT_LT(half, 2e-3);
      EXPECT_GT(eight, half);
      EXPECT_LT(eight, 0.05);
      EXPECT_GT(four, eight);
      EXPECT_LT(four, 0.6);
    }
  EXPECT_GT(gguf(*model_of(gguf_config(1, true)), by_format, "usual"), 0);
  EXPECT_EQ(reader("usual").tensors(), reader("float1611").tensors());
}

// The export compares the model that the metadata describe: one that lacked a setting would be
// refused.
TEST_F(GgufTest, SettingsAreInTheMetadataOfEveryType) {
  using enum ExportWeights;
  ModelConfig config = gguf_config(1, false);
  config.norm_epsilon = 0.03;
  config.rope_theta = 500;
  const auto model = model_of(config);
  const interop::HostModel host = interop::copy_to_host(*context_, *model);
  for (const ExportWeights weights : {float16, float32, q8_0, q4_0}) {
    const std::string name = enum_name(weights);
    gguf(*model, weights, name);
    const ModelConfig read =
        interop::read_back_gguf(host, bpe_tokenizer(), weights, path(name)).config();
    EXPECT_FLOAT_EQ(static_cast<float>(read.norm_epsilon), 0.03f);
    EXPECT_EQ(read.rope_theta, 500);
    EXPECT_EQ(read.kv_heads, 1);
    EXPECT_FALSE(read.tied_embeddings);
  }
}

TEST_F(GgufTest, ArchitecturesOfOtherClasses) {
  ModelConfig smollm3 = gguf_config(1, true), granite = smollm3, olmo2 = gguf_config(1, false);
  smollm3.decoder_layers = 5;
  smollm3.no_rope_interval = 4;
  granite.embedding_scale = 12;
  granite.attention_scale = 0.25;
  granite.residual_scale = 0.5;
  granite.logits_divisor = 8;
  olmo2.norm_outputs = true;
  olmo2.qk_norm = QkNorm::whole;
  ModelConfig hunyuan = gguf_config(1, true);
  hunyuan.qk_norm = QkNorm::head_after_rotary;
  ModelConfig gemma3 = gemma3_of(gguf_config(1, true), 5, 1);
  gemma3.decoder_layers = 7;
  gemma3.full_attention_interval = 6;
  gemma3.rope_local_theta = 1e4;
  gemma3.attention_scale = 0;
  ModelConfig gemma2 = gemma2_of(gguf_config(1, true), 5, 1);
  gemma2.attention_scale = 0;
  ModelConfig mistral3 = gguf_config(1, true);  // as Ministral 3 comes
  mistral3.rope_scaling = RopeScaling::yarn;
  mistral3.rope_factor = 16;
  mistral3.rope_original_positions = 8;
  mistral3.rope_low_turns = 0.5;
  mistral3.rope_high_turns = 24;
  mistral3.rope_magnitude = 1;
  mistral3.rope_query_growth = 0.5;
  for (const auto& [name, config] : {std::pair{"smollm3", smollm3},
                                     {"granite", granite},
                                     {"olmo2", olmo2},
                                     {"hunyuan-dense", hunyuan},
                                     {"gemma2", gemma2},
                                     {"gemma3", gemma3},
                                     {"mistral3", mistral3}}) {
    const auto model = model_of(config);
    // Only the quotient of mistral3's magnitude is rounded.
    EXPECT_LE(gguf(*model, ExportWeights::float32, name),
              name == std::string("mistral3") ? 1e-6 : 0)
        << name;
    const GgufReader in = reader(name);
    EXPECT_EQ(in.pairs().front(), (std::pair<std::string, interop::GgufValue>(
                                      "general.architecture", std::string(name))));
    const interop::HostModel host = interop::copy_to_host(*context_, *model);
    const ModelConfig read =
        interop::read_back_gguf(host, bpe_tokenizer(), ExportWeights::float32, path(name)).config();
    EXPECT_EQ(read.no_rope_interval, config.no_rope_interval);
    EXPECT_EQ(read.embedding_scale, config.embedding_scale);
    EXPECT_EQ(read.attention_scale, config.attention_scale);
    EXPECT_EQ(read.residual_scale, config.residual_scale);
    EXPECT_EQ(read.logits_divisor, config.logits_divisor);
    EXPECT_EQ(read.norm_outputs, config.norm_outputs);
    EXPECT_EQ(read.qk_norm, config.qk_norm);
    EXPECT_EQ(read.sliding_window, config.sliding_window);
    EXPECT_EQ(read.full_attention_interval, config.full_attention_interval);
    EXPECT_EQ(read.rope_local_theta, config.rope_local_theta);
    EXPECT_EQ(read.rope_factor, config.rope_factor);
    EXPECT_EQ(read.rope_query_growth, config.rope_query_growth);
    EXPECT_EQ(read.rope_original_positions, config.rope_original_positions);
    EXPECT_EQ(read.rope_low_turns, config.rope_low_turns);
    EXPECT_EQ(read.rope_high_turns, config.rope_high_turns);
    EXPECT_NEAR(read.rope_magnitude, config.rope_magnitude, 1e-6);
    EXPECT_EQ(read.attention_soft_cap, config.attention_soft_cap);
    EXPECT_EQ(read.logits_soft_cap, config.logits_soft_cap);
    EXPECT_EQ(read.sandwich_norm, config.sandwich_norm);
    EXPECT_EQ(read.ffn, config.ffn);
    fs::remove_all(path(name));
  }
  smollm3.no_rope_interval = 2;  // llama.cpp knows 4 alone
  gguf_refused(smollm3, ExportWeights::float32, "no_rope_interval 2, it has");
  ModelConfig other = gemma3;  // llama.cpp knows these by itself, too
  other.full_attention_interval = 2;
  gguf_refused(other, ExportWeights::float32, "a window of attention (sliding_window 5)");
  other = gemma3;
  other.rope_local_theta = 100;
  gguf_refused(other, ExportWeights::float32, "(rope_local_theta)");
  other = gemma3;
  other.attention_scale = 0.3;
  gguf_refused(other, ExportWeights::float32, "attention_scale 0.3");
  other = gemma3;
  other.decoder_layers = 62;
  gguf_refused(other, ExportWeights::float32, "Gemma 3 with 62 layers");
  other = gemma2;
  other.logits_soft_cap = 0;
  gguf_refused(other, ExportWeights::float32, "a Gemma 2 without attention_soft_cap and logits");
  other = gemma2;
  other.tied_embeddings = false;
  gguf_refused(other, ExportWeights::float32, "an output matrix that is not the embeddings");
  other = gemma2;
  other.attention_scale = 0.3;
  gguf_refused(other, ExportWeights::float32, "attention_scale 0.3 in a Gemma 2 with 2 layers");
  other = gemma2;
  other.decoder_layers = 46;
  gguf_refused(other, ExportWeights::float32, "in a Gemma 2 with 46 layers");
  other.attention_scale = 1 / std::sqrt(static_cast<double>(other.width / other.heads));
  const auto wide = model_of(other);
  EXPECT_EQ(gguf(*wide, ExportWeights::float32, "wide"), 0);
  EXPECT_EQ(interop::read_back_gguf(interop::copy_to_host(*context_, *wide), bpe_tokenizer(),
                                    ExportWeights::float32, path("wide"))
                .config()
                .attention_scale,
            other.attention_scale);
}

TEST_F(GgufTest, TheFormOfGpt2) {
  ModelConfig config = config_of(Architecture::decoder_lm, true);
  config.vocabulary = bpe_tokenizer().vocab_size();
  config.width = config.ffn_width = 32;
  config.activation = Activation::gelu;
  config.norm_epsilon = 0.01;
  config.output_bias = false;
  const auto model = model_of(config);
  EXPECT_EQ(gguf(*model, ExportWeights::float32, "gpt2"), 0);
  GgufReader in = reader("gpt2");
  EXPECT_EQ(in.pairs().front().second, interop::GgufValue(std::string("gpt2")));
  EXPECT_EQ(in.tensors()[1],
            (GgufTensor{"position_embd.weight", {config.max_positions, 32}, GgufType::f32}));
  // The rows of our matrix [out, in], which GPT-2 itself has as columns.
  const GgufTensor& up = in.tensors()[10];
  EXPECT_EQ(up, (GgufTensor{"blk.0.ffn_up.weight", {32, 32}, GgufType::f32}));
  const std::vector<std::byte> bytes = in.data(10);
  const Tensor& ours =
      model->parameters().value(model->parameters().find("decoder.0.ffn.up.weight"));
  EXPECT_EQ(std::memcmp(bytes.data(), ours.data<float>(), bytes.size()), 0);
  EXPECT_GT(gguf(*model, ExportWeights::q8_0, "eight"), 0);
  EXPECT_EQ(reader("eight").tensors()[1].type, GgufType::f32);

  config.output_bias = true;  // which moves into an output matrix
  const auto biased = model_of(config);
  EXPECT_LE(gguf(*biased, ExportWeights::float32, "biased"), 1e-5);
  EXPECT_EQ(reader("biased").tensors().back().name, "output.weight");
  EXPECT_GT(gguf(*biased, ExportWeights::float16, "half"), 0);
}

TEST_F(GgufTest, TheFormOfT5) {
  ModelConfig usual = config_of(Architecture::encoder_decoder, true);
  usual.width = 32;
  usual.ffn_width = 64;
  usual.vocabulary = tokenizer().vocab_size();
  ModelConfig config = t5_of(usual);
  config.attention_dropout = config.ffn_dropout = config.dropout;
  config.relative_distance = 128;
  const auto model = model_of(config);
  // 1 / sqrt(32) is rounded.
  EXPECT_LE(gguf(*model, ExportWeights::float32, "t5", tokenizer()), 1e-6);
  GgufReader in = reader("t5");
  const GgufTensor& output = in.tensors().back();
  EXPECT_EQ(output, (GgufTensor{"output.weight", {config.vocabulary, 32}, GgufType::f32}));
  const Tensor& embedding = model->parameters().value(model->parameters().find("embedding.weight"));
  const std::vector<std::byte> bytes = in.data(in.tensors().size() - 1);
  std::vector<float> scaled(bytes.size() / sizeof(float));
  std::memcpy(scaled.data(), bytes.data(), bytes.size());
  for (size_t i = 0; i < scaled.size(); ++i)
    ASSERT_FLOAT_EQ(scaled[i], embedding.data<float>()[i] / std::sqrt(32.0f));
  const auto value = [&](std::string_view key) {
    for (const auto& [name, found] : in.pairs())
      if (name == key) return found;
    return interop::GgufValue();
  };
  EXPECT_EQ(value("t5.decoder_block_count"),
            interop::GgufValue(static_cast<uint32_t>(config.decoder_layers)));
  EXPECT_EQ(value("t5.decoder_start_token_id"),
            interop::GgufValue(static_cast<uint32_t>(tokenizer().special_tokens().start())));
  EXPECT_EQ(value("tokenizer.ggml.model"), interop::GgufValue(std::string("t5")));
  EXPECT_EQ(value("tokenizer.ggml.add_eos_token"), interop::GgufValue(true));
  const auto map = std::get<std::vector<uint8_t>>(value("tokenizer.ggml.precompiled_charsmap"));
  EXPECT_EQ(std::string(map.begin(), map.end()),
            interop::parse_spm(tokenizer().serialized()).character_map);
  for (const ExportWeights weights : {ExportWeights::float16, ExportWeights::q4_0}) {
    EXPECT_GT(gguf(*model, weights, enum_name(weights), tokenizer()), 0);
    const GgufReader rounded = reader(enum_name(weights));
    for (const GgufTensor& tensor : rounded.tensors()) {
      if (tensor.name.ends_with("attn_rel_b.weight")) {
        EXPECT_EQ(tensor.type, GgufType::f32);
      } else if (tensor.name == "output.weight" && weights == ExportWeights::q4_0) {
        EXPECT_EQ(tensor.type, GgufType::q8_0);
      }
    }
  }
  ModelConfig gated = gated_t5_of(usual);
  gated.attention_dropout = gated.ffn_dropout = gated.dropout;
  gated.relative_distance = 128;
  EXPECT_EQ(gguf(*model_of(gated), ExportWeights::float32, "gated", tokenizer()), 0);
  fs::remove_all(path("t5"));
  for (const char* name : {"gated", "float16", "q4_0"}) fs::remove_all(path(name));
  config.relative_distance = 20;
  gguf_refused(config, ExportWeights::float32, "relative_distance 20, llama.cpp has 128",
               tokenizer());
  config.relative_distance = 128;
  config.activation = Activation::gelu;  // without a gate llama.cpp takes relu
  gguf_refused(config, ExportWeights::float32, "activation gelu, it has relu", tokenizer());
}

TEST_F(GgufTest, UnigramsThatLlamaCppReadsOtherwise) {
  const std::vector<std::string> lines{"der Hund sieht einen Baum", "die Katze sucht ein Licht"};
  TokenizerTrainOptions options;
  options.vocab_size = 300;
  options.hard_vocab_limit = false;
  options.byte_fallback = true;
  const Tokenizer bytes = Tokenizer::train(std::span<const std::string>(lines), options);
  ModelConfig config = t5_of(config_of(Architecture::encoder_decoder, true));
  config.relative_distance = 128;
  config.vocabulary = bytes.vocab_size();
  gguf_refused(config, ExportWeights::float32, "a unigram vocabulary with byte tokens", bytes);
  interop::SpmModel model = interop::parse_spm(tokenizer().serialized());
  model.subwords.back().type = SubwordType::unused;
  const Tokenizer unused = Tokenizer::from_bytes(interop::serialize_spm(model, model.subwords));
  config.vocabulary = unused.vocab_size();
  gguf_refused(config, ExportWeights::float32, "with the unused subword", unused);
}

TEST_F(GgufTest, TypesOfTensors) {
  const auto model = model_of(gguf_config(1, true));
  gguf(*model, ExportWeights::q4_0, "q4");
  GgufReader in = reader("q4");
  for (const GgufTensor& tensor : in.tensors()) {
    GgufType wanted = tensor.shape.size() == 1 ? GgufType::f32 : GgufType::q4_0;
    if (tensor.name == "token_embd.weight") wanted = GgufType::q8_0;  // the output as well
    EXPECT_EQ(tensor.type, wanted) << tensor.name;
  }
  EXPECT_EQ(in.tensors().front().name, "token_embd.weight");
  EXPECT_EQ(in.tensors().size(), 2u + 2 * 9);
  gguf(*model_of(gguf_config(1, false)), ExportWeights::q4_0, "untied");
  const GgufReader untied = reader("untied");
  for (const GgufTensor& tensor : untied.tensors()) {
    if (tensor.name == "output.weight") {
      EXPECT_EQ(tensor.type, GgufType::q8_0);
    } else if (tensor.name == "token_embd.weight") {
      EXPECT_EQ(tensor.type, GgufType::q4_0);
    }
  }
}

TEST_F(GgufTest, PositionsOfLlama3AreDivisors) {
  ModelConfig config = gguf_config(1, true);
  config.rope_factor = 8;
  config.rope_original_positions = 32;
  config.rope_low_turns = 1;
  config.rope_high_turns = 4;
  EXPECT_EQ(gguf(*model_of(config), ExportWeights::float32, "llama3"), 0);
  GgufReader in = reader("llama3");
  EXPECT_EQ(in.tensors().back().name, "rope_freqs.weight");
  const std::vector<std::byte> bytes = in.data(in.tensors().size() - 1);
  std::vector<float> divisors(bytes.size() / sizeof(float));
  std::memcpy(divisors.data(), bytes.data(), bytes.size());
  // Pairs turn 5.1, 1.6, 0.5, .. times in 32 positions: kept, between, and divided.
  ASSERT_EQ(divisors.size(), 8u);
  EXPECT_EQ(divisors[0], 1);
  const double turns = 32 * std::pow(1e4, -0.125) / (2 * std::numbers::pi), kept = (turns - 1) / 3;
  EXPECT_NEAR(divisors[1], 1 / ((1 - kept) / 8 + kept), 1e-5);
  for (size_t i = 2; i < 8; ++i) EXPECT_FLOAT_EQ(divisors[i], 8) << i;
  const auto known = [](const auto& pair) { return pair.first == "llama.rope.scaling.type"; };
  EXPECT_TRUE(std::none_of(in.pairs().begin(), in.pairs().end(), known));
  fs::remove_all(path("llama3"));
  config.qk_norm = QkNorm::head;  // of a qwen3, llama.cpp reads no such tensor
  gguf_refused(config, ExportWeights::float32, "scaled rotary positions (rope_factor)");
}

// Row i of the first half of a head is row 2i there, row i of the second half row 2i + 1.
TEST_F(GgufTest, RowsOfQueriesAndKeysAreInterleaved) {
  const auto model = model_of(gguf_config(1, true));  // 2 heads of 16 rows, 1 of keys
  gguf(*model, ExportWeights::float32, "rows");
  GgufReader in = reader("rows");
  const Tensor& qkv =
      model->parameters().value(model->parameters().find("decoder.1.attention.qkv.weight"));
  const auto row_of = [&](const std::string& name, int64_t row) {
    for (size_t i = 0; i < in.tensors().size(); ++i) {
      if (in.tensors()[i].name != name) continue;
      const std::vector<std::byte> bytes = in.data(i);
      std::vector<float> values(32);
      std::memcpy(values.data(), bytes.data() + row * 32 * 4, 32 * 4);
      return values;
    }
    return std::vector<float>();
  };
  const auto ours = [&](int64_t row) {
    const float* from = qkv.data<float>() + row * 32;
    return std::vector<float>(from, from + 32);
  };
  EXPECT_EQ(row_of("blk.1.attn_q.weight", 0), ours(0));
  EXPECT_EQ(row_of("blk.1.attn_q.weight", 1), ours(8));
  EXPECT_EQ(row_of("blk.1.attn_q.weight", 14), ours(7));
  EXPECT_EQ(row_of("blk.1.attn_q.weight", 31), ours(31));
  EXPECT_EQ(row_of("blk.1.attn_q.weight", 19), ours(25));
  EXPECT_EQ(row_of("blk.1.attn_k.weight", 3), ours(32 + 9));
  EXPECT_EQ(row_of("blk.1.attn_v.weight", 3), ours(48 + 3));
}

TEST_F(GgufTest, WhatTheFormatCannotHoldIsNamed) {
  using enum ExportWeights;
  ModelConfig unigram = llama_config(0, true);
  gguf_refused(unigram, float16, "a unigram vocabulary; train a vocabulary with", tokenizer());
  ModelConfig bare = llama_config(0, true);
  bare.vocabulary = bpe_tokenizer(false).vocab_size();
  gguf_refused(bare, float16, "without byte tokens; train a vocabulary with", bpe_tokenizer(false));
  ModelConfig narrow = gguf_config(0, true);
  narrow.width = 48;
  gguf_refused(narrow, q8_0, "--dim-emb 48 with --weights q8_0, whose blocks have 32");
  narrow = gguf_config(0, true);
  narrow.ffn_width = 80;
  gguf_refused(narrow, q4_0, "--transformer-dim-ffn 80 with --weights q4_0");
  ModelConfig plain = config_of(Architecture::decoder_lm, true);
  plain.vocabulary = bpe_tokenizer().vocab_size();
  gguf_refused(plain, float16,
               "GGUF cannot express activation relu, it has gelu; use hf-gpt2 or ctranslate2");
  ModelConfig encoder = config_of(Architecture::encoder_decoder, true);
  encoder.vocabulary = bpe_tokenizer().vocab_size();
  gguf_refused(encoder, float16,
               "layer norm (--task llama trains RMS norm); use hf-pegasus or ctr");
  encoder.pre_norm = false;
  gguf_refused(encoder, float16,
               "layer norm (--task llama trains RMS norm); use hf-marian or ctra");
  gguf_refused(gguf_config(0, true), int8,
               "gguf cannot express weights of the type int8 (--weights), it has float16, float32, "
               "q8_0, q4_0");
  narrow = gguf_config(0, true);  // any width without blocks
  narrow.width = 24;
  narrow.ffn_width = 20;
  EXPECT_GT(gguf(*model_of(narrow), float16, "narrow"), 0);
}

// Byte-level BPE with the pattern of Llama 3.
class GgufByteBpeTest : public GgufTest {
 protected:
  static constexpr const char* kLlama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

  static FileJson llama3() {
    const std::vector<std::string> lines(20, "der Hund sieht einen Baum, die Katze den Stein");
    TokenizerTrainOptions options;
    options.kind = "byte-bpe";
    options.vocab_size = 290;
    options.hard_vocab_limit = false;
    FileJson json = FileJson::parse(
        Tokenizer::train(std::span<const std::string>(lines), options).serialized());
    const FileJson split = {{"type", "Split"},
                            {"pattern", {{"Regex", kLlama3}}},
                            {"behavior", "Isolated"},
                            {"invert", false}};
    const FileJson bytes = {{"type", "ByteLevel"},
                            {"add_prefix_space", false},
                            {"trim_offsets", true},
                            {"use_regex", false}};
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
    json["model"]["ignore_merges"] = true;
    FileJson added = json["added_tokens"][0];
    added["id"] = 292;
    added["content"] = "<tool>";
    added["special"] = false;
    json["added_tokens"].push_back(added);
    return json;
  }
  double byte_bpe(const FileJson& json, const std::string& name, bool begins = false) {
    const Tokenizer tokenizer = Tokenizer::from_bytes(json.dump());
    ModelConfig config = gguf_config(1, true);
    config.vocabulary = tokenizer.vocab_size();
    const auto model = model_of(config);
    VocabularyTokens tokens = tokenizer.tokens();
    tokens.frame.begin = begins;
    model->set_tokens(tokens);
    return gguf(*model, ExportWeights::float32, name, tokenizer);
  }
  template <class T>
  T value(const GgufReader& in, const std::string& key) {
    for (const auto& [name, found] : in.pairs())
      if (name == "tokenizer.ggml." + key) return std::get<T>(found);
    ADD_FAILURE() << key;
    return {};
  }
};

TEST_F(GgufByteBpeTest, ItsTokensAndMergesAreInTheFile) {
  const FileJson json = llama3();
  EXPECT_EQ(byte_bpe(json, "llama3", true), 0);
  const GgufReader in = reader("llama3");
  EXPECT_EQ(value<std::string>(in, "model"), "gpt2");
  EXPECT_EQ(value<std::string>(in, "pre"), "llama-bpe");
  EXPECT_TRUE(value<bool>(in, "add_bos_token"));
  EXPECT_FALSE(value<bool>(in, "add_space_prefix"));
  EXPECT_EQ(value<uint32_t>(in, "bos_token_id"), 1u);
  EXPECT_EQ(value<uint32_t>(in, "eos_token_id"), 2u);
  EXPECT_EQ(value<uint32_t>(in, "padding_token_id"), 3u);
  const auto tokens = value<std::vector<std::string>>(in, "tokens");
  const auto types = value<std::vector<int32_t>>(in, "token_type");
  ASSERT_EQ(tokens.size(), 293u);
  ASSERT_EQ(types.size(), 293u);
  for (const auto& [text, id] : json["model"]["vocab"].items()) {
    EXPECT_EQ(tokens[id.get<size_t>()], text);
    EXPECT_EQ(types[id.get<size_t>()], id < 4 ? 3 : 1) << text;
  }
  EXPECT_EQ(tokens[292], "<tool>");
  EXPECT_EQ(types[292], 4);
  EXPECT_EQ(types[291], 5);  // an id without a token
  const auto merges = value<std::vector<std::string>>(in, "merges");
  ASSERT_EQ(merges.size(), json["model"]["merges"].size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const FileJson& pair = json["model"]["merges"][i];
    EXPECT_EQ(merges[i], pair[0].get<std::string>() + " " + pair[1].get<std::string>());
  }
}

TEST_F(GgufByteBpeTest, ItsPatternHasAName) {
  const auto pre_of = [&](const FileJson& json, const std::string& name) {
    EXPECT_EQ(byte_bpe(json, name), 0);
    EXPECT_FALSE(value<bool>(reader(name), "add_bos_token"));
    return value<std::string>(reader(name), "pre");
  };
  FileJson json = llama3();
  FileJson& steps = json["pre_tokenizer"]["pretokenizers"];
  // Every character is in a match: what is left without the others is the same.
  steps[0]["behavior"] = "Removed";
  steps[0]["invert"] = true;
  EXPECT_EQ(pre_of(json, "inverted"), "llama-bpe");
  // Merges make every token, so that it is the same with and without them.
  json["model"]["ignore_merges"] = false;
  EXPECT_EQ(pre_of(json, "falcon3"), "llama-bpe");
  std::string pattern = kLlama3;
  pattern.replace(pattern.find("{1,3}"), 5, "");
  steps[0]["pattern"]["Regex"] = pattern;
  json["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(pre_of(json, "qwen"), "qwen2");
  json["normalizer"] = nullptr;
  steps.erase(0);
  steps[0]["use_regex"] = true;
  EXPECT_EQ(pre_of(json, "gpt2"), "gpt-2");
  steps.insert(steps.begin(), FileJson{{"type", "Digits"}, {"individual_digits", true}});
  EXPECT_EQ(pre_of(json, "smollm"), "smollm");
}

TEST_F(GgufByteBpeTest, WhatLlamaCppReadsOtherwiseIsRefused) {
  const auto refused_with = [&](const char* text, const std::function<void(FileJson&)>& change) {
    FileJson json = llama3();
    change(json);
    expect_error(ErrorCode::unsupported, text, [&] { byte_bpe(json, "x"); });
    EXPECT_TRUE(fs::is_empty(folder_.path())) << text;
  };
  const auto step = [](FileJson& json, size_t i) -> FileJson& {
    return json["pre_tokenizer"]["pretokenizers"][i];
  };
  const char* unnamed = "pre_tokenizer is none of the patterns that have a name there (gpt-2, ";
  refused_with(unnamed, [&](FileJson& json) { step(json, 0)["pattern"]["Regex"] = "\\s+|\\S+"; });
  refused_with(unnamed, [&](FileJson& json) { step(json, 0)["behavior"] = "MergedWithNext"; });
  refused_with(unnamed, [&](FileJson& json) { step(json, 1)["add_prefix_space"] = true; });
  refused_with(unnamed, [&](FileJson& json) { step(json, 1)["use_regex"] = true; });
  refused_with("llama-bpe and model: ignore_merges false, whose merges do not make the token 'zz'",
               [](FileJson& json) {
                 json["model"]["ignore_merges"] = false;
                 json["model"]["vocab"]["zz"] = 291;
               });
  refused_with("the pattern gpt-2 and model: ignore_merges true, whose merges do not make",
               [&](FileJson& json) {
                 json["pre_tokenizer"]["pretokenizers"].erase(0);
                 step(json, 0)["use_regex"] = true;
                 json["model"]["vocab"]["zz"] = 291;
               });
  refused_with("normalizer: NFKC", [](FileJson& json) { json["normalizer"] = {{"type", "NFKC"}}; });
  for (const char* key : {"lstrip", "rstrip", "single_word"})
    refused_with(key, [&](FileJson& json) { json["added_tokens"][0][key] = true; });
}

TEST_F(GgufTest, AnotherFileIsNotReadBack) {
  const auto model = model_of(gguf_config(1, true));
  gguf(*model, ExportWeights::q8_0, "file");
  const interop::HostModel host = interop::copy_to_host(*context_, *model);
  const fs::path file = path("file") / "model.gguf";
  const std::string whole = read_text_file(file, 1 << 24);
  const auto read = [&] {
    interop::read_back_gguf(host, bpe_tokenizer(), ExportWeights::q8_0, path("file"));
  };
  EXPECT_NO_THROW(read());
  const auto changed = [&](const std::string& from, const std::string& to, const char* text) {
    std::string bytes = whole;
    bytes.replace(bytes.find(from), from.size(), to);
    write_file_atomically(file, bytes);
    expect_error(ErrorCode::corrupt_file, text, read);
  };
  changed("GGUF", "GGUX", "this is no GGUF file");
  changed("llama.block_count", "llama.block_couns", "the metadata are others");
  changed("ffn_up", "ffn_uq", "blk.0.ffn_up.weight is another tensor");
  std::string bytes = whole;
  bytes[bytes.size() - 40] = static_cast<char>(bytes[bytes.size() - 40] ^ 0x40);
  write_file_atomically(file, bytes);
  expect_error(ErrorCode::corrupt_file, "was read as", read);
}

}  // namespace
}  // namespace trafo
