// ONNX directories: what every form is written as, and what reading back refuses. That ONNX Runtime
// computes what the engine does, tests/parity/onnx_parity.py shows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "engine/core/wire_format.h"
#include "engine/formats/formats.h"
#include "engine/formats/onnx/onnx_graph.h"
#include "engine/formats/onnx/onnx_read.h"
#include "tests/interop/interop_support.h"

namespace trafo {
namespace {

using namespace testing;
using namespace interop;
using namespace interop::onnx_field;

constexpr uint64_t kMost = 1u << 24;

void refuse(std::string_view name, std::string_view reason) {
  fail(ErrorCode::internal, "test", name, ": ", reason);
}

// The contents of the fields `number` of a message.
std::vector<WireField> fields_of(std::string_view message, uint32_t number) {
  std::vector<WireField> found;
  WireFields fields(message, "message", refuse);
  for (WireField field; fields.next(field);)
    if (field.number == number) found.push_back(field);
  return found;
}

struct Graph {
  std::string model;
  std::string_view bytes;
  explicit Graph(const fs::path& file) : model(read_text_file(file, kMost)) {
    bytes = fields_of(model, kModelGraph).at(0).bytes;
  }
  // Of inputs, outputs, initializers or nodes.
  std::vector<std::string> names(uint32_t which, uint32_t name) const {
    std::vector<std::string> found;
    for (const WireField& each : fields_of(bytes, which))
      found.emplace_back(fields_of(each.bytes, name).at(0).bytes);
    return found;
  }
};

class OnnxTest : public InteropTest {
 protected:
  std::set<std::string> files_of(const std::string& name) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(path(name)))
      names.insert(entry.path().filename().string());
    return names;
  }
  // Changes a file of an exported directory, which reading back then refuses.
  void damaged(const ModelConfig& config, const char* file, const char* text,
               const std::function<void(std::string&)>& change) {
    fs::remove_all(path("damaged"));
    exported(*model_of(config), ExportFormat::onnx, "damaged");
    std::string bytes = read_text_file(path("damaged") / file, kMost);
    change(bytes);
    write_file_atomically(path("damaged") / file, bytes);
    expect_error(ErrorCode::corrupt_file, text, [&] {
      read_back_onnx(make_host_model(config), ExportWeights::float32, path("damaged"));
    });
  }
  static void replace(std::string& bytes, std::string_view old, std::string_view with) {
    const size_t at = bytes.find(old);
    ASSERT_NE(at, std::string::npos) << old;
    ASSERT_EQ(old.size(), with.size());
    bytes.replace(at, old.size(), with);
  }
};

// Of all parameters, frozen ones too: models that are read back are frozen.
std::vector<std::byte> parameter_bytes(const Context& context, const Model& model) {
  const ParameterStore& parameters = model.parameters();
  std::vector<std::byte> all;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const size_t bytes = parameters.value(id).bytes();
    all.resize(all.size() + bytes);
    parameters.get_value(context, id, all.data() + (all.size() - bytes), bytes);
  }
  return all;
}

TEST_F(OnnxTest, EveryFormComesBackBitForBit) {
  std::vector<ModelConfig> configs{llama_config(0, true), llama_config(1, false)};
  for (const Architecture architecture : {Architecture::encoder_decoder, Architecture::decoder_lm})
    for (const bool pre_norm : {true, false})
      for (const Activation activation :
           {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf}) {
        ModelConfig config = config_of(architecture, pre_norm);
        config.activation = activation;
        config.tied_embeddings = activation != Activation::relu;
        config.output_bias = activation != Activation::gelu;
        configs.push_back(config);
      }
  ModelConfig mixed = config_of(Architecture::decoder_lm, false);
  mixed.positions = Positions::rotary;
  mixed.kv_heads = 1;
  configs.push_back(mixed);
  mixed = config_of(Architecture::decoder_lm, true);
  mixed.norm = Norm::rms;
  mixed.biases = false;
  configs.push_back(mixed);
  for (const ModelConfig& config : configs) {
    const auto model = model_of(config);
    fs::remove_all(path("form"));
    EXPECT_EQ(exported(*model, ExportFormat::onnx, "form"), 0);
    const HostModel again =
        read_back_onnx(make_host_model(config), ExportWeights::float32, path("form"));
    EXPECT_EQ(parameter_bytes(*again.context, *again.model), parameter_bytes(*context_, *model));
  }
}

