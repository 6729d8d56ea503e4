// Models for other programs: what can be written comes back with the same logits, what cannot is
// refused by the name of the setting, and what is read is not trusted.
#include <cmath>
#include <fstream>

#include "engine/formats/host_model.h"
#include "engine/formats/tensor_map.h"
#include "tests/interop/interop_support.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

using namespace testing;

TEST_F(InteropTest, WeightsComeBackBitForBit) {
  for (const Activation activation :
       {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf}) {
    for (const ExportFormat format :
         {ExportFormat::hf_marian, ExportFormat::hf_pegasus, ExportFormat::hf_gpt2}) {
      const bool lm = format == ExportFormat::hf_gpt2;
      ModelConfig config = config_of(lm ? Architecture::decoder_lm : Architecture::encoder_decoder,
                                     format != ExportFormat::hf_marian);
      config.activation = activation;
      config.ffn_dropout = lm ? 0 : 0.25;  // GPT-2 has none, and no encoder
      if (lm) config.encoder_layers = ModelConfig{}.encoder_layers;
      config.output_bias = !lm;  // GPT-2 has none
      const auto model = model_of(config);
      const std::string name = concat(enum_name(activation), "-", enum_name(format));
      EXPECT_EQ(exported(*model, format, name), 0);
      const ImportedModel imported = import_model(*context_, path(name));
      EXPECT_EQ(imported.model->config(), config);
      EXPECT_EQ(weight_bytes(*context_, *imported.model), weight_bytes(*context_, *model));
      ASSERT_TRUE(imported.tokenizer.has_value());
      EXPECT_EQ(imported.tokenizer->serialized(), tokenizer().serialized());
      EXPECT_EQ(imported.note, "");
    }
  }
}

TEST_F(InteropTest, Ctranslate2TakesEveryArchitecture) {
  int number = 0;
  for (const Architecture architecture : {Architecture::encoder_decoder, Architecture::decoder_lm})
    for (const bool pre_norm : {false, true})
      for (const bool tied : {false, true}) {
        ModelConfig config = config_of(architecture, pre_norm);
        config.tied_embeddings = tied;
        config.norm_epsilon = 1e-6;
        const auto model = model_of(config);
        EXPECT_EQ(exported(*model, ExportFormat::ctranslate2, concat("ct2-", number++)), 0);
      }
}

// Its converter writes these of Llama models alone.
TEST_F(InteropTest, Ctranslate2HasAttentionAndQuantizationOfLlamasInItsConfiguration) {
  for (const bool llama : {false, true}) {
    const auto model =
        model_of(llama ? llama_config(1, true) : config_of(Architecture::decoder_lm, true));
    const std::string name = concat("ct2-", llama);
    exported(*model, ExportFormat::ctranslate2, name);
    const FileJson json = FileJson::parse(read_text_file(path(name) / "config.json", 1 << 20));
    for (const char* key : {"multi_query_attention", "quantization_type", "quantization_bits",
                            "quantization_group_size"})
      EXPECT_EQ(json.contains(key), llama) << key;
  }
}

TEST_F(InteropTest, Ctranslate2StoresMatricesInFewerBits) {
  using enum ExportWeights;
  int number = 0;
  for (const ModelConfig& config :
       {config_of(Architecture::encoder_decoder, false), config_of(Architecture::decoder_lm, true),
        llama_config(1, true), llama_config(0, false)}) {
    const auto model = model_of(config);
    uintmax_t bytes = 0;
    const auto difference = [&](ExportWeights weights) {
      const fs::path directory = path(concat("ct2-", number++));
      const double gap = export_model(*context_, *model, tokenizer(), ExportFormat::ctranslate2,
                                      directory, weights);
      bytes = fs::file_size(directory / "model.bin");
      return gap;
    };
    EXPECT_EQ(difference(float32), 0);
    const uintmax_t whole = bytes;
    const double half = difference(float16);
    EXPECT_LT(bytes, whole * 6 / 10);
    const double brain = difference(bfloat16), sixteen = difference(int16);
    const double eight = difference(int8);
    EXPECT_LT(bytes, whole / 2);
    EXPECT_GT(half, 0);
    EXPECT_GT(brain, half);
    EXPECT_GT(sixteen, half);
    EXPECT_GT(eight, sixteen);
    EXPECT_LT(eight, 0.05);
  }
}

