// Classes of Llama's form in directories of transformers: keys of their configurations, and kinds
// of models that are refused.
#include "tests/interop/import_support.h"

namespace trafo {
namespace {

using namespace testing;

TEST_F(ImportTest, Qwen3) {
  ModelConfig config = llama_config(1, true);
  config.qk_norm = QkNorm::head;
  const fs::path narrow = llama("narrow", config);
  EXPECT_EQ(imported(narrow).model->config(), config);
  EXPECT_EQ(weight_bytes(*context_, *imported(narrow).model), weight_bytes(*context_, *model_));
  for (const bool biases : {false, true})
    for (const bool tied : {false, true}) {
      config.head_width = 12;
      config.tied_embeddings = tied;
      config.qkv_biases = config.attention_output_bias = biases;
      const fs::path directory = llama(concat("qwen3", biases, tied), config);
      EXPECT_EQ(imported(directory).model->config(), config);
      EXPECT_EQ(weight_bytes(*context_, *imported(directory).model),
                weight_bytes(*context_, *model_));
    }
  const fs::path directory = path("qwen311");
  edit_config(directory, [](FileJson& json) {
    EXPECT_EQ(json["model_type"], "qwen3");
    EXPECT_EQ(json["architectures"][0], "Qwen3ForCausalLM");
    EXPECT_EQ(json["transformers_version"], "4.57.3");  // before which a tokenizer may be doubted
    EXPECT_EQ(json["attention_bias"], true);
    EXPECT_FALSE(json.contains("mlp_bias"));
    json["layer_types"] = {"full_attention", "full_attention"};
    json["sliding_window"] = 4;  // not used
  });
  EXPECT_EQ(imported(directory).model->config(), config);
  const auto refused = [&](const char* key, const FileJson& value, const char* text,
                           ErrorCode code = ErrorCode::unsupported) {
    const std::string before = read_text_file(directory / "config.json", 1 << 20);
    edit_config(directory, [&](FileJson& json) { json[key] = value; });
    refused_import(directory, code, text);
    write_file_atomically(directory / "config.json", before);
  };
  refused("layer_types", {"full_attention", "sliding_attention"}, "layer_types has sliding");
  refused("layer_types", {"full_attention"}, "layer_types has 1 kinds, there are 2 layers",
          ErrorCode::corrupt_file);
  refused("layer_types", "full_attention", "layer_types must be a list", ErrorCode::corrupt_file);
  refused("layer_types", {1}, "layer_types must be a list", ErrorCode::corrupt_file);
  refused("mlp_bias", true, "mlp_bias");
  // Without head_dim, transformers takes 128.
  refused("head_dim", nullptr, "has the shape", ErrorCode::corrupt_file);
  edit_config(directory, [](FileJson& json) { json.erase("sliding_window"); });
  refused("model_type", "llama", "norm", ErrorCode::corrupt_file);  // tensors that Llama lacks
  refused("model_type", "qwen4",
          "model_type is qwen4; marian, pegasus, m2m_100, mbart, bart, t5, mt5, gpt2, llama, "
          "mistral, qwen2, qwen3, phi3, "
          "hunyuan_v1_dense, smollm3, granite, olmo2, gemma2, gemma3_text, ministral3, bert, "
          "roberta, xlm-roberta and modernbert can be");
}

TEST_F(ImportTest, WindowsOfMistralAndQwen) {
  ModelConfig config = mistral_of(llama_config(1, true), 8, 1);
  const fs::path mistral = llama("mistral", config);
  EXPECT_EQ(imported(mistral).model->config(), config);
  edit_config(mistral, [](FileJson& json) {
    EXPECT_EQ(json["model_type"], "mistral");
    EXPECT_EQ(json["sliding_window"], 8);
    EXPECT_FALSE(json.contains("attention_bias"));
    json.erase("sliding_window");  // 4096 then, more than there are positions
  });
  EXPECT_EQ(imported(mistral).model->config().sliding_window, 0);
  for (const ExportFormat format :
       {ExportFormat::ctranslate2, ExportFormat::onnx, ExportFormat::gguf})
    expect_error(ErrorCode::unsupported, "cannot express a window of attention (sliding_window 8)",
                 [&] { exported(*model_, format, "none"); });

  config = llama_config(1, true);
  config.qk_norm = QkNorm::head;
  config.sliding_window = 5;
  for (const int64_t interval : {0, 2}) {
    config.full_attention_interval = interval;
    const fs::path directory = llama(concat("qwen3-", interval), config);
    EXPECT_EQ(imported(directory).model->config(), config);
    edit_config(directory, [&](FileJson& json) {
      EXPECT_EQ(json["model_type"], "qwen3");
      EXPECT_EQ(json["use_sliding_window"], true);
      EXPECT_EQ(json["layer_types"][1], interval == 0 ? "sliding_attention" : "full_attention");
      json["layer_types"] = {"full_attention", "sliding_attention"};
    });
    refused_import(directory, ErrorCode::unsupported, "layer_types must have layers without");
    edit_config(directory, [](FileJson& json) { json["layer_types"] = {"sliding_attention"}; });
    refused_import(directory, ErrorCode::corrupt_file, "layer_types has 1 kinds, there are 2");
  }
}

TEST_F(ImportTest, Gemma3) {
  ModelConfig config = gemma3_of(llama_config(1, true), 6, 1);
  config.attention_scale = std::pow(10.0, -0.5);
  const fs::path directory = llama("gemma3", config);
  EXPECT_EQ(imported(directory).model->config(), config);
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), weight_bytes(*context_, *model_));
  const std::string written = read_text_file(directory / "config.json", 1 << 20);
  const auto with = [&](const std::function<void(FileJson&)>& change) {
    write_file_atomically(directory / "config.json", written);
    edit_config(directory, change);
  };
  with([](FileJson& json) {
    EXPECT_EQ(json["model_type"], "gemma3_text");
    EXPECT_EQ(json["query_pre_attn_scalar"], 10);
    EXPECT_EQ(json["hidden_activation"], "gelu_pytorch_tanh");
    EXPECT_EQ(json["rope_local_base_freq"], 100);
    json.erase("layer_types");
    json["sliding_window_pattern"] = 2;
    json["rope_parameters"] = {
        {"full_attention", {{"rope_type", "linear"}, {"rope_theta", 1e6}, {"factor", 8}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 100}}}};
    for (const char* key : {"rope_theta", "rope_scaling", "rope_local_base_freq"}) json.erase(key);
  });
  EXPECT_EQ(imported(directory).model->config(), config);
  const auto refused = [&](const char* key, const FileJson& value, const char* text,
                           ErrorCode code = ErrorCode::unsupported) {
    with([&](FileJson& json) { json[key] = value; });
    refused_import(directory, code, text);
  };
  with([](FileJson& json) {
    EXPECT_TRUE(json["final_logit_softcapping"].is_null());
    json["final_logit_softcapping"] = 30;
  });
  ModelConfig capped = config;
  capped.logits_soft_cap = 30;
  EXPECT_EQ(imported(directory).model->config(), capped);
  refused("attn_logit_softcapping", 50, "scores of this model_type have no soft cap");
  refused("final_logit_softcapping", 0, "final_logit_softcapping must be above 0",
          ErrorCode::corrupt_file);
  refused("use_bidirectional_attention", true, "use_bidirectional_attention");
  refused("sliding_window", nullptr, "sliding_window is null");
  refused("layer_types", {"full_attention", "sliding_attention"}, "layer_types must have layers");
  refused("hidden_activation", "silu", "activation must be gelu", ErrorCode::corrupt_file);
  refused("query_pre_attn_scalar", 0, "query_pre_attn_scalar must be above 0",
          ErrorCode::corrupt_file);
  refused("rope_parameters", FileJson::object(), "rope_scaling is given");
  with([](FileJson& json) {
    json.erase("rope_scaling");
    json["rope_parameters"] = {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2}}}};
  });
  refused_import(directory, ErrorCode::unsupported, "rope_type is linear; there is default");
  with([](FileJson& json) {
    json.erase("rope_scaling");
    json["rope_parameters"] = {{"rope_type", "default"}};
  });
  refused_import(directory, ErrorCode::unsupported, "rope_type");
  // The usual pattern has its first layer without a window after the last one here.
  with([](FileJson& json) {
    json.erase("layer_types");
    json.erase("query_pre_attn_scalar");
  });
  ModelConfig usual = config;
  usual.full_attention_interval = 0;
  usual.attention_scale = 1.0 / 16;
  EXPECT_EQ(imported(directory).model->config(), usual);

  capped.attention_soft_cap = 50;
  expect_error(ErrorCode::unsupported, "cannot express attention_soft_cap 50",
               [&] { exported(*model_of(capped), ExportFormat::hf_llama, "capped"); });
  config.attention_scale = 0.3;
  expect_error(ErrorCode::unsupported, "attention_scale 0.3",
               [&] { exported(*model_of(config), ExportFormat::hf_llama, "scale"); });
  config.attention_scale = 0;
  config.rope_local_theta = 0;
  expect_error(ErrorCode::unsupported, "no rope_local_theta",
               [&] { exported(*model_of(config), ExportFormat::hf_llama, "local"); });
  config.embedding_scale = 3;
  expect_error(ErrorCode::unsupported, "embedding_scale 3",
               [&] { exported(*model_of(config), ExportFormat::hf_llama, "embeddings"); });
}