TEST_F(OnnxTest, AnEncoderDecoderIsThreeGraphs) {
  exported(*model_of(config_of(Architecture::encoder_decoder, true)), ExportFormat::onnx, "three");
  EXPECT_EQ(
      files_of("three"),
      (std::set<std::string>{"config.json", "decoder_model.onnx", "decoder_with_past_model.onnx",
                             "encoder_model.onnx", "generation_config.json", "model.onnx_data",
                             "source.spm", "target.spm", "tokenizer_config.json", "vocab.json"}));
  const Graph encoder(path("three") / "encoder_model.onnx");
  EXPECT_EQ(encoder.names(kGraphInput, kValueName),
            (std::vector<std::string>{"input_ids", "attention_mask"}));
  EXPECT_EQ(encoder.names(kGraphOutput, kValueName), std::vector<std::string>{"last_hidden_state"});
  const Graph first(path("three") / "decoder_model.onnx");
  EXPECT_EQ(
      first.names(kGraphInput, kValueName),
      (std::vector<std::string>{"encoder_attention_mask", "input_ids", "encoder_hidden_states"}));
  const std::vector<std::string> present = first.names(kGraphOutput, kValueName);
  ASSERT_EQ(present.size(), 9u);
  EXPECT_EQ(present[0], "logits");
  EXPECT_EQ(present[8], "present.1.encoder.value");
  const Graph next(path("three") / "decoder_with_past_model.onnx");
  const std::vector<std::string> past = next.names(kGraphInput, kValueName);
  ASSERT_EQ(past.size(), 10u);
  EXPECT_EQ(past[2], "past_key_values.0.decoder.key");
  EXPECT_EQ(past[9], "past_key_values.1.encoder.value");
  EXPECT_EQ(next.names(kGraphOutput, kValueName),
            (std::vector<std::string>{"logits", "present.0.decoder.key", "present.0.decoder.value",
                                      "present.1.decoder.key", "present.1.decoder.value"}));
  const std::string_view opset = fields_of(next.model, kModelOpset).at(0).bytes;
  EXPECT_EQ(fields_of(opset, kOpsetVersion).at(0).value, 17u);
  EXPECT_EQ(fields_of(next.model, kModelIrVersion).at(0).value, 8u);
}

TEST_F(OnnxTest, ADecoderIsOneGraphWithItsCache) {
  exported(*model_of(llama_config(1, true)), ExportFormat::onnx, "one");
  const std::set<std::string> files = files_of("one");
  for (const char* file : {"config.json", "model.onnx", "model.onnx_data", "tokenizer.model"})
    EXPECT_TRUE(files.contains(file)) << file;
  const Graph graph(path("one") / "model.onnx");
  EXPECT_EQ(graph.names(kGraphInput, kValueName),
            (std::vector<std::string>{"input_ids", "attention_mask", "position_ids",
                                      "past_key_values.0.key", "past_key_values.0.value",
                                      "past_key_values.1.key", "past_key_values.1.value"}));
  EXPECT_EQ(graph.names(kGraphOutput, kValueName),
            (std::vector<std::string>{"logits", "present.0.key", "present.0.value", "present.1.key",
                                      "present.1.value"}));
  // A node is named after its layer and its operator.
  const std::vector<std::string> nodes = graph.names(kGraphNode, kNodeName);
  for (const char* node : {"output/Gemm", "decoder.0.attention/Softmax", "rotary/Gather"})
    EXPECT_TRUE(std::count(nodes.begin(), nodes.end(), node)) << node;
  // A cache of one key head of eight columns: [batch_size, 1, past_sequence_length, 8].
  const std::string_view input = fields_of(graph.bytes, kGraphInput).at(3).bytes;
  const std::string_view type = fields_of(input, kValueType).at(0).bytes;
  const std::string_view tensor = fields_of(type, kTypeTensor).at(0).bytes;
  EXPECT_EQ(fields_of(tensor, kTensorTypeElement).at(0).value, 1u);
  const auto dims = fields_of(fields_of(tensor, kTensorTypeShape).at(0).bytes, kShapeDim);
  ASSERT_EQ(dims.size(), 4u);
  EXPECT_EQ(fields_of(dims[0].bytes, kDimName).at(0).bytes, "batch_size");
  EXPECT_EQ(fields_of(dims[1].bytes, kDimSize).at(0).value, 1u);
  EXPECT_EQ(fields_of(dims[2].bytes, kDimName).at(0).bytes, "past_sequence_length");
  EXPECT_EQ(fields_of(dims[3].bytes, kDimSize).at(0).value, 8u);
}

