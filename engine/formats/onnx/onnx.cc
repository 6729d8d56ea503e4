// A directory of ONNX graphs (opset 17) with one file of weights beside them, and with the
// configuration and the tokenizer of the transformers model with the same sizes. Files, inputs and
// outputs have the names that optimum gives them. The graph decides what is computed, so that every
// model can be exported, also one that no class of transformers has.
#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/onnx/onnx_models.h"
#include "engine/formats/onnx/onnx_read.h"
#include "engine/formats/stored_weights.h"
#include "engine/io/atomic_file.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kGraphBytes = 256u << 20;  // of a graph without weights

std::vector<OnnxFile> graphs_of(const HostModel& host, OnnxWeights& weights) {
  return host.spec().has_encoder() ? encoder_decoder_graphs(host, weights)
                                   : decoder_lm_graphs(host, weights);
}

std::string label_of(const OnnxWeight& weight, const fs::path& directory) {
  return concat((directory / kOnnxWeightsFile).string(), ": ", weight.tensor.name);
}

// The place of every weight, which all graphs that name it must agree about.
void read_places(const std::vector<OnnxFile>& files, const fs::path& directory,
                 std::map<std::string, OnnxStoredWeight>& places) {
  for (const OnnxFile& file : files) {
    const std::string label = (directory / file.name).string();
    const std::string bytes = read_text_file(directory / file.name, kGraphBytes, FollowLinks::no);
    for (auto& [name, stored] : read_onnx_weights(bytes, label)) {
      require(stored.location == kOnnxWeightsFile, ErrorCode::corrupt_file, kOrigin, label, ": ",
              name, " is in ", stored.location);
      const auto [known, is_new] = places.try_emplace(name, stored);
      require(
          is_new || (known->second.offset == stored.offset && known->second.bytes == stored.bytes &&
                     known->second.type == stored.type && known->second.shape == stored.shape),
          ErrorCode::corrupt_file, kOrigin, label, ": ", name, " is elsewhere in another graph");
    }
  }
}

std::vector<float> read_weight(const Descriptor& data, const OnnxWeight& weight,
                               const OnnxStoredWeight& stored, const std::string& label) {
  require(stored.shape == weight.tensor.shape && stored.bytes == weight.bytes,
          ErrorCode::corrupt_file, kOrigin, label, " has another shape");
  require(stored.type == weight.type, ErrorCode::corrupt_file, kOrigin, label,
          " is of another type");
  const uint64_t size = data.size();
  require(stored.offset <= size && stored.bytes <= size - stored.offset, ErrorCode::corrupt_file,
          kOrigin, label, " is beyond the end of the file");
  std::vector<std::byte> bytes(stored.bytes);
  const size_t count = data.read_at(stored.offset, bytes);
  require(count == stored.bytes, ErrorCode::corrupt_file, kOrigin, label, " ends too early");
  if (stored.type == OnnxType::i8)
    return converted<int8_t>(bytes, [](int8_t code) { return static_cast<float>(code); });
  return converted<float>(bytes, [](float value) { return value; });
}

}  // namespace

const Expressible& onnx_expressible() {
  static const Expressible expressible{"ONNX",
                                       {{{"architecture", "encoder-decoder decoder-lm"},
                                         {"norm", "layer rms"},
                                         {"positions", "sinusoidal fairseq learned rotary"},
                                         {"feed-forward", "plain gated"},
                                         {"norm placement", "before after"},
                                         {"biases", "none all"},
                                         {"kv_heads", "*"},
                                         {"qk_norm", "none head head-after-rotary"},
                                         {"rope_theta", "*"},
                                         {"activation", "*"},
                                         {"norm_epsilon", "*"},
                                         {"embeddings", "*"},
                                         {"embedding_scale", "*"},
                                         {"output_bias", "*"}}}};
  return expressible;
}

void write_onnx(const HostModel& host, const ExportVocabulary& vocabulary, ExportWeights type,
                const fs::path& directory) {
  const ModelSpec& spec = host.spec();
  if (spec.has_encoder())
    write_marian_files(spec, *vocabulary.tokenizer, directory);
  else if (spec.decoder.attention.rotary)
    write_llama_files(spec, vocabulary, directory);
  else
    write_gpt2_files(spec, vocabulary, directory);
  OnnxWeights weights(host, type);
  for (const OnnxFile& file : graphs_of(host, weights))
    write_file_atomically(directory / file.name, file.graph.serialize());
  weights.write(directory / kOnnxWeightsFile);
}

HostModel read_back_onnx(const HostModel& original, ExportWeights type, const fs::path& directory) {
  HostModel host = make_host_model(original.config(), nullptr, directory);
  OnnxWeights wanted(original, type);
  std::map<std::string, OnnxStoredWeight> places;
  read_places(graphs_of(original, wanted), directory, places);
  const Descriptor data = open_file_for_reading(directory / kOnnxWeightsFile, FollowLinks::no);
  size_t parameters = 0;
  const auto read = [&](const std::string& name, const OnnxWeight& weight) {
    const std::string label = label_of(weight, directory);
    const auto place = places.extract(name);
    require(!place.empty(), ErrorCode::corrupt_file, kOrigin, label, " is in no graph");
    return read_weight(data, weight, place.mapped(), label);
  };
  std::map<std::string, std::vector<float>> scales;
  for (const auto& [name, weight] : wanted.all()) {
    if (weight.type == OnnxType::i8) continue;  // after their scales
    const std::vector<float> values = read(name, weight);
    if (weight.tensor.parameter.empty()) {
      scales[name] = values;
      require(values == weight.values(), ErrorCode::corrupt_file, kOrigin,
              label_of(weight, directory), " is another table");
      continue;
    }
    scatter(host.parameters(), weight.tensor, values);
    ++parameters;
  }
  for (const auto& [name, weight] : wanted.all()) {
    if (weight.type != OnnxType::i8) continue;
    const std::vector<float> each = read(name, weight);
    const int64_t columns = weight.tensor.shape.at(1);
    const bool by_column = weight.tensor.transposed;
    const std::vector<int8_t> stored(each.begin(), each.end());
    const std::vector<float> values = from_codes<int8_t>(
        formats::kOnnxInt8, stored, scales.at(OnnxWeights::scale_name(name)), columns, by_column);
    check_rounding(label_of(weight, directory), formats::kOnnxInt8,
                   gather(original.parameters(), weight.tensor), values, columns, by_column);
    scatter(host.parameters(), weight.tensor, values);
    ++parameters;
  }
  require(places.empty(), ErrorCode::corrupt_file, kOrigin, directory.string(),
          " has a weight that the model has not");
  require(parameters == host.parameters().count(), ErrorCode::internal, kOrigin, "the graphs use ",
          parameters, " of ", host.parameters().count(), " parameters");
  return host;
}

}  // namespace trafo::interop