TEST_F(ImportTest, Gemma2) {
  ModelConfig config = gemma2_of(llama_config(1, true), 6, 1);
  config.attention_scale = std::pow(10.0, -0.5);
  const fs::path directory = llama("gemma2", config);
  EXPECT_EQ(imported(directory).model->config(), config);
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), weight_bytes(*context_, *model_));
  const std::string written = read_text_file(directory / "config.json", 1 << 20);
  const auto with = [&](const std::function<void(FileJson&)>& change) {
    write_file_atomically(directory / "config.json", written);
    edit_config(directory, change);
  };
  with([](FileJson& json) {
    EXPECT_EQ(json["architectures"][0], "Gemma2ForCausalLM");
    EXPECT_EQ(json["model_type"], "gemma2");
    EXPECT_EQ(json["query_pre_attn_scalar"], 10);
    EXPECT_EQ(json["attn_logit_softcapping"], 0.5);
    EXPECT_EQ(json["final_logit_softcapping"], 1.5);
    EXPECT_FALSE(json.contains("rope_local_base_freq"));
    // The class has every second layer without a window, and reads no pattern.
    json.erase("layer_types");
    json["sliding_window_pattern"] = 3;
  });
  EXPECT_EQ(imported(directory).model->config(), config);
  with([](FileJson& json) {
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) json.erase(key);
  });
  ModelConfig other = config;
  other.attention_soft_cap = 50;
  other.logits_soft_cap = 30;
  EXPECT_EQ(imported(directory).model->config(), other);
  with([](FileJson& json) {
    json["attn_logit_softcapping"] = nullptr;
    json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}};
  });
  other = config;
  other.attention_soft_cap = 0;
  other.rope_factor = 2;
  EXPECT_EQ(imported(directory).model->config(), other);
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
    for (const double cap : {0.0, -50.0}) {
      with([&](FileJson& json) { json[key] = cap; });
      refused_import(directory, ErrorCode::corrupt_file, concat(key, " must be above 0, or null"));
    }
  for (const ExportFormat format : {ExportFormat::ctranslate2, ExportFormat::onnx})
    expect_error(ErrorCode::unsupported, "cannot express",
                 [&] { exported(*model_, format, "none"); });
  ModelConfig capped = llama_config(1, true);  // no class has the cap alone
  capped.logits_soft_cap = 5;
  expect_error(ErrorCode::unsupported, "logits_soft_cap 5",
               [&] { exported(*model_of(capped), ExportFormat::hf_llama, "capped"); });
}

