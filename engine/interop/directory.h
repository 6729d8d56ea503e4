// What the formats share: JSON files read with care, text files written, tensors in and out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/interop/host_model.h"
#include "engine/interop/tensor_map.h"
#include "engine/io/safetensors.h"
#include "engine/tokenizer/tokenizer.h"

namespace trafo::interop {

using Json = nlohmann::ordered_json;  // for writing: lookups take time

inline constexpr const char* kOrigin = "interop";

// UNSUPPORTED: `setting` of the model cannot be said in `format`.
[[noreturn]] void cannot_express(const char* format, const std::string& setting);
// UNSUPPORTED for a model with RMS norm, rotary positions, SwiGLU or products without biases.
void refuse_llama_form(const char* format, const ModelConfig& config);
// INVALID_ARGUMENT unless the tokenizer has one piece for every row of the embeddings.
void check_vocabulary(const ModelConfig& config, const Tokenizer& tokenizer);

void write_json(const std::filesystem::path& file, const Json& value);
// Every tensor of the table and nothing else, float32.
void write_tensors(const std::filesystem::path& file, const HostModel& host,
                   const std::vector<MappedTensor>& tensors);

// A JSON object of a configuration file, asked field by field. CORRUPT_FILE names file and field.
class ConfigReader {
 public:
  explicit ConfigReader(const std::filesystem::path& file);

  bool has(const char* field) const;  // there and not null
  int64_t integer(const char* field, int64_t low, int64_t high) const;
  double number(const char* field) const;
  double number(const char* field, double otherwise) const;
  bool flag(const char* field, bool otherwise) const;
  std::string text(const char* field) const;
  // UNSUPPORTED unless `field` (or, where it is missing, `otherwise`) is `wanted`.
  void demand(const char* field, bool wanted, bool otherwise) const;
  const std::string& label() const { return label_; }
  // What `field`, an object, holds; the label names both.
  ConfigReader inside(const char* field) const;

 private:
  ConfigReader(std::string label, nlohmann::json json)
      : label_(std::move(label)), json_(std::move(json)) {}
  const nlohmann::json& at(const char* field) const;
  std::string label_;
  nlohmann::json json_;
};

// Reads the tensors of the table into the model. Checked before anything is allocated: every
// tensor is there with its shape, as F32, F64, BF16 or F16, the table says where; what else is in
// the file must satisfy `surplus`. `present` renames or leaves out: it returns the name in the file
// or "" for a tensor that is zero.
struct TensorSource {
  const SafetensorsReader& reader;
  std::function<std::string(const MappedTensor&)> name;
  std::function<bool(const TensorInfo&)> surplus;
};
HostModel read_tensors(const TensorSource& source, const ModelConfig& config,
                       const std::vector<MappedTensor>& tensors);
// The elements of one tensor as float32.
std::vector<float> read_floats(const SafetensorsReader& reader, const TensorInfo& info);
// CORRUPT_FILE unless the two tensors, of which `copy` may be missing, are equal.
void check_copy(const SafetensorsReader& reader, const std::string& original,
                const std::string& copy);

// DIR/model.safetensors; the error for directories with another kind of weights says what to do.
SafetensorsReader open_weights(const std::filesystem::path& directory);

// What transformers calls an activation function, and back.
const char* activation_to_name(Activation activation);
Activation activation_from_name(const ConfigReader& config, const char* field);

}  // namespace trafo::interop
