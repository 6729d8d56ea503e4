// Shared by the formats: JSON files read with checks, text files written, tensors in and out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/core/strings/json.h"
#include "engine/formats/expressible.h"
#include "engine/formats/host_model.h"
#include "engine/formats/tensor_map.h"
#include "engine/formats/weight_files.h"
#include "engine/io/safetensors.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo::interop {

// INVALID_ARGUMENT unless the tokenizer has one token for every row of the embeddings.
void check_vocabulary(const ModelSpec& spec, const Tokenizer& tokenizer);

void write_json(const std::filesystem::path& file, const Json& value);
// Writes the tensors of the table and no others, as float32 or, of a host model that is, as
// bfloat16. One tensor at a time is copied.
void write_tensors(const std::filesystem::path& file, const HostModel& host,
                   const std::vector<MappedTensor>& tensors);

// Sets torch_dtype of config.json to bfloat16 if the weights are.
void write_weight_type(const std::filesystem::path& directory);

// A JSON object of a configuration file, read field by field. CORRUPT_FILE names file and field.
class ConfigReader {
 public:
  explicit ConfigReader(const std::filesystem::path& file);

  bool has(const char* field) const;    // the field exists and is not null
  bool names(const char* field) const;  // the field exists
  int64_t integer(const char* field, int64_t low, int64_t high) const;
  // A list of them, or one.
  std::vector<int64_t> integers(const char* field, int64_t low, int64_t high) const;
  double number(const char* field) const;
  double number(const char* field, double otherwise) const;
  bool flag(const char* field, bool otherwise) const;
  std::string text(const char* field) const;
  std::vector<std::string> texts(const char* field) const;  // a list of them
  // UNSUPPORTED unless `field` (or, where it is missing, `otherwise`) is `wanted`. null is false.
  void demand(const char* field, bool wanted, bool otherwise) const;
  // UNSUPPORTED if `other`, a second name of `field` in transformers, has another value.
  void demand_same(const char* other, const char* field) const;
  // UNSUPPORTED if `field` is there.
  void refuse(const char* field, const char* reason) const;
  // UNSUPPORTED, naming it, if there is another field than these.
  void allow(std::initializer_list<std::string_view> fields) const;
  const std::string& label() const { return label_; }
  // The object in `field`; its label names both.
  ConfigReader inside(const char* field) const;

 private:
  ConfigReader(std::string label, Json json) : label_(std::move(label)), json_(std::move(json)) {}
  const Json& at(const char* field) const;
  std::string label_;
  Json json_;
};

// CORRUPT_FILE, naming the file of `json`, if no model can have the configuration read from it.
void validate_read(const ModelConfig& config, const ConfigReader& json);

// Reads the tensors of the table into a model. Before it allocates, it checks that every tensor of
// the table is in the file with its shape, as F32, F64, BF16 or F16, and that all other tensors of
// the file satisfy `surplus`. `name` returns the name of a tensor in the file, or "" for one that
// is zero. If the directory was written from target.written, and the file has every weight of that
// model as it is and the model this configuration, the result is that model and takes no memory.
struct TensorSource {
  const WeightFiles& weights;
  std::function<std::string(const MappedTensor&)> name;
  std::function<bool(const TensorInfo&)> surplus;
};
HostModel read_tensors(const TensorSource& source, const ModelConfig& config,
                       const std::vector<MappedTensor>& tensors, const ReadTarget& target);
// UNSUPPORTED, naming the file, the tensor and its type, unless it is F32, F64, BF16 or F16.
void require_weight_type(const std::string& file, const TensorInfo& info);
// Makes float32 values, in order, of those of a type of two bytes, whose bytes are the second half
// of `values`.
void widen(const TensorInfo& info, std::span<float> values);
// The elements of a tensor as float32. `File` is a WeightFile or a SafetensorsReader. Errors as
// require_weight_type().
template <class File>
std::vector<float> read_floats(const File& file, const TensorInfo& info) {
  require_weight_type(file.label(), info);
  if (info.foreign.empty() && info.dtype == DType::f64) {
    std::vector<double> wide(info.bytes / sizeof(double));
    file.read(info, std::as_writable_bytes(std::span(wide)));
    return {wide.begin(), wide.end()};
  }
  const bool is_half = !info.foreign.empty() || info.dtype == DType::bf16;
  std::vector<float> values(info.bytes / (is_half ? 2 : 4));
  const std::span<std::byte> all = std::as_writable_bytes(std::span(values));
  file.read(info, all.last(info.bytes));
  if (is_half) widen(info, values);
  return values;
}
// CORRUPT_FILE unless the two tensors are equal; `copy` may be missing.
void check_copy(const WeightFiles& weights, const std::string& original, const std::string& copy);

// The name of an activation function in transformers, and back.
const char* activation_to_name(Activation activation);
Activation activation_from_name(const ConfigReader& config, const char* field);
// The activation `name`, of which UNSUPPORTED says that it is the value of `field`.
Activation activation_named(const ConfigReader& config, const char* field, const std::string& name);

}  // namespace trafo::interop