TEST_F(ImportTest, Hunyuan) {
  ModelConfig config = llama_config(1, true);
  config.qk_norm = QkNorm::head_after_rotary;
  config.head_width = 12;
  const fs::path directory = llama("hunyuan", config);
  EXPECT_EQ(imported(directory).model->config(), config);
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), weight_bytes(*context_, *model_));
  // As the files of Tencent have it: a fixed alpha is another theta.
  edit_config(directory, [](FileJson& json) {
    EXPECT_EQ(json["model_type"], "hunyuan_v1_dense");
    json.erase("rms_norm_eps");
    json["rope_theta"] = 100.0;
    json["rope_scaling"] = {{"type", "dynamic"}, {"alpha", 8.0},  {"factor", 1.0},
                            {"beta_fast", 32},   {"mscale", 1.0}, {"mscale_all_dim", 1.0}};
  });
  ModelConfig stretched = config;
  stretched.rope_theta = 100.0 * std::pow(8.0, 12.0 / 10.0);
  stretched.norm_epsilon = 1e-5;
  EXPECT_EQ(imported(directory).model->config(), stretched);
  edit_config(directory, [](FileJson& json) { json["rope_scaling"]["alpha"] = -1; });
  refused_import(directory, ErrorCode::corrupt_file, "alpha must be above 0");
  edit_config(directory, [](FileJson& json) { json["rope_scaling"].erase("alpha"); });
  refused_import(directory, ErrorCode::unsupported, "type is dynamic");
}