TEST_F(OnnxTest, WeightsAreStoredOnce) {
  const ModelConfig config = config_of(Architecture::encoder_decoder, true);
  const auto model = model_of(config);
  exported(*model, ExportFormat::onnx, "once");
  int64_t elements = config.max_positions * config.width;  // the table of positions
  size_t tensors = 1;
  for (size_t i = 0; i < model->parameters().count(); ++i, ++tensors)
    elements += model->parameters().value(static_cast<ParamId>(i)).numel();
  const uint64_t bytes = fs::file_size(path("once") / "model.onnx_data");
  EXPECT_GE(bytes, static_cast<uint64_t>(elements) * 4);
  EXPECT_LT(bytes, static_cast<uint64_t>(elements) * 4 + tensors * 64);
  const auto weights = [&](const char* file) {
    const fs::path place = path("once") / file;
    return read_onnx_weights(read_text_file(place, kMost), place.string());
  };
  const auto encoder = weights("encoder_model.onnx"), first = weights("decoder_model.onnx"),
             next = weights("decoder_with_past_model.onnx");
  EXPECT_EQ(encoder.at("embedding.weight").offset, next.at("embedding.weight").offset);
  EXPECT_EQ(first.at("decoder.0.ffn.up.weight").offset, next.at("decoder.0.ffn.up.weight").offset);
  EXPECT_TRUE(first.contains("decoder.cross_kv.weight"));
  EXPECT_FALSE(next.contains("decoder.cross_kv.weight"));  // its results are inputs there
}

// cos and sin of p * theta^(-2i / d) for the position p and the pair i of d columns.
TEST_F(OnnxTest, TheTableOfAnglesHasTheFormula) {
  const ModelConfig config = llama_config(1, true);
  exported(*model_of(config), ExportFormat::onnx, "angles");
  const auto weights =
      read_onnx_weights(read_text_file(path("angles") / "model.onnx", kMost), "graph");
  const std::string data = read_text_file(path("angles") / "model.onnx_data", kMost);
  const int64_t pairs = spec_of(config).decoder.attention.head_dim / 2;
  for (const bool is_sine : {false, true}) {
    const OnnxStoredWeight& stored = weights.at(is_sine ? "rotary.sines" : "rotary.cosines");
    ASSERT_EQ(stored.shape, (std::vector<int64_t>{config.max_positions, pairs}));
    std::vector<float> table(stored.bytes / sizeof(float));
    ASSERT_EQ(table.size(), static_cast<size_t>(config.max_positions * pairs));
    std::memcpy(table.data(), data.data() + stored.offset, stored.bytes);
    for (size_t at = 0; at < table.size(); ++at) {
      const auto position = static_cast<double>(static_cast<int64_t>(at) / pairs);
      const auto pair = static_cast<double>(static_cast<int64_t>(at) % pairs);
      const double angle =
          position / std::pow(config.rope_theta, pair / static_cast<double>(pairs));
      EXPECT_NEAR(table[at], is_sine ? std::sin(angle) : std::cos(angle), 1e-6) << at;
    }
  }
}

TEST_F(OnnxTest, TheTableOfPositionsIsTheModels) {
  ModelConfig config = config_of(Architecture::encoder_decoder, true);
  for (const bool fairseq : {false, true}) {
    config.fairseq_positions = fairseq;
    fs::remove_all(path("positions"));
    exported(*model_of(config), ExportFormat::onnx, "positions");
    const std::string data = read_text_file(path("positions") / "model.onnx_data", kMost);
    const OnnxStoredWeight stored =
        read_onnx_weights(read_text_file(path("positions") / "encoder_model.onnx", kMost), "graph")
            .at("positions");
    std::vector<float> table(stored.bytes / sizeof(float));
    std::memcpy(table.data(), data.data() + stored.offset, stored.bytes);
    EXPECT_EQ(table,
              context_->values<float>(fixed_positions(*context_, spec_of(config), DType::f32)));
    EXPECT_EQ(table[0] == 0, !fairseq);  // sin(0) is of the position 0
  }
}

