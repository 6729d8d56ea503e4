#include "engine/train/checkpoint/average.h"

#include <cstring>
#include <string>
#include <vector>

#include "engine/io/safetensors.h"
#include "engine/models/adapter.h"
#include "engine/models/int8_weights.h"
#include "engine/models/model_io.h"
#include "engine/train/checkpoint/checkpoint_files.h"

namespace trafo {
namespace {

constexpr const char* kAverageOrigin = "average";
// Metadata key of the result: the number of averaged models.
constexpr const char* kAveragedKey = "averaged_models";

std::string shape_of(const TensorInfo& info) {
  return Shape(std::span<const int64_t>(info.shape)).str();
}

void check_alike(const SafetensorsReader& first, const SafetensorsReader& other) {
  const auto refuse = [&](const auto&... what) {
    fail(ErrorCode::invalid_argument, kAverageOrigin, other.label(), " cannot be averaged with ",
         first.label(), ": ", what...);
  };
  for (const TensorInfo& a : first.tensors()) {
    const TensorInfo* b = other.find(a.name);
    if (b == nullptr) refuse("it lacks the tensor ", a.name);
    if (a.shape != b->shape) refuse(a.name, " is ", shape_of(*b), ", not ", shape_of(a));
    if (a.foreign != b->foreign) refuse(a.name, " is ", b->foreign, ", not ", a.foreign);
    if (a.dtype != b->dtype)
      refuse(a.name, " is ", dtype_name(b->dtype), ", not ", dtype_name(a.dtype));
  }
  for (const TensorInfo& b : other.tensors())
    if (first.find(b.name) == nullptr) refuse("it has the tensor ", b.name, " besides");
  const std::string fields =
      describe_differences(read_model_config(other), read_model_config(first));
  if (!fields.empty()) refuse("its configuration differs (here: the first file): ", fields);
  const auto adapter_of = [](const SafetensorsReader& reader) {
    return read_meta_model(reader).model->adapter();
  };
  if (const auto a = adapter_of(first), b = adapter_of(other); a != b)
    refuse("it has ", describe(b), ", not ", describe(a));
  const std::string ours = read_vocabulary_checksum(first),
                    theirs = read_vocabulary_checksum(other);
  if (!ours.empty() && !theirs.empty() && ours != theirs) refuse("it has another vocabulary");
}

template <class T>
std::vector<std::byte> mean_of(std::span<const SafetensorsReader> readers, const TensorInfo& info) {
  const size_t count = info.bytes / sizeof(T);
  std::vector<T> values(count);
  std::vector<double> sum(count);
  for (const SafetensorsReader& reader : readers) {
    reader.read(info.name, std::as_writable_bytes(std::span(values)));
    for (size_t i = 0; i < count; ++i) sum[i] += static_cast<double>(values[i]);
  }
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(sum[i] / static_cast<double>(readers.size()));
  std::vector<std::byte> bytes(info.bytes);
  if (count > 0) std::memcpy(bytes.data(), values.data(), info.bytes);
  return bytes;
}

// Codes of frozen matrices, which all models must share.
std::vector<std::byte> shared_codes(std::span<const SafetensorsReader> readers,
                                    const TensorInfo& info) {
  std::vector<std::byte> first(info.bytes), other(info.bytes);
  readers.front().read(info.name, first);
  for (const SafetensorsReader& reader : readers) {
    reader.read(info.name, other);
    require(other == first, ErrorCode::invalid_argument, kAverageOrigin, reader.label(),
            " cannot be averaged with ", readers.front().label(), ": ", info.name,
            " has other codes");
  }
  return first;
}

}  // namespace

void average_models(std::span<const std::filesystem::path> models,
                    const std::filesystem::path& output) {
  require(!models.empty(), ErrorCode::invalid_argument, kAverageOrigin,
          "there is no model to average");
  std::vector<SafetensorsReader> readers;
  for (const std::filesystem::path& model : models) {
    readers.push_back(open_model(model, ElementTypes::ours_and_codes));
    require(stored_weights(readers.back()) == StoredWeights::floats, ErrorCode::unsupported,
            kAverageOrigin, readers.back().label(),
            " has int8 weights: average float models, then quantize the result");
    read_model_config(readers.back());
    check_alike(readers.front(), readers.back());
  }
  std::vector<std::vector<std::byte>> storage;
  std::vector<TensorEntry> entries;
  for (const TensorInfo& info : readers.front().tensors()) {
    if (!info.foreign.empty()) {
      storage.push_back(shared_codes(readers, info));
      entries.push_back({info.name, info.dtype, info.shape, {}, info.foreign});
      continue;
    }
    require(info.dtype == DType::f32 || info.dtype == DType::f64, ErrorCode::unsupported,
            kAverageOrigin, readers.front().label(), ": ", info.name, " is ",
            dtype_name(info.dtype), ", weights are float32 or float64");
    storage.push_back(info.dtype == DType::f64 ? mean_of<double>(readers, info)
                                               : mean_of<float>(readers, info));
    entries.push_back({info.name, info.dtype, info.shape, {}});
  }
  for (size_t i = 0; i < entries.size(); ++i) entries[i].data = storage[i];
  SafetensorsMetadata metadata = readers.front().metadata();
  metadata[kAveragedKey] = std::to_string(models.size());
  save_safetensors(output, entries, metadata);
}

}  // namespace trafo