TEST_F(ImportTest, LayersWithoutRotaryPositionsOfSmolLm3) {
  ModelConfig config = llama_config(1, false);
  config.no_rope_interval = 2;
  config.qkv_biases = config.attention_output_bias = config.ffn_biases = true;
  const fs::path directory = llama("smollm3", config);
  EXPECT_EQ(imported(directory).model->config(), config);
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), weight_bytes(*context_, *model_));
  const std::string written = read_text_file(directory / "config.json", 1 << 20);
  const auto with = [&](const std::function<void(FileJson&)>& change) {
    write_file_atomically(directory / "config.json", written);
    edit_config(directory, change);
  };
  const auto interval_of = [&](const std::function<void(FileJson&)>& change) {
    with(change);
    return imported(directory).model->config().no_rope_interval;
  };
  with([](FileJson& json) {
    EXPECT_EQ(json["model_type"], "smollm3");
    EXPECT_EQ(json["no_rope_layers"], (FileJson{1, 0}));
    EXPECT_EQ(json["no_rope_layer_interval"], 2);
  });
  EXPECT_EQ(interval_of([](FileJson& json) { json["no_rope_layers"] = {0, 0}; }), 1);
  EXPECT_EQ(interval_of([](FileJson& json) { json["no_rope_layers"] = {1, 1}; }), 0);
  EXPECT_EQ(interval_of([](FileJson& json) { json.erase("no_rope_layers"); }), 2);
  EXPECT_EQ(interval_of([](FileJson& json) {
              json.erase("no_rope_layers");
              json.erase("no_rope_layer_interval");
            }),
            4);
  with([](FileJson& json) { json["no_rope_layers"] = {0, 1}; });
  refused_import(directory, ErrorCode::unsupported, "no_rope_layers must have its zeros at equal");
  with([](FileJson& json) { json["no_rope_layers"] = {1, 0, 1}; });
  refused_import(directory, ErrorCode::corrupt_file, "no_rope_layers has 3 numbers");
  // Defaults of the class: tied, and another theta.
  with([](FileJson& json) { json.erase("tie_word_embeddings"); });
  refused_import(directory, ErrorCode::corrupt_file, "lm_head.weight");
  with([](FileJson& json) { json.erase("rope_theta"); });
  EXPECT_EQ(imported(directory).model->config().rope_theta, 2e6);
}

TEST_F(ImportTest, FactorsOfGranite) {
  ModelConfig config = llama_config(1, true);
  config.embedding_scale = 12;
  config.attention_scale = 0.015625;
  config.residual_scale = 0.22;
  config.logits_divisor = 8;
  const fs::path directory = llama("granite", config);
  EXPECT_EQ(imported(directory).model->config(), config);
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), weight_bytes(*context_, *model_));
  constexpr const char* kFactors[] = {"embedding_multiplier", "attention_multiplier",
                                      "residual_multiplier", "logits_scaling"};
  edit_config(directory, [&](FileJson& json) {
    EXPECT_EQ(json["model_type"], "granite");
    for (const char* key : kFactors) {
      EXPECT_TRUE(json.contains(key)) << key;
      json.erase(key);  // 1 then, also of the scores
    }
  });
  ModelConfig plain = llama_config(1, true);
  plain.attention_scale = 1;
  EXPECT_EQ(imported(directory).model->config(), plain);
  for (const char* key : kFactors) {
    edit_config(directory, [&](FileJson& json) { json[key] = -1; });
    refused_import(directory, ErrorCode::unsupported, concat(key, " is -1, it must be above 0"));
    edit_config(directory, [&](FileJson& json) { json.erase(key); });
  }
}

TEST_F(ImportTest, NormsOfOlmo2) {
  ModelConfig config = llama_config(1, false);
  config.norm_outputs = true;
  config.qk_norm = QkNorm::whole;
  const fs::path directory = llama("olmo2", config);
  EXPECT_EQ(imported(directory).model->config(), config);
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), weight_bytes(*context_, *model_));
  edit_config(directory, [](FileJson& json) {
    EXPECT_EQ(json["model_type"], "olmo2");
    json["mlp_bias"] = true;
  });
  refused_import(directory, ErrorCode::unsupported, "mlp_bias");
}

