// Llama directories: what is written comes back with the same bits, what other versions write is
// read, what models here are not is named.
#include "tests/interop/interop_support.h"

namespace trafo {
namespace {

using namespace testing;

TEST_F(InteropTest, LlamaComesBackBitForBit) {
  for (const int64_t kv_heads : {0, 1}) {
    for (const bool tied : {false, true}) {
      ModelConfig config = llama_config(kv_heads, tied);
      config.rope_theta = 5e5;
      config.norm_epsilon = 1e-6;
      const auto model = model_of(config);
      const std::string name = concat("llama-", kv_heads, tied);
      EXPECT_EQ(exported(*model, ExportFormat::hf_llama, name), 0);
      const ImportedModel imported = import_model(*context_, path(name));
      EXPECT_EQ(imported.model->config(), config);
      EXPECT_EQ(weight_bytes(*context_, *imported.model), weight_bytes(*context_, *model));
      ASSERT_TRUE(imported.tokenizer.has_value());
      EXPECT_EQ(imported.tokenizer->serialized(), tokenizer().serialized());
    }
  }
}

// Where other programs look for a projection's rows.
TEST_F(InteropTest, LlamaProjectionsAreRowsOfOurs) {
  const ModelConfig config = llama_config(1, true);
  const auto model = model_of(config);
  exported(*model, ExportFormat::hf_llama, "rows");
  const auto reader = SafetensorsReader::open(path("rows") / "model.safetensors");
  const ParameterStore& parameters = model->parameters();
  const auto expect_rows = [&](const std::string& name, const std::string& ours, int64_t first) {
    const TensorInfo* info = reader.find(name);
    ASSERT_NE(info, nullptr) << name;
    std::vector<std::byte> stored(info->bytes);
    reader.read(*info, stored);
    const Tensor& value = parameters.value(parameters.find(ours));
    EXPECT_EQ(std::memcmp(stored.data(), value.data<float>() + first * value.dim(1), info->bytes),
              0)
        << name;
  };
  const std::string layer = "model.layers.1.", qkv = "decoder.1.attention.qkv.weight";
  expect_rows(layer + "self_attn.q_proj.weight", qkv, 0);
  expect_rows(layer + "self_attn.k_proj.weight", qkv, 16);
  expect_rows(layer + "self_attn.v_proj.weight", qkv, 24);
  expect_rows(layer + "mlp.gate_proj.weight", "decoder.1.ffn.gate_up.weight", 0);
  expect_rows(layer + "mlp.up_proj.weight", "decoder.1.ffn.gate_up.weight", 32);
}

TEST_F(InteropTest, LlamaDirectoriesOfOtherVersions) {
  const ModelConfig config = llama_config(0, false);
  const auto model = model_of(config);
  const auto config_of_file = [&](const std::function<void(FileJson&)>& change) {
    const fs::path directory = path("versions");
    fs::remove_all(directory);
    exported(*model, ExportFormat::hf_llama, "versions");
    edit_json(directory / "config.json", change);
    return import_model(*context_, directory).model->config();
  };
  EXPECT_EQ(config_of_file([](FileJson& json) {
              json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 7e4}};
              json.erase("rope_theta");
            }).rope_theta,
            7e4);
  EXPECT_EQ(config_of_file([](FileJson& json) {
              json["rope_scaling"] = {{"rope_type", "default"}, {"rope_theta", 6e4}};
            }).rope_theta,
            6e4);
  EXPECT_EQ(config_of_file([](FileJson& json) {
              json.erase("num_key_value_heads");
              json.erase("head_dim");
              json.erase("rope_scaling");
              json.erase("attention_bias");
              json.erase("mlp_bias");
            }),
            config);
}

TEST_F(InteropTest, LlamasThatModelsHereAreNotAreNamed) {
  const auto model = model_of(llama_config(1, true));
  const auto config = [&](ErrorCode code, const char* text, const char* field,
                          const FileJson& value) {
    broken(*model, ExportFormat::hf_llama, code, text, [&](const fs::path& directory) {
      edit_json(directory / "config.json", [&](FileJson& json) { json[field] = value; });
    });
  };
  config(ErrorCode::corrupt_file, "lacks the tensor model.layers.0.self_attn.q_proj.bias",
         "attention_bias", true);
  config(ErrorCode::corrupt_file, "lacks the tensor model.layers.0.mlp.gate_proj.bias", "mlp_bias",
         true);
  config(ErrorCode::unsupported, "rope_type is longrope", "rope_scaling",
         {{"rope_type", "longrope"}});
  config(ErrorCode::unsupported, "type is dynamic", "rope_scaling",
         {{"type", "dynamic"}, {"factor", 2}});
  config(ErrorCode::corrupt_file, "rope_scaling has no factor", "rope_scaling",
         {{"rope_type", "linear"}});
  config(ErrorCode::corrupt_file, "factor must be at least 1", "rope_scaling",
         {{"rope_type", "linear"}, {"factor", 0.5}});
  config(ErrorCode::unsupported, "'low_freq_factor' is not known", "rope_scaling",
         {{"rope_type", "linear"}, {"factor", 2}, {"low_freq_factor", 1}});
  const FileJson stretched = {{"rope_type", "llama3"}, {"factor", 8}, {"high_freq_factor", 4}};
  config(ErrorCode::corrupt_file, "has no low_freq_factor", "rope_scaling", stretched);
  FileJson other = stretched;
  other["low_freq_factor"] = 4;
  config(ErrorCode::corrupt_file, "low_freq_factor must be", "rope_scaling", other);
  other["low_freq_factor"] = 1;
  config(ErrorCode::corrupt_file, "has no original_max_position_embeddings", "rope_scaling", other);
  config(ErrorCode::unsupported, "rope_scaling: 'factor' is not known", "rope_scaling",
         {{"factor", 2}});
  config(ErrorCode::unsupported, "partial_rotary_factor is 0.25", "partial_rotary_factor", 0.25);
  config(ErrorCode::unsupported, "quantization_config is given", "quantization_config",
         {{"quant_method", "awq"}});
  config(ErrorCode::unsupported, "partial_rotary_factor is 0.5", "rope_parameters",
         {{"partial_rotary_factor", 0.5}});
  config(ErrorCode::corrupt_file, "q_proj.weight has the shape", "head_dim", 16);
  config(ErrorCode::corrupt_file, "heads of an even width", "head_dim", 7);
  config(ErrorCode::unsupported, "model_type is gemma", "model_type", "gemma");
  config(ErrorCode::corrupt_file, "activation must be silu with the feed-forward swiglu",
         "hidden_act", "relu");
  config(ErrorCode::corrupt_file, "num_key_value_heads must be", "num_key_value_heads", 3);
  config(ErrorCode::corrupt_file, "embed_tokens.weight has the shape", "hidden_size", 24);
  config(ErrorCode::corrupt_file, "k_proj.weight has the shape", "num_key_value_heads", 2);
  config(ErrorCode::corrupt_file, "lacks the tensor", "num_hidden_layers", 3);
  config(ErrorCode::corrupt_file, "has the tensor", "num_hidden_layers", 1);
  config(ErrorCode::corrupt_file, "lacks the tensor lm_head.weight", "tie_word_embeddings", false);
  config(ErrorCode::corrupt_file, "rope_theta must be above 0", "rope_theta", -1);
  config(ErrorCode::corrupt_file, "rope_parameters must be an object", "rope_parameters", 3);
}

}  // namespace
}  // namespace trafo