TEST_F(InteropTest, WeightsBeyondFloat16AreNamed) {
  const auto model = model_of(config_of(Architecture::decoder_lm, true));
  model->parameters().value(0).data<float>()[7] = 1e5;
  const auto write = [&](ExportWeights weights) {
    export_model(*context_, *model, tokenizer(), ExportFormat::ctranslate2, path("x"), weights);
  };
  expect_error(ErrorCode::unsupported, "float16 cannot express the 100000 of decoder/",
               [&] { write(ExportWeights::float16); });
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  write(ExportWeights::bfloat16);
}

TEST_F(InteropTest, OutputBiasOfAnLmMovesIntoTheMatrix) {
  for (const bool tied : {false, true}) {
    ModelConfig config = config_of(Architecture::decoder_lm, true);
    config.tied_embeddings = tied;
    const auto model = model_of(config);
    const std::string name = concat("bias-", tied);
    const double difference = exported(*model, ExportFormat::hf_gpt2, name);
    EXPECT_LT(difference, 1e-5);
    const ImportedModel imported = import_model(*context_, path(name));
    EXPECT_FALSE(imported.model->config().tied_embeddings);
    EXPECT_FALSE(imported.model->config().output_bias);
    EXPECT_EQ(imported.model->parameters().find("output.bias"), kNoParam);
  }
}

TEST_F(InteropTest, MovingTheOutputBiasChangesNothingElse) {
  ModelConfig config = config_of(Architecture::decoder_lm, true);
  config.tied_embeddings = false;
  for (const int64_t vocabulary : {int64_t{61}, int64_t{64}}) {
    config.vocabulary = vocabulary;
    const interop::HostModel lm = interop::copy_to_host(*context_, *model_of(config));
    const interop::HostModel folded = interop::fold_output_bias(lm);
    for (size_t i = 0; i < folded.parameters().count(); ++i) {
      const std::string& name = folded.parameters().name(static_cast<ParamId>(i));
      const Tensor& after = folded.parameters().value(static_cast<ParamId>(i));
      const Tensor& before = lm.parameters().value(lm.parameters().find(name));
      const bool changes = name == "output.weight" || name == "decoder.norm.bias";
      EXPECT_NE(changes, folded.context->values<float>(after) == lm.context->values<float>(before))
          << name;
    }
  }
}

TEST_F(InteropTest, OutputBiasOfZerosIsLeftOut) {
  const auto model = model_of(config_of(Architecture::decoder_lm, true));
  const ParamId bias = model->parameters().find("output.bias");
  const std::vector<float> zeros(static_cast<size_t>(model->config().vocabulary));
  model->parameters().set_value(*context_, bias, zeros.data(), zeros.size() * sizeof(float));
  EXPECT_EQ(exported(*model, ExportFormat::hf_gpt2, "zeros"), 0);
  const ImportedModel imported = import_model(*context_, path("zeros"));
  EXPECT_TRUE(imported.model->config().tied_embeddings);
  EXPECT_FALSE(imported.model->config().output_bias);
}

TEST_F(InteropTest, ModelsWithoutAnOutputBiasAreExported) {
  for (const bool lm : {false, true}) {
    ModelConfig config =
        config_of(lm ? Architecture::decoder_lm : Architecture::encoder_decoder, false);
    config.output_bias = false;
    const auto model = model_of(config);
    EXPECT_EQ(exported(*model, ExportFormat::ctranslate2, concat("bare-ct2-", lm)), 0);
    if (lm) continue;
    // The format has a bias, and zeros where its tensor is missing.
    EXPECT_EQ(exported(*model, ExportFormat::hf_marian, "bare-marian"), 0);
    const ImportedModel imported = import_model(*context_, path("bare-marian"));
    EXPECT_TRUE(imported.model->config().output_bias);
  }
}

