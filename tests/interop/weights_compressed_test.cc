// Directories of compressed-tensors: codes and scales, packed words, the description of the scheme,
// and what the format cannot hold.
#include <bit>

#include "engine/formats/formats.h"
#include "engine/formats/tensor_map.h"
#include "tests/interop/interop_support.h"

namespace trafo {
namespace {

using namespace testing;

class CompressedTensorsTest : public InteropTest {
 protected:
  static ModelConfig wide_config(bool tied = true) {
    ModelConfig config = llama_config(1, tied);
    config.width = 32;
    config.ffn_width = 64;
    return config;
  }
  double compressed(const Model& model, ExportWeights weights, const std::string& name) {
    return export_model(*context_, model, tokenizer(), ExportFormat::hf_compressed, path(name),
                        weights);
  }
  void compressed_refused(const ModelConfig& config, ExportWeights weights, const char* text) {
    const auto model = make_model(*context_, config, 1);
    expect_error(ErrorCode::unsupported, text, [&] { compressed(*model, weights, "x"); });
    EXPECT_TRUE(fs::is_empty(folder_.path())) << "something was left";
  }
  SafetensorsReader weights_of(const std::string& name) const {
    return SafetensorsReader::open_foreign(path(name) / "model.safetensors");
  }
  template <class Element>
  static std::vector<Element> values_of(const SafetensorsReader& reader, const std::string& name) {
    const TensorInfo& info = reader.at(name);
    std::vector<Element> values(info.bytes / sizeof(Element));
    reader.read(info, std::as_writable_bytes(std::span(values)));
    return values;
  }
  // The rows of the feed-forward's second matrix of layer 1, [32, 64].
  static float* down_of(const Model& model) {
    return model.parameters()
        .value(model.parameters().find("decoder.1.ffn.down.weight"))
        .data<float>();
  }
  static constexpr const char* kDown = "model.layers.1.mlp.down_proj.weight";
};

TEST_F(CompressedTensorsTest, EightBitsHaveAScaleOfEachRow) {
  const auto model = model_of(wide_config());
  float* row = down_of(*model);
  std::fill(row, row + 2 * 64, 0.0f);  // the second row stays zeros
  const float step = 0.25f;
  row[0] = 127.5f * step;  // the scale is a step; halfway to 128, which no code has
  row[1] = -127.5f * step;
  row[2] = 0.5f * step;  // halfway: to even
  row[3] = 1.5f * step;
  row[4] = -3 * step;
  const double difference = compressed(*model, ExportWeights::int8, "int8");
  EXPECT_GT(difference, 0);
  EXPECT_LT(difference, 0.1);
  const SafetensorsReader reader = weights_of("int8");
  EXPECT_EQ(reader.at(kDown).foreign, "I8");
  EXPECT_EQ(reader.at(kDown).shape, (std::vector<int64_t>{32, 64}));
  EXPECT_EQ(reader.at(concat(kDown, "_scale")).shape, (std::vector<int64_t>{32, 1}));
  const auto codes = values_of<int8_t>(reader, kDown);
  EXPECT_EQ(std::vector<int8_t>(codes.begin(), codes.begin() + 6),
            (std::vector<int8_t>{127, -128, 0, 2, -3, 0}));
  const auto scales = values_of<float>(reader, concat(kDown, "_scale"));
  EXPECT_EQ(scales[0], step);
  EXPECT_EQ(scales[1], 0x1p-23f);
  EXPECT_EQ(codes[64], 0);
}

TEST_F(CompressedTensorsTest, FourBitsArePackedFromTheLowestOn) {
  const auto model = model_of(wide_config());
  float* row = down_of(*model);
  std::fill(row, row + 64, 0.0f);
  const float step = 0.5f;
  const float steps[] = {7.5f, -7.5f, 1, 0, -1, 2.5f, -8 + 1, 3};
  for (size_t i = 0; i < 8; ++i) row[i] = steps[i] * step;
  row[32] = 15;  // the second group of the row has another scale
  const double eight = compressed(*model, ExportWeights::int8, "int8");
  const double four = compressed(*model, ExportWeights::int4, "int4");
  EXPECT_GT(four, eight);
  EXPECT_LT(four, 0.8);
  const SafetensorsReader reader = weights_of("int4");
  EXPECT_EQ(reader.find(kDown), nullptr);
  EXPECT_EQ(reader.at(concat(kDown, "_packed")).shape, (std::vector<int64_t>{32, 8}));
  EXPECT_EQ(reader.at(concat(kDown, "_packed")).dtype, DType::i32);
  EXPECT_EQ(reader.at(concat(kDown, "_shape")).foreign, "I64");
  EXPECT_EQ(values_of<int64_t>(reader, concat(kDown, "_shape")), (std::vector<int64_t>{32, 64}));
  const auto scales = values_of<float>(reader, concat(kDown, "_scale"));
  EXPECT_EQ(reader.at(concat(kDown, "_scale")).shape, (std::vector<int64_t>{32, 2}));
  EXPECT_EQ(scales[0], step);
  EXPECT_EQ(scales[1], 2.0f);
  const auto words = values_of<int32_t>(reader, concat(kDown, "_packed"));
  // Codes 7, -8, 1, 0, -1, 2, -7, 3, each + 8.
  EXPECT_EQ(std::bit_cast<uint32_t>(words[0]), 0xb1a7890fu);
  EXPECT_EQ(std::bit_cast<uint32_t>(words[4]), 0x8888888fu);
}

TEST_F(CompressedTensorsTest, EmbeddingsNormsAndOutputStayAsTheyAre) {
  for (const bool tied : {false, true})
    for (const ExportWeights weights : {ExportWeights::int8, ExportWeights::int4}) {
      const std::string name = concat(enum_name(weights), tied);
      const auto model = model_of(wide_config(tied));
      compressed(*model, weights, name);
      const interop::HostModel host = interop::copy_to_host(*context_, *model);
      const SafetensorsReader reader = weights_of(name);
      size_t plain = 0, matrices = 0;
      for (const interop::MappedTensor& tensor : interop::llama_tensors(host.config())) {
        if (tensor.shape.size() == 2 && tensor.name.starts_with("model.layers.")) {
          ++matrices;
          continue;
        }
        ++plain;
        EXPECT_EQ(values_of<float>(reader, tensor.name), interop::gather(host.parameters(), tensor))
            << tensor.name;
      }
      EXPECT_EQ(matrices, 2u * 7);
      EXPECT_EQ(reader.tensors().size(),
                plain + matrices * (weights == ExportWeights::int8 ? 2 : 3));
    }
}

TEST_F(CompressedTensorsTest, TheConfigurationDescribesTheScheme) {
  const auto model = model_of(wide_config());
  compressed(*model, ExportWeights::by_format, "usual");
  compressed(*model, ExportWeights::int4, "int4");
  const auto config_of_directory = [&](const char* name) {
    return FileJson::parse(read_text_file(path(name) / "config.json", 1 << 20));
  };
  const FileJson usual = config_of_directory("usual")["quantization_config"];
  EXPECT_EQ(usual["quant_method"], "compressed-tensors");
  EXPECT_EQ(usual["format"], "int-quantized");
  EXPECT_EQ(usual["ignore"], FileJson::array({"lm_head"}));
  const FileJson& eight = usual["config_groups"]["group_0"];
  EXPECT_EQ(eight["targets"], FileJson::array({"Linear"}));
  EXPECT_EQ(eight["weights"]["strategy"], "channel");
  EXPECT_EQ(eight["input_activations"]["strategy"], "token");
  EXPECT_EQ(eight["input_activations"]["dynamic"], true);
  const FileJson packed = config_of_directory("int4")["quantization_config"];
  EXPECT_EQ(packed["format"], "pack-quantized");
  const FileJson& four = packed["config_groups"]["group_0"];
  EXPECT_EQ(four["weights"]["num_bits"], 4);
  EXPECT_EQ(four["weights"]["group_size"], 32);
  EXPECT_TRUE(four["input_activations"].is_null());
  // Without the weights it equals the directory of hf-llama.
  exported(*model, ExportFormat::hf_llama, "plain");
  FileJson rest = config_of_directory("usual");
  rest.erase("quantization_config");
  EXPECT_EQ(rest, config_of_directory("plain"));
  for (const char* file : {"tokenizer.json", "tokenizer.model", "generation_config.json"})
    EXPECT_EQ(read_text_file(path("usual") / file, 1 << 24),
              read_text_file(path("plain") / file, 1 << 24));
  expect_error(ErrorCode::unsupported, "quantization_config",
               [&] { import_model(*context_, path("usual")); });
}

TEST_F(CompressedTensorsTest, WhatTheFormatCannotHoldIsNamed) {
  using enum ExportWeights;
  compressed_refused(config_of(Architecture::encoder_decoder, true), int8,
                     "compressed-tensors cannot express a model with --arch encoder-decoder");
  ModelConfig gpt2 = config_of(Architecture::decoder_lm, true);
  gpt2.encoder_layers = ModelConfig{}.encoder_layers;
  compressed_refused(gpt2, int8, "compressed-tensors cannot express layer norm");
  compressed_refused(wide_config(), float32,
                     "hf-compressed cannot express weights of the type float32 (--weights), it has "
                     "int8, int4");
  ModelConfig narrow = wide_config();
  narrow.ffn_width = 48;
  compressed_refused(narrow, int4, "--transformer-dim-ffn 48 with --weights int4, whose groups");
  narrow = wide_config();
  narrow.width = 48;
  compressed_refused(narrow, int4, "--dim-emb 48 with --weights int4");
  narrow = wide_config();
  narrow.head_width = 8;
  compressed_refused(narrow, int4, "the width of all heads 16 with --weights int4");
  EXPECT_GT(compressed(*model_of(narrow), int8, "narrow"), 0);  // rows of any width
}

TEST_F(CompressedTensorsTest, AnotherFileIsNotReadBack) {
  const auto model = model_of(wide_config());
  const interop::HostModel host = interop::copy_to_host(*context_, *model);
  for (const ExportWeights weights : {ExportWeights::int8, ExportWeights::int4}) {
    const std::string name = enum_name(weights);
    compressed(*model, weights, name);
    const auto read = [&] { interop::read_back_compressed_tensors(host, weights, path(name)); };
    EXPECT_NO_THROW(read());
    const fs::path file = path(name) / "model.safetensors";
    const std::string whole = read_text_file(file, 1 << 24);
    const auto changed = [&](const char* text, const std::function<void(TensorEntry&)>& change) {
      std::vector<TensorEntry> entries;
      std::vector<std::vector<std::byte>> bytes;
      {
        const SafetensorsReader reader = weights_of(name);
        bytes.reserve(reader.tensors().size());
        for (const TensorInfo& info : reader.tensors()) {
          reader.read(info, bytes.emplace_back(info.bytes));
          entries.push_back({info.name, info.dtype, info.shape, bytes.back(), info.foreign});
          change(entries.back());
        }
      }
      save_safetensors(file, entries);
      expect_error(ErrorCode::corrupt_file, text, read);
      write_file_atomically(file, whole);
    };
    const std::string codes = concat(kDown, weights == ExportWeights::int8 ? "" : "_packed");
    changed("is missing or another tensor", [&](TensorEntry& entry) {
      if (entry.name == codes) entry.name = "model.other";
    });
    changed("is missing or another tensor", [&](TensorEntry& entry) {
      if (entry.name == codes) std::swap(entry.shape[0], entry.shape[1]);
    });
    std::vector<float> scales(
        static_cast<size_t>(weights_of(name).at(concat(kDown, "_scale")).bytes / sizeof(float)),
        0.5f);
    changed("was read as", [&](TensorEntry& entry) {
      if (entry.name == concat(kDown, "_scale")) entry.data = std::as_bytes(std::span(scales));
    });
  }
}

}  // namespace
}  // namespace trafo
