// Directories of other programs for tests: written, changed, refused.
#pragma once

// Before this header names another FileJson: files of a group have `using namespace testing`.
#include "engine/formats/interop.h"

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/io/atomic_file.h"
#include "engine/io/safetensors.h"
#include "tests/models/llama_models.h"
#include "tests/support/errors.h"
#include "tests/train/training_support.h"

namespace trafo::testing {

namespace fs = std::filesystem;
using FileJson = nlohmann::json;

inline const Tokenizer& tokenizer() {
  static const Tokenizer trained = [] {
    std::vector<std::string> lines;
    for (const char* subject : {"der Hund", "die Katze", "ein Vogel", "das Haus"})
      for (const char* verb : {"sieht", "findet", "sucht"})
        for (const char* object : {"einen Baum", "den Stein", "ein Licht"})
          lines.push_back(concat(subject, " ", verb, " ", object, "."));
    TokenizerTrainOptions options;
    options.vocab_size = 60;
    options.hard_vocab_limit = false;
    return Tokenizer::train(std::span<const std::string>(lines), options);
  }();
  return trained;
}

inline ModelConfig config_of(Architecture architecture, bool pre_norm) {
  ModelConfig config = tiny_config(architecture);
  config.encoder_layers = config.decoder_layers = 2;
  config.vocabulary = tokenizer().vocab_size();
  config.pre_norm = pre_norm;
  return config;
}

inline ModelConfig llama_config(int64_t kv_heads, bool tied) {
  ModelConfig config = llama_of(config_of(Architecture::decoder_lm, true), kv_heads, tied);
  config.encoder_layers = ModelConfig{}.encoder_layers;
  config.dropout = config.ffn_dropout = 0;  // not in the files
  config.attention_dropout = 0.25;
  return config;
}

// With biases and norms that are not what they are initialised as.
inline std::unique_ptr<Model> random_model(Context& context, const ModelConfig& config) {
  auto model = make_model(context, config, 5);
  PhiloxStream random(3, 9);
  for (size_t i = 0; i < model->parameters().count(); ++i) {
    const Tensor& value = model->parameters().value(static_cast<ParamId>(i));
    if (value.rank() != 1) continue;
    for (int64_t k = 0; k < value.numel(); ++k)
      value.data<float>()[k] += static_cast<float>(random.uniform(-0.4, 0.4));
  }
  return model;
}

inline void edit_json(const fs::path& file, const std::function<void(FileJson&)>& change) {
  FileJson json = FileJson::parse(read_text_file(file, 1 << 22));
  change(json);
  write_file_atomically(file, json.dump());
}

inline constexpr const char* kWeightList = "model.safetensors.index.json";
inline const char* weight_file(size_t part) {
  return part == 0 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
}
// Makes two files and a list of model.safetensors, every second tensor in the second file. Returns
// the name of a tensor of each.
inline std::pair<std::string, std::string> split_weights(const fs::path& directory) {
  const fs::path whole = directory / "model.safetensors";
  std::vector<TensorEntry> parts[2];
  std::vector<std::vector<std::byte>> bytes;
  FileJson map;
  {
    const auto reader = SafetensorsReader::open(whole);
    bytes.reserve(reader.tensors().size());
    for (const TensorInfo& info : reader.tensors()) {
      reader.read(info, bytes.emplace_back(info.bytes));
      const size_t part = bytes.size() % 2;
      parts[part].push_back({info.name, info.dtype, info.shape, bytes.back()});
      map[info.name] = weight_file(part);
    }
  }
  for (const size_t part : {0, 1}) save_safetensors(directory / weight_file(part), parts[part]);
  fs::remove(whole);
  write_file_atomically(directory / kWeightList, FileJson{{"weight_map", map}}.dump());
  return {parts[0][0].name, parts[1][0].name};
}

class InteropTest : public ::testing::Test {
 protected:
  std::unique_ptr<Model> model_of(const ModelConfig& config) {
    return random_model(*context_, config);
  }
  double exported(const Model& model, ExportFormat format, const std::string& name) {
    return export_model(*context_, model, tokenizer(), format, path(name));
  }
  void refused(const ModelConfig& config, ExportFormat format, const char* text) {
    const auto model = make_model(*context_, config, 1);
    const Error error = error_of([&] { exported(*model, format, "refused"); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    EXPECT_TRUE(mentions(error, text)) << error.what();
    EXPECT_TRUE(fs::is_empty(folder_.path())) << "something was left";
  }
  fs::path path(const std::string& name) const { return folder_.path() / name; }

  // A directory that is right, then changed.
  void broken(const Model& model, ExportFormat format, ErrorCode code, const char* text,
              const std::function<void(const fs::path&)>& change) {
    const fs::path directory = path("broken");
    fs::remove_all(directory);
    exported(model, format, "broken");
    change(directory);
    const Error error = error_of([&] { import_model(*context_, directory); });
    EXPECT_EQ(error.code(), code) << text << ": " << error.what();
    EXPECT_TRUE(mentions(error, text)) << error.what();
  }
  // Rewrites model.safetensors with the tensors after `change`.
  struct Stored {
    std::string name, dtype;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  static void edit_tensors(const fs::path& directory,
                           const std::function<void(std::vector<Stored>&)>& change) {
    const fs::path file = directory / "model.safetensors";
    std::vector<Stored> tensors;
    {
      const auto reader = SafetensorsReader::open(file);
      for (const TensorInfo& info : reader.tensors()) {
        tensors.push_back({info.name, "F32", info.shape, std::vector<std::byte>(info.bytes)});
        reader.read(info, tensors.back().bytes);
      }
    }
    change(tensors);
    // Written by hand: as other programs do, without checksums.
    FileJson header;
    size_t end = 0;
    std::string payload;
    for (const Stored& tensor : tensors) {
      header[tensor.name] = {{"dtype", tensor.dtype},
                             {"shape", tensor.shape},
                             {"data_offsets", {end, end + tensor.bytes.size()}}};
      end += tensor.bytes.size();
      payload.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    }
    const std::string text = header.dump();
    const uint64_t size = text.size();
    std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
    write_file_atomically(file, bytes + text + payload);
  }
  static Stored& find(std::vector<Stored>& tensors, const std::string& name) {
    for (Stored& tensor : tensors)
      if (tensor.name == name) return tensor;
    throw std::runtime_error("no tensor " + name);
  }

  TemporaryDirectory folder_;
  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
};

}  // namespace trafo::testing