TEST_F(InteropTest, SettingsThatCannotBeSaidAreNamed) {
  const ModelConfig post = config_of(Architecture::encoder_decoder, false);
  const ModelConfig lm = config_of(Architecture::decoder_lm, true);
  refused(config_of(Architecture::encoder_decoder, true), ExportFormat::hf_marian,
          "pre-norm layers (--transformer-norm pre); use hf-pegasus or ctranslate2 or onnx");
  refused(post, ExportFormat::hf_pegasus, "post-norm layers (--transformer-norm post); use hf-m");
  refused(lm, ExportFormat::hf_pegasus, "decoder-lm");
  refused(lm, ExportFormat::hf_marian, "decoder-lm");
  ModelConfig untied = post;
  untied.tied_embeddings = false;
  refused(untied, ExportFormat::hf_marian, "--tied-embeddings-all");
  untied.pre_norm = true;
  refused(untied, ExportFormat::hf_pegasus, "Pegasus cannot express separate embeddings");
  ModelConfig epsilon = post;
  epsilon.norm_epsilon = 1e-6;
  refused(epsilon, ExportFormat::hf_marian, "norm_epsilon");
  refused(post, ExportFormat::hf_gpt2, "encoder-decoder");
  refused(config_of(Architecture::decoder_lm, false), ExportFormat::hf_gpt2, "post-norm");
  refused(llama_config(0, true), ExportFormat::hf_gpt2, "RMS norm");
  refused(llama_config(0, true), ExportFormat::hf_marian, "decoder-lm");
  refused(post, ExportFormat::hf_llama, "encoder-decoder");
  refused(lm, ExportFormat::hf_llama, "layer norm");
  ModelConfig llama_post = llama_config(0, true);
  llama_post.pre_norm = false;
  refused(llama_post, ExportFormat::hf_llama, "post-norm");
  refused(llama_post, ExportFormat::ctranslate2, "post-norm");
  ModelConfig plain = llama_config(0, true);
  plain.ffn = FeedForward::plain;
  refused(plain, ExportFormat::hf_llama, "without a gate");
}