// Keys that transformers reads of every class, in masks and caches, and kinds that are refused.
TEST_F(ImportTest, KeysOfEveryClass) {
  const fs::path directory = llama("llama");
  const std::string written = read_text_file(directory / "config.json", 1 << 20);
  const auto refused = [&](const char* key, const FileJson& value, const std::string& text) {
    edit_config(directory, [&](FileJson& json) { json[key] = value; });
    refused_import(directory, ErrorCode::unsupported, text);
    write_file_atomically(directory / "config.json", written);
  };
  refused("is_causal", false, "is_causal is false");
  refused("is_causal", nullptr, "is_causal is false");
  refused("sliding_window", 4, "sliding_window is 4, below");
  refused("layer_types", {"full_attention", "sliding_attention"}, "layer_types has sliding");
  refused("attention_chunk_size", 4, "attention_chunk_size is given");
  refused("per_layer_config", FileJson::object(), "per_layer_config is given");
  refused("kv_sharing_modes", {"own", "reuse"}, "kv_sharing_modes is given");
  for (const auto& [type, kind] : {std::pair{"mixtral", "mixtures of experts are not supported"},
                                   {"qwen3_moe", "mixtures of experts are not supported"},
                                   {"gpt_oss", "mixtures of experts are not supported"},
                                   {"qwen3_5", "gated delta nets are not supported"},
                                   {"lfm2", "short convolutions are not supported"},
                                   {"gemma", "scaled norms of inputs alone are not supported"}})
    refused("model_type", type, kind);
}

TEST_F(ImportTest, SecondNamesOfGpt2) {
  const auto model = model_of(config_of(Architecture::decoder_lm, true));
  exported(*model, ExportFormat::hf_gpt2, "gpt2");
  const fs::path directory = path("gpt2");
  for (const char* key :
       {"hidden_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers"}) {
    const std::string written = read_text_file(directory / "config.json", 1 << 20);
    edit_config(directory, [&](FileJson& json) { json[key] = 1; });
    refused_import(directory, ErrorCode::unsupported, concat(key, " is another name of n_"));
    write_file_atomically(directory / "config.json", written);
  }
  edit_config(directory, [](FileJson& json) { json["hidden_size"] = json["n_embd"]; });
  EXPECT_EQ(imported(directory).model->config().width, model->config().width);
  edit_config(directory, [](FileJson& json) { json["sliding_window"] = 4096; });
  refused_import(directory, ErrorCode::unsupported, "sliding_window is given");
}

