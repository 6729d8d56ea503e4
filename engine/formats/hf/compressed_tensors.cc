// The directory of compressed-tensors, which transformers and vLLM load: a Llama model whose linear
// layers are stored in 8 or 4 bits. The embeddings, lm_head, norms and biases stay float32.
//
//   int8  W8A8, "int-quantized": NAME.weight I8 [out, in] and NAME.weight_scale [out, 1]. A program
//         rounds the activations to 8 bits, with a scale of each token's own.
//   int4  W4A16, "pack-quantized": NAME.weight_packed I32 [out, in / 8], eight codes + 8 in a word,
//         the first in the lowest bits; NAME.weight_scale [out, in / 32]; NAME.weight_shape I64
//         [2].
//
// quant/weight_format.h has the rounding: formats::kCompressedInt8, formats::kCompressedInt4.
//
// There is no such form of GPT-2: transformers keeps its matrices as Conv1D, and the package
// compresses Linear alone.
#include <cstring>

#include "engine/core/file_memory.h"
#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/hf/lm_files.h"
#include "engine/formats/stored_weights.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCompressedFormat = "compressed-tensors";
constexpr int64_t kGroup = formats::kCompressedInt4.group;
constexpr int64_t kCodesInWord = 8;  // of 4 bits in 32

const WeightFormat& format_of(ExportWeights weights) {
  return weights == ExportWeights::int8 ? formats::kCompressedInt8 : formats::kCompressedInt4;
}

bool is_compressed(const MappedTensor& tensor) {
  return tensor.shape.size() == 2 && tensor.name != "model.embed_tokens.weight" &&
         tensor.name != "lm_head.weight";
}

int64_t group_size(const MappedTensor& tensor, ExportWeights weights) {
  return weights == ExportWeights::int8 ? tensor.shape[1] : kGroup;
}

// ---- the files ----