TEST_F(OnnxTest, ConfigurationsHaveTheSizesOfTheGraph) {
  const auto config_of_export = [&](const ModelConfig& config) {
    fs::remove_all(path("sizes"));
    exported(*model_of(config), ExportFormat::onnx, "sizes");
    return FileJson::parse(read_text_file(path("sizes") / "config.json", kMost));
  };
  ModelConfig rotary = config_of(Architecture::decoder_lm, true);
  rotary.positions = Positions::rotary;
  rotary.kv_heads = 1;
  const FileJson llama = config_of_export(rotary);
  EXPECT_EQ(llama["model_type"], "llama");
  EXPECT_EQ(llama["num_key_value_heads"], 1);
  EXPECT_EQ(llama["hidden_act"], "relu");
  const FileJson gpt2 = config_of_export(config_of(Architecture::decoder_lm, false));
  EXPECT_EQ(gpt2["model_type"], "gpt2");
  EXPECT_EQ(gpt2["n_layer"], 2);
  ModelConfig separate = config_of(Architecture::encoder_decoder, true);
  separate.tied_embeddings = false;
  const FileJson marian = config_of_export(separate);
  EXPECT_EQ(marian["model_type"], "marian");
  EXPECT_EQ(marian["normalize_before"], true);
  EXPECT_EQ(marian["tie_word_embeddings"], false);
}

TEST_F(OnnxTest, WhatWasDamagedIsNamed) {
  const ModelConfig config = llama_config(1, true);
  damaged(config, "model.onnx_data", "is beyond the end of the file",
          [](std::string& bytes) { bytes.resize(bytes.size() - 4); });
  damaged(config, "model.onnx", "truncated",
          [](std::string& bytes) { bytes.resize(bytes.size() - 1); });
  damaged(config, "model.onnx", "is in model.onnx_dato",
          [](std::string& bytes) { replace(bytes, "model.onnx_data", "model.onnx_dato"); });
  damaged(config, "model.onnx", "which nothing gives it", [](std::string& bytes) {
    replace(bytes, "decoder.0.ffn.gate_up/MatMul_output_0",
            "decoder.0.ffn.gate_up/MatMul_output_9");
  });
  damaged(config, "model.onnx", "embedding.weight is in no graph", [](std::string& bytes) {
    for (int i = 0; i < 3; ++i) replace(bytes, "embedding.weight", "embedding.wEight");
  });
  ModelConfig other = config;
  other.ffn_width *= 2;
  expect_error(ErrorCode::corrupt_file, "has another shape", [&] {
    read_back_onnx(make_host_model(other), ExportWeights::float32, path("damaged"));
  });
  // Cosines of another base are another table.
  damaged(config, "model.onnx_data", "rotary.cosines is another table", [&](std::string& bytes) {
    const fs::path graph = path("damaged") / "model.onnx";
    const auto weights = read_onnx_weights(read_text_file(graph, kMost), "graph");
    bytes[weights.at("rotary.cosines").offset + 3] ^= 1;
  });
}

TEST_F(OnnxTest, TheVersionsAreChecked) {
  const auto read = [](int64_t ir, int64_t opset) {
    WireWriter operators, model;
    operators.integer(kOpsetVersion, opset);
    model.integer(kModelIrVersion, ir);
    model.bytes(kModelOpset, operators.message());
    model.bytes(kModelGraph, "");
    read_onnx_weights(model.message(), "handmade");
  };
  EXPECT_NO_THROW(read(kOnnxIrVersion, kOnnxOpset));
  expect_error(ErrorCode::corrupt_file, "its IR version is 9", [&] { read(9, kOnnxOpset); });
  expect_error(ErrorCode::corrupt_file, "its opset is 16", [&] { read(kOnnxIrVersion, 16); });
  expect_error(ErrorCode::corrupt_file, "lacks its field 1",
               [] { read_onnx_weights("", "empty"); });
}