TEST_F(InteropTest, NothingIsOverwrittenAndNothingIsLeft) {
  const auto model = model_of(config_of(Architecture::encoder_decoder, false));
  fs::create_directory(path("full"));
  write_file_atomically(path("full") / "file", std::string_view("mine"));
  Error error = error_of([&] { exported(*model, ExportFormat::ctranslate2, "full"); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(mentions(error, "not an empty directory")) << error.what();
  EXPECT_EQ(read_text_file(path("full") / "file", 10), "mine");
  fs::create_directory(path("empty"));
  EXPECT_EQ(exported(*model, ExportFormat::hf_marian, "empty/"), 0);
  EXPECT_TRUE(fs::exists(path("empty") / "model.safetensors"));

  model->parameters().value(0).data<float>()[7] = NAN;
  error = error_of([&] { exported(*model, ExportFormat::hf_marian, "nan"); });
  EXPECT_EQ(error.code(), ErrorCode::non_finite);
  EXPECT_TRUE(mentions(error, "embedding.weight")) << error.what();
  ModelConfig other = config_of(Architecture::encoder_decoder, false);
  other.vocabulary += 1;
  error =
      error_of([&] { exported(*make_model(*context_, other, 1), ExportFormat::hf_marian, "v"); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 2);
}

TEST_F(InteropTest, HalfPrecisionBecomesFloat32) {
  const auto model = model_of(config_of(Architecture::encoder_decoder, false));
  exported(*model, ExportFormat::hf_marian, "half");
  // 1, -2, the largest, the smallest normal and subnormal numbers, zero with both signs.
  const std::vector<uint16_t> halves{0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x0000, 0x8000};
  const std::vector<float> floats{1, -2, 65504, 0x1p-14f, 0x1p-24f, 0, -0.0f};
  edit_tensors(path("half"), [&](std::vector<Stored>& tensors) {
    Stored& shared = find(tensors, "model.shared.weight");
    shared.dtype = "F16";
    shared.bytes.assign(shared.bytes.size() / 2, std::byte{0});
    std::memcpy(shared.bytes.data(), halves.data(), halves.size() * 2);
    Stored& norm = find(tensors, "model.encoder.layers.0.final_layer_norm.weight");
    norm.dtype = "BF16";
    norm.bytes.assign(norm.bytes.size() / 2, std::byte{0x3f});
  });
  const ImportedModel imported = import_model(*context_, path("half"));
  const ParameterStore& parameters = imported.model->parameters();
  const float* shared = parameters.value(parameters.find("embedding.weight")).data<float>();
  EXPECT_EQ(std::memcmp(shared, floats.data(), floats.size() * sizeof(float)), 0);
  EXPECT_EQ(parameters.value(parameters.find("encoder.0.ffn_norm.weight")).data<float>()[3],
            std::bit_cast<float>(0x3f3f0000u));
}

TEST_F(InteropTest, WeightsThatAreNotFiniteAreRefusedByName) {
  const auto model = model_of(config_of(Architecture::encoder_decoder, false));
  const auto refused_as = [&](const char* dtype, const auto& stored) {
    broken(*model, ExportFormat::hf_marian, ErrorCode::corrupt_file,
           "value 1 of final_logits_bias is not a finite float32 number",
           [&](const fs::path& directory) {
             edit_tensors(directory, [&](std::vector<Stored>& all) {
               Stored& bias = find(all, "final_logits_bias");
               bias.dtype = dtype;
               bias.bytes.assign(bias.bytes.size() / 4 * sizeof stored, std::byte{0});
               std::memcpy(bias.bytes.data() + sizeof stored, &stored, sizeof stored);
             });
           });
  };
  refused_as("F32", std::numeric_limits<float>::infinity());
  refused_as("F32", std::numeric_limits<float>::quiet_NaN());
  refused_as("F16", uint16_t{0xfc00});
  refused_as("BF16", uint16_t{0x7fc0});
  refused_as("F64", 1e39);
}

// As transformers reads them: what a configuration does not name has its default.
TEST_F(InteropTest, FieldsOfGpt2ThatAreNotThere) {
  const auto model = model_of(config_of(Architecture::decoder_lm, true));
  exported(*model, ExportFormat::hf_gpt2, "few");
  edit_json(path("few") / "config.json", [](FileJson& json) {
    for (const char* field : {"scale_attn_weights", "scale_attn_by_inverse_layer_idx",
                              "add_cross_attention", "resid_pdrop", "attn_pdrop"})
      json.erase(field);
  });
  const ModelConfig config = import_model(*context_, path("few")).model->config();
  EXPECT_EQ(config.dropout, 0.1);
  EXPECT_EQ(config.attention_dropout, 0.1);
}

TEST_F(InteropTest, HostileConfigurationsAreErrors) {
  const auto model = model_of(config_of(Architecture::encoder_decoder, false));
  const auto config = [&](ErrorCode code, const char* text, const char* field,
                          const FileJson& value) {
    broken(*model, ExportFormat::hf_marian, code, text, [&](const fs::path& directory) {
      edit_json(directory / "config.json", [&](FileJson& json) { json[field] = value; });
    });
  };
  config(ErrorCode::unsupported, "model_type is electra", "model_type", "electra");
  config(ErrorCode::corrupt_file, "model_type must be a text", "model_type", 7);
  config(ErrorCode::corrupt_file, "d_model must be an integer", "d_model", "16");
  config(ErrorCode::corrupt_file, "d_model must be an integer", "d_model", 1e300);
  config(ErrorCode::corrupt_file, "encoder_layers must be", "encoder_layers", -1);
  config(ErrorCode::corrupt_file, "encoder_layers must be", "encoder_layers", 1 << 30);
  config(ErrorCode::corrupt_file, "config.json has no", "decoder_layers", nullptr);
  config(ErrorCode::corrupt_file, "lacks the tensor", "decoder_layers", 1000);
  config(ErrorCode::corrupt_file, "has the tensor", "encoder_layers", 1);
  config(ErrorCode::unsupported, "vocab_size and decoder_vocab_size", "vocab_size", 50);
  config(ErrorCode::corrupt_file, "positions are out of proportion", "max_position_embeddings",
         1 << 24);
  config(ErrorCode::unsupported, "encoder_attention_heads", "encoder_attention_heads", 4);
  config(ErrorCode::corrupt_file, "width must be even", "d_model", 15);
  config(ErrorCode::corrupt_file, "fc1.weight has the shape", "decoder_ffn_dim", 33);
  config(ErrorCode::unsupported, "normalize_before is true, which MarianMTModel does not do",
         "normalize_before", true);
  config(ErrorCode::unsupported, "pre-norm models have the model_type pegasus",
         "add_final_layer_norm", true);
  config(ErrorCode::corrupt_file, "scale_embedding must be true or false", "scale_embedding", 1);
  config(ErrorCode::unsupported, "activation_function is tanh;", "activation_function", "tanh");
  config(ErrorCode::corrupt_file, "eos_token_id", "eos_token_id", 5);
  config(ErrorCode::corrupt_file, "decoder_start_token_id", "decoder_start_token_id", 1000);
  broken(*model, ExportFormat::hf_marian, ErrorCode::corrupt_file, "nested more than 16 deep",
         [](const fs::path& d) {
           write_file_atomically(d / "config.json", std::string(100000, '['));
         });
  broken(*model, ExportFormat::hf_marian, ErrorCode::not_found, "config.json",
         [](const fs::path& d) { fs::remove(d / "config.json"); });

  const auto lm = model_of(config_of(Architecture::decoder_lm, true));
  const auto gpt2 = [&](ErrorCode code, const char* text, const char* field,
                        const FileJson& value) {
    broken(*lm, ExportFormat::hf_gpt2, code, text, [&](const fs::path& directory) {
      edit_json(directory / "config.json", [&](FileJson& json) { json[field] = value; });
    });
  };
  gpt2(ErrorCode::unsupported, "add_cross_attention", "add_cross_attention", true);
  gpt2(ErrorCode::unsupported, "scale_attn_weights", "scale_attn_weights", false);
  gpt2(ErrorCode::unsupported, "scale_attn_by_inverse_layer_idx", "scale_attn_by_inverse_layer_idx",
       true);
  gpt2(ErrorCode::corrupt_file, "n_embd must be an integer", "n_embd", 1);
  gpt2(ErrorCode::corrupt_file, "n_layer must be an integer", "n_layer", 2.5);
  gpt2(ErrorCode::corrupt_file, "norm_epsilon", "layer_norm_epsilon", 0);
  gpt2(ErrorCode::corrupt_file, "differ", "tie_word_embeddings", true);
}

TEST_F(InteropTest, HostileWeightsAreErrors) {
  const auto model = model_of(config_of(Architecture::encoder_decoder, false));
  const auto tensors = [&](ErrorCode code, const char* text,
                           const std::function<void(std::vector<Stored>&)>& change) {
    broken(*model, ExportFormat::hf_marian, code, text,
           [&](const fs::path& directory) { edit_tensors(directory, change); });
  };
  tensors(ErrorCode::corrupt_file, "lacks the tensor model.shared.weight",
          [](auto& all) { find(all, "model.shared.weight").name = "model.other.weight"; });
  tensors(ErrorCode::corrupt_file, "has the tensor strange", [](auto& all) {
    all.push_back({"strange", "F32", {0}, {}});
  });
  tensors(ErrorCode::unsupported, "is I64", [](auto& all) {
    Stored& bias = find(all, "final_logits_bias");
    bias.dtype = "I64";
    bias.bytes.resize(bias.bytes.size() * 2);
  });
  tensors(ErrorCode::unsupported, "is int32",
          [](auto& all) { find(all, "final_logits_bias").dtype = "I32"; });
  tensors(ErrorCode::corrupt_file, "has the shape", [](auto& all) {
    std::swap(find(all, "model.encoder.layers.0.fc1.weight").shape[0],
              find(all, "model.encoder.layers.0.fc1.weight").shape[1]);
  });
  tensors(ErrorCode::corrupt_file, "lm_head.weight and model.shared.weight differ", [](auto& all) {
    Stored copy = find(all, "model.shared.weight");
    copy.name = "lm_head.weight";
    copy.bytes[5] ^= std::byte{1};
    all.push_back(copy);
  });
  broken(*model, ExportFormat::hf_marian, ErrorCode::corrupt_file, "model.safetensors",
         [](const fs::path& d) {
           fs::resize_file(d / "model.safetensors", fs::file_size(d / "model.safetensors") - 9);
         });
  broken(*model, ExportFormat::hf_marian, ErrorCode::corrupt_file, "is not a file of torch.save()",
         [](const fs::path& d) { fs::rename(d / "model.safetensors", d / "pytorch_model.bin"); });
  // A missing output bias is zero, as transformers takes it; equal copies are fine.
  exported(*model, ExportFormat::hf_marian, "fine");
  edit_tensors(path("fine"), [](auto& all) {
    std::erase_if(all, [](const Stored& tensor) { return tensor.name == "final_logits_bias"; });
    all.push_back(find(all, "model.shared.weight"));
    all.back().name = "model.decoder.embed_tokens.weight";
  });
  const ImportedModel imported = import_model(*context_, path("fine"));
  const ParameterStore& parameters = imported.model->parameters();
  EXPECT_EQ(parameters.value(parameters.find("output.bias")).data<float>()[4], 0);
}

TEST_F(InteropTest, HostileVocabulariesAreErrors) {
  const auto model = model_of(config_of(Architecture::encoder_decoder, false));
  const auto vocabulary = [&](const char* text, const std::function<void(FileJson&)>& change) {
    broken(*model, ExportFormat::hf_marian, ErrorCode::corrupt_file, text,
           [&](const fs::path& directory) { edit_json(directory / "vocab.json", change); });
  };
  vocabulary("is not one of", [](FileJson& json) { json["</s>"] = 1000; });
  vocabulary("is not one of", [](FileJson& json) { json["</s>"] = "2"; });
  vocabulary("has two subwords", [](FileJson& json) { json["another"] = 7; });
  vocabulary("has no <unk>", [](FileJson& json) { json.erase("<unk>"); });
  vocabulary("not a JSON object", [](FileJson& json) { json = FileJson::array({1, 2}); });
  broken(*model, ExportFormat::hf_marian, ErrorCode::corrupt_file, "source.spm",
         [](const fs::path& d) { write_file_atomically(d / "source.spm", std::string_view("x")); });
}

// Whatever is in the files: an error or a model, and the process lives (the sanitizer builds run
// this too).
TEST_F(InteropTest, DamagedFilesAreErrorsOrModels) {
  const auto post = model_of(config_of(Architecture::encoder_decoder, false));
  const auto lm = model_of(config_of(Architecture::decoder_lm, true));
  exported(*post, ExportFormat::hf_marian, "marian");
  exported(*lm, ExportFormat::hf_gpt2, "gpt2");
  PhiloxStream random(17, 4);
  int errors = 0;
  for (const char* file :
       {"marian/config.json", "marian/vocab.json", "marian/source.spm", "marian/model.safetensors",
        "gpt2/config.json", "gpt2/tokenizer.model", "gpt2/model.safetensors"}) {
    const std::string whole = read_text_file(path(file), 1 << 24);
    for (int i = 0; i < 25; ++i) {
      std::string damaged = whole;
      // Where the structure is: tensors are numbers, of which every one is a number.
      const size_t reach = std::min<size_t>(whole.size(), 4000);
      for (int k = 0; k < 3; ++k)
        damaged[random.next_u32() % reach] = static_cast<char>(random.next_u32());
      if (i % 5 == 0) damaged.resize(random.next_u32() % whole.size());
      write_file_atomically(path(file), damaged);
      try {
        import_model(*context_, path(file).parent_path());
      } catch (const Error& error) {
        EXPECT_NE(error.code(), ErrorCode::internal) << file << ": " << error.what();
        ++errors;
      }
    }
    write_file_atomically(path(file), whole);
  }
  EXPECT_GT(errors, 100);
  EXPECT_NO_THROW(import_model(*context_, path("marian")));
  EXPECT_NO_THROW(import_model(*context_, path("gpt2")));
}

// Marian's own models: the vocabulary in another order, and a decoder that starts from <pad>.
TEST_F(InteropTest, AnotherOrderOfTheVocabularyKeepsItsIds) {
  const auto model = model_of(config_of(Architecture::encoder_decoder, false));
  exported(*model, ExportFormat::hf_marian, "order");
  const int64_t size = tokenizer().vocab_size();
  std::vector<std::string> subwords(static_cast<size_t>(size));
  edit_json(path("order") / "vocab.json", [&](FileJson& json) {
    for (auto& [subword, id] : json.items()) {
      id = size - 1 - id.get<int64_t>();
      subwords[id.get<size_t>()] = subword;
    }
  });
  const int64_t pad = size - 1 - tokenizer().pad_id(), eos = size - 1 - tokenizer().eos_id();
  edit_json(path("order") / "config.json", [&](FileJson& json) {
    json["decoder_start_token_id"] = json["pad_token_id"] = pad;
    json["eos_token_id"] = eos;
  });
  const ImportedModel imported = import_model(*context_, path("order"));
  ASSERT_TRUE(imported.tokenizer.has_value());
  const Tokenizer& joined = *imported.tokenizer;
  EXPECT_EQ(joined.vocab_size(), size);
  EXPECT_EQ(joined.bos_id(), pad);
  EXPECT_EQ(joined.eos_id(), eos);
  EXPECT_EQ(joined.pad_id(), -1);
  const std::string text = "ein Hund findet das Licht.";
  std::vector<int32_t> mirrored = tokenizer().encode(text);
  for (int32_t& id : mirrored) id = static_cast<int32_t>(size - 1) - id;
  EXPECT_EQ(joined.encode(text), mirrored);
  EXPECT_EQ(joined.decode(mirrored), text);

  EXPECT_EQ(
      export_model(*context_, *imported.model, joined, ExportFormat::hf_marian, path("again")), 0);
  const FileJson config = FileJson::parse(read_text_file(path("again") / "config.json", 1 << 20));
  EXPECT_EQ(config["pad_token_id"], pad);
  EXPECT_EQ(config["decoder_start_token_id"], pad);
  EXPECT_EQ(FileJson::parse(read_text_file(path("again") / "vocab.json", 1 << 20))["<pad>"], pad);
  EXPECT_EQ(import_model(*context_, path("again")).tokenizer->serialized(), joined.serialized());
}

}  // namespace
}  // namespace trafo