struct FilePart {
  std::string name;
  DType dtype;
  std::string foreign;  // see TensorEntry
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

template <class Element>
std::vector<std::byte> raw_bytes(const std::vector<Element>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

template <class Element>
std::vector<Element> elements_of(const std::vector<std::byte>& bytes) {
  std::vector<Element> values(bytes.size() / sizeof(Element));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The tensors that stand for one of the model's, the scale after the codes.
std::vector<FilePart> parts_of(const MappedTensor& tensor, const std::vector<float>& values,
                               ExportWeights weights) {
  if (!is_compressed(tensor))
    return {{tensor.name, DType::f32, "", tensor.shape, raw_bytes(values)}};
  const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  const int64_t group = group_size(tensor, weights);
  const Codes<int8_t> compressed = to_codes<int8_t>(format_of(weights), values, columns);
  const std::vector<std::byte> codes = pack_codes(format_of(weights), compressed.codes);
  FilePart scale{tensor.name + "_scale",
                 DType::f32,
                 "",
                 {rows, columns / group},
                 raw_bytes(compressed.scales)};
  if (weights == ExportWeights::int8)
    return {{tensor.name, DType::f32, "I8", tensor.shape, codes}, std::move(scale)};
  return {{tensor.name + "_packed", DType::i32, "", {rows, columns / kCodesInWord}, codes},
          std::move(scale),
          {tensor.name + "_shape", DType::f32, "I64", {2}, raw_bytes(tensor.shape)}};
}

Json weights_scheme(ExportWeights weights) {
  Json json;
  json["num_bits"] = format_of(weights).bits;
  json["type"] = "int";
  json["symmetric"] = true;
  json["strategy"] = weights == ExportWeights::int8 ? "channel" : "group";
  json["group_size"] = weights == ExportWeights::int8 ? Json(nullptr) : Json(kGroup);
  json["dynamic"] = false;
  return json;
}

Json activations_scheme(ExportWeights weights) {
  if (weights != ExportWeights::int8) return nullptr;
  Json json;
  json["num_bits"] = 8;
  json["type"] = "int";
  json["symmetric"] = true;
  json["strategy"] = "token";
  json["dynamic"] = true;  // scales are computed when the model runs
  return json;
}

Json quantization_config(ExportWeights weights) {
  const char* format = weights == ExportWeights::int8 ? "int-quantized" : "pack-quantized";
  Json group;
  group["targets"] = Json::List{"Linear"};
  group["weights"] = weights_scheme(weights);
  group["input_activations"] = activations_scheme(weights);
  group["output_activations"] = nullptr;
  group["format"] = format;
  Json json;
  json["quant_method"] = "compressed-tensors";
  json["format"] = format;
  json["quantization_status"] = "compressed";
  json["config_groups"]["group_0"] = std::move(group);
  json["ignore"] = Json::List{"lm_head"};
  json["kv_cache_scheme"] = nullptr;
  return json;
}

void check_groups(const StackSpec& decoder, ExportWeights weights) {
  if (weights != ExportWeights::int4) return;
  const auto check = [&](const char* setting, int64_t width) {
    if (width % kGroup != 0)
      cannot_express(kCompressedFormat,
                     concat(setting, " ", width, " with --weights int4, whose groups have ", kGroup,
                            " values; train with a multiple of ", kGroup, " or use int8"));
  };
  check("--dim-emb", decoder.width);
  check("--transformer-dim-ffn", decoder.feed_forward.width);
  check("the width of all heads", decoder.attention.query_width());
}

}  // namespace

const Expressible& hf_compressed_expressible() {
  static const Expressible expressible{kCompressedFormat, hf_llama_expressible().forms};
  return expressible;
}

void write_compressed_tensors(const HostModel& host, const ExportVocabulary& vocabulary,
                              ExportWeights weights, const fs::path& directory) {
  check_groups(host.spec().decoder, weights);
  write_llama_files(host.spec(), vocabulary, directory, quantization_config(weights));
  std::vector<FileBytes> kept;  // not in memory beside the model
  std::vector<TensorEntry> entries;
  for (const MappedTensor& tensor : llama_tensors(host.config()))
    for (const FilePart& part : parts_of(tensor, gather(host.parameters(), tensor), weights)) {
      const FileBytes& bytes = kept.emplace_back(directory, part.bytes);
      entries.push_back({part.name, part.dtype, part.shape, bytes.span(), part.foreign});
    }
  save_safetensors(directory / "model.safetensors", entries, {{"format", "pt"}});
}

HostModel read_back_compressed_tensors(const HostModel& host, ExportWeights weights,
                                       const fs::path& directory) {
  const WeightFiles files = WeightFiles::open(directory);
  HostModel again =
      make_host_model(read_llama_config(directory / "config.json"), nullptr, directory);
  size_t known = 0;
  for (const MappedTensor& tensor : llama_tensors(host.config())) {
    const std::vector<float> original = gather(host.parameters(), tensor);
    std::vector<std::vector<std::byte>> bytes;
    for (const FilePart& part : parts_of(tensor, original, weights)) {
      const bool same = files.has(part.name) && files.at(part.name).info->shape == part.shape &&
                        files.at(part.name).info->foreign == part.foreign &&
                        (!part.foreign.empty() || files.at(part.name).info->dtype == part.dtype);
      require(same, ErrorCode::corrupt_file, kOrigin, files.label(), ": ", part.name,
              " is missing or another tensor");
      bytes.push_back(files.bytes(part.name));
    }
    known += bytes.size();
    std::vector<float> values;
    if (is_compressed(tensor))
      values = from_codes<int8_t>(format_of(weights), unpack_codes(format_of(weights), bytes[0]),
                                  elements_of<float>(bytes[1]), tensor.shape[1]);
    else
      values = elements_of<float>(bytes[0]);
    check_rounding(tensor.name, is_compressed(tensor) ? format_of(weights) : formats::kFloat32,
                   original, values, tensor.shape.back());
    scatter(again.parameters(), tensor, values);
  }
  require(known == files.tensors().size(), ErrorCode::corrupt_file, kOrigin, files.label(),
          " has tensors that were not written");
  return again;
}

}  // namespace trafo::interop