TEST_F(OnnxTest, ConstantsAreSharedAndNodesCounted) {
  const HostModel host = make_host_model(llama_config(0, true));
  OnnxWeights weights(host, ExportWeights::float32);
  OnnxGraph graph("sum", weights);
  const OnnxValue x = graph.input("x", OnnxType::f32, {"n"});
  graph.set_scope("layer");
  const OnnxValue sum = graph.node("Add", {x, graph.scalar(0.5)});
  const OnnxValue again = graph.node("Add", {sum, graph.scalar(0.5)});
  graph.output(again, "y", OnnxType::f32, {"n"});
  write_file_atomically(path("sum"), graph.serialize());
  const Graph stored(path("sum"));
  EXPECT_EQ(stored.names(kGraphNode, kNodeName),
            (std::vector<std::string>{"layer/Add", "layer/Add_1"}));
  EXPECT_EQ(stored.names(kGraphInitializer, kTensorName).size(), 1u);
  EXPECT_EQ(stored.names(kGraphOutput, kValueName), std::vector<std::string>{"y"});
  expect_error(ErrorCode::internal, "layer/Add_2 has an undefined input", [&] {
    graph.node("Add", {x, OnnxValue{}});
  });
  graph.parameter("embedding.weight");
  expect_error(ErrorCode::internal, "embedding.weight has two forms",
               [&] { graph.parameter("embedding.weight", true); });
  expect_error(ErrorCode::internal, "has no parameter nothing",
               [&] { graph.parameter("nothing"); });
}

TEST_F(OnnxTest, Int8HasCodesAndScalesOfEveryMatrix) {
  for (const bool tied : {true, false})
    for (const Architecture architecture :
         {Architecture::encoder_decoder, Architecture::decoder_lm}) {
      ModelConfig config = config_of(architecture, true);
      config.tied_embeddings = tied;
      const auto model = model_of(config);
      fs::remove_all(path("int8"));
      const double difference = export_model(*context_, *model, tokenizer(), ExportFormat::onnx,
                                             path("int8"), ExportWeights::int8);
      EXPECT_GT(difference, 0);
      EXPECT_LT(difference, 0.1);
      const HostModel host = copy_to_host(*context_, *model);
      const HostModel again = read_back_onnx(host, ExportWeights::int8, path("int8"));
      const char* graph = spec_of(config).encoder ? "decoder_model.onnx" : "model.onnx";
      const auto weights = read_onnx_weights(read_text_file(path("int8") / graph, kMost), graph);
      for (const auto& [name, stored] : weights) {
        const ParamId id = host.parameters().find(name);
        if (id == kNoParam) continue;  // a table, or scales
        const bool is_matrix = host.parameters().value(id).rank() == 2;
        EXPECT_EQ(stored.type == OnnxType::i8, is_matrix) << name;
        EXPECT_EQ(weights.contains(OnnxWeights::scale_name(name)), is_matrix) << name;
        if (is_matrix) {
          const int64_t outputs = host.parameters().value(id).dim(0);
          EXPECT_EQ(weights.at(OnnxWeights::scale_name(name)).shape, std::vector{outputs}) << name;
        }
      }
      const std::vector<std::string> nodes =
          Graph(path("int8") / graph).names(kGraphNode, kNodeOperator);
      EXPECT_EQ(std::count(nodes.begin(), nodes.end(), "MatMulInteger"),
                std::count(nodes.begin(), nodes.end(), "DynamicQuantizeLinear"));
      EXPECT_EQ(std::count(nodes.begin(), nodes.end(), "Gemm"), 0);
    }
}

TEST_F(OnnxTest, AnInt8FileThatWasDamagedIsNamed) {
  const ModelConfig config = llama_config(1, true);
  const auto model = model_of(config);
  const HostModel host = copy_to_host(*context_, *model);
  export_model(*context_, *model, tokenizer(), ExportFormat::onnx, path("codes"),
               ExportWeights::int8);
  const auto weights =
      read_onnx_weights(read_text_file(path("codes") / "model.onnx", kMost), "graph");
  const std::string whole = read_text_file(path("codes") / "model.onnx_data", kMost);
  const auto refused = [&](const char* tensor, const char* text) {
    std::string bytes = whole;
    bytes[weights.at(tensor).offset + 1] ^= 0x10;
    write_file_atomically(path("codes") / "model.onnx_data", bytes);
    expect_error(ErrorCode::corrupt_file, text,
                 [&] { read_back_onnx(host, ExportWeights::int8, path("codes")); });
  };
  refused("decoder.0.ffn.down.weight", "decoder.0.ffn.down.weight: value 1 was read as");
  refused("embedding.weight", "embedding.weight: value 1 was read as");
  refused("decoder.0.ffn.down.weight_scale", "decoder.0.ffn.down.weight_scale is another table");
  write_file_atomically(path("codes") / "model.onnx_data", whole);
  expect_error(ErrorCode::corrupt_file, "has another shape",
               [&] { read_back_onnx(host, ExportWeights::float32, path("codes")); });
}

}  // namespace
}  // namespace trafo