TEST_F(ImportTest, JoinedMatricesOfPhi3) {
  for (const bool tied : {false, true}) {
    const fs::path directory = llama(concat("phi", tied), llama_config(1, tied));
    const ImportedModel whole = imported(directory);
    edit_config(directory, [](FileJson& json) {
      json["model_type"] = "phi3";
      json["sliding_window"] = nullptr;
      json["original_max_position_embeddings"] = 8;  // of no effect
    });
    refused_import(directory, ErrorCode::corrupt_file, "qkv_proj");
    edit_tensors(directory, [](std::vector<Stored>& tensors) {
      std::vector<Stored> joined;
      const auto append = [&](Stored& tensor, const char* name, const std::string& to,
                              bool is_first) {
        const size_t at = tensor.name.find(name);
        if (at == std::string::npos) return false;
        if (is_first) {
          joined.push_back(tensor);
          joined.back().name.replace(at, std::strlen(name), to);
        } else {
          joined.back().shape[0] += tensor.shape[0];
          joined.back().bytes.insert(joined.back().bytes.end(), tensor.bytes.begin(),
                                     tensor.bytes.end());
        }
        return true;
      };
      for (const char* layer : {".layers.0.", ".layers.1."})
        for (const auto& [name, to, is_first] :
             {std::tuple<const char*, const char*, bool>{"q_proj", "qkv_proj", true},
              {"k_proj", "", false},
              {"v_proj", "", false},
              {"gate_proj", "gate_up_proj", true},
              {"up_proj", "", false}})
          for (Stored& tensor : tensors)
            if (contains(tensor.name, layer)) append(tensor, name, to, is_first);
      std::erase_if(tensors, [](const Stored& tensor) {
        for (const char* name : {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"})
          if (contains(tensor.name, name)) return true;
        return false;
      });
      for (Stored& tensor : joined) tensors.push_back(tensor);
    });
    EXPECT_EQ(imported(directory).model->config(), whole.model->config());
    EXPECT_EQ(weight_bytes(*context_, *imported(directory).model),
              weight_bytes(*context_, *whole.model));
    const auto refused = [&](const char* key, const FileJson& value, const char* text) {
      const std::string before = read_text_file(directory / "config.json", 1 << 20);
      edit_config(directory, [&](FileJson& json) { json[key] = value; });
      refused_import(directory, ErrorCode::unsupported, text);
      write_file_atomically(directory / "config.json", before);
    };
    edit_config(directory, [](FileJson& json) { json["sliding_window"] = 8; });
    EXPECT_EQ(imported(directory).model->config().sliding_window, 8);
    edit_config(directory, [](FileJson& json) { json["sliding_window"] = nullptr; });
    refused("rope_scaling", {{"type", "longrope"}}, "type is longrope; there is default");
    refused("rope_scaling", {{"type", "yarn"}, {"factor", 2}}, "type is yarn; there is default");
    refused("partial_rotary_factor", 0.75, "partial_rotary_factor is 0.75");
    refused("attention_bias", true, "attention_bias");
  }
}

TEST_F(ImportTest, PositionsStretchedByYarn) {
  ModelConfig config = llama_config(1, true);
  config.rope_scaling = RopeScaling::yarn;
  config.rope_factor = 4;
  config.rope_original_positions = 20;
  config.rope_low_turns = 1;
  config.rope_high_turns = 32;
  config.rope_magnitude = 1.25;
  const fs::path directory = llama("yarn", config);
  EXPECT_EQ(imported(directory).model->config(), config);
  const auto with = [&](const std::function<void(FileJson&)>& change) {
    const std::string before = read_text_file(directory / "config.json", 1 << 20);
    edit_config(directory, [&](FileJson& json) { change(json["rope_scaling"]); });
    const ModelConfig found = imported(directory).model->config();
    write_file_atomically(directory / "config.json", before);
    return found;
  };
  // The usual constants.
  ModelConfig usual = config;
  usual.rope_magnitude = 0;
  EXPECT_EQ(with([](FileJson& rope) {
              for (const char* key : {"attention_factor", "beta_fast", "beta_slow"})
                rope.erase(key);
            }),
            usual);
  EXPECT_EQ(with([](FileJson& rope) {
              rope["attention_factor"] = nullptr;
              rope["mscale"] = 0.5;  // without the other it means nothing
              rope["beta_fast"] = 0;
              rope["truncate"] = true;
            }),
            usual);
  EXPECT_NEAR(with([](FileJson& rope) {
                rope.erase("attention_factor");
                rope["mscale"] = 1.0;
                rope["mscale_all_dim"] = 0.5;
              }).rope_magnitude,
              (0.1 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1), 1e-15);
  EXPECT_EQ(with([](FileJson& rope) {
              rope.erase("original_max_position_embeddings");
            }).rope_original_positions,
            config.max_positions);
  // The file's own positions go before those of the object.
  edit_config(directory, [](FileJson& json) { json["original_max_position_embeddings"] = 24; });
  EXPECT_EQ(imported(directory).model->config().rope_original_positions, 24);

  const auto refused = [&](const char* key, const FileJson& value, ErrorCode code,
                           const char* text) {
    const std::string before = read_text_file(directory / "config.json", 1 << 20);
    edit_config(directory, [&](FileJson& json) { json["rope_scaling"][key] = value; });
    refused_import(directory, code, text);
    write_file_atomically(directory / "config.json", before);
  };
  refused("truncate", false, ErrorCode::unsupported, "truncate");
  refused("ext_factor", 1, ErrorCode::unsupported, "ext_factor");
  refused("rope_type", "dynamic", ErrorCode::unsupported,
          "rope_type is dynamic; there are default, linear, llama3 and yarn");
  refused("beta_fast", 0.5, ErrorCode::corrupt_file, "beta_slow must be above 0 and below");
  refused("attention_factor", 0, ErrorCode::corrupt_file, "attention_factor must be above 0");
  refused("factor", 0.5, ErrorCode::corrupt_file, "factor must be at least 1");
}

TEST_F(ImportTest, Ministral3) {
  ModelConfig config = llama_config(1, false);
  config.rope_scaling = RopeScaling::yarn;
  config.rope_factor = 16;
  config.rope_original_positions = 20;
  config.rope_low_turns = kYarnSlow;
  config.rope_high_turns = kYarnFast;
  config.rope_magnitude = 1;
  config.rope_query_growth = 0.1;
  config.sliding_window = 8;
  EXPECT_EQ(imported(llama("ministral3-windows", config)).model->config(), config);
  config.sliding_window = 0;
  const fs::path directory = llama("ministral3", config);
  EXPECT_EQ(imported(directory).model->config(), config);
  EXPECT_EQ(weight_bytes(*context_, *imported(directory).model), weight_bytes(*context_, *model_));
  const std::string written = read_text_file(directory / "config.json", 1 << 20);
  const auto with = [&](const std::function<void(FileJson&)>& change) {
    write_file_atomically(directory / "config.json", written);
    edit_config(directory, [&](FileJson& json) {
      // As its class writes it.
      json["rope_parameters"] = {{"type", "yarn"},
                                 {"rope_theta", json["rope_theta"]},
                                 {"factor", 16.0},
                                 {"original_max_position_embeddings", 20},
                                 {"max_position_embeddings", 262144},
                                 {"beta_fast", 32.0},
                                 {"beta_slow", 1.0},
                                 {"mscale", 1.0},
                                 {"mscale_all_dim", 1.0},
                                 {"llama_4_scaling_beta", 0.1}};
      json.erase("rope_scaling");
      json.erase("rope_theta");
      change(json);
    });
  };
  with([](FileJson& json) {
    EXPECT_EQ(json["architectures"][0], "Ministral3ForCausalLM");
    EXPECT_EQ(json["model_type"], "ministral3");
    EXPECT_FALSE(json.contains("attention_bias") || json.contains("sliding_window"));
    const FileJson again = {{"original_max_position_embeddings", 20}, {"beta", 0.1}};
    EXPECT_EQ(json["llama_4_scaling"], again);  // vLLM's
  });
  EXPECT_EQ(imported(directory).model->config(), config);
  const auto refused = [&](ErrorCode code, const char* text,
                           const std::function<void(FileJson&)>& change) {
    with(change);
    refused_import(directory, code, text);
  };
  using enum ErrorCode;
  refused(corrupt_file, "rope_parameters has no llama_4_scaling_beta",
          [](FileJson& json) { json["rope_parameters"].erase("llama_4_scaling_beta"); });
  refused(corrupt_file, "llama_4_scaling_beta must be at least 0",
          [](FileJson& json) { json["rope_parameters"]["llama_4_scaling_beta"] = -0.1; });
  for (const char* key : {"beta", "original_max_position_embeddings"})
    refused(unsupported, "llama_4_scaling has other values",
            [&](FileJson& json) { json["llama_4_scaling"][key] = 3; });
  refused(unsupported, "rope_type is default; this model_type has yarn", [](FileJson& json) {
    json["rope_parameters"] = {{"rope_type", "default"}};
  });
  refused(unsupported, "has no rope_parameters",
          [](FileJson& json) { json.erase("rope_parameters"); });
  refused(unsupported, "rope_scaling is given",
          [](FileJson& json) { json["rope_scaling"] = json["rope_parameters"]; });
  refused(unsupported, "attention_bias", [](FileJson& json) { json["attention_bias"] = true; });
  refused(unsupported, "model_type is mistral3, and images (Ministral 3 is imported from",
          [](FileJson& json) { json["model_type"] = "mistral3"; });
  // No other class has the factor, and this one has it with YaRN.
  refused(unsupported, "llama_4_scaling_beta' is not known",
          [](FileJson& json) { json["model_type"] = "mistral"; });
  for (const ExportFormat format :
       {ExportFormat::ctranslate2, ExportFormat::onnx, ExportFormat::gguf})
    expect_error(ErrorCode::unsupported, "cannot express",
                 [&] { exported(*model_, format, "none"); });
  config.rope_scaling = RopeScaling::llama3;
  config.rope_magnitude = 0;
  expect_error(ErrorCode::unsupported, "queries that grow with their positions",
               [&] { exported(*model_of(config), ExportFormat::hf_llama, "llama3"); });
}

// The same function with embeddings that are not scaled.

}  // namespace
}  // namespace trafo
