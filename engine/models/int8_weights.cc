#include "engine/models/int8_weights.h"

#include <cstring>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/int8_matrix.h"
#include "engine/core/checked.h"
#include "engine/io/safetensors_header.h"

namespace trafo {
namespace {

constexpr const char* kInt8WeightsOrigin = "model file";
constexpr const char* kInt8 = "int8";
constexpr const char* kInt8Type = "I8";
constexpr const char* kScaleSuffix = ".scale";

std::vector<int64_t> dims(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

const char* type_of(const TensorInfo& info) {
  return info.foreign.empty() ? dtype_name(info.dtype) : kInt8;
}

// The tensor `name` of the file, which must be of this type and shape.
const TensorInfo& checked_tensor(const SafetensorsReader& reader, const std::string& name,
                                 bool int8, const std::vector<int64_t>& shape) {
  const TensorInfo* info = reader.find(name);
  require(info != nullptr, ErrorCode::corrupt_file, kInt8WeightsOrigin, reader.label(),
          " lacks the tensor ", name);
  require(info->shape == shape, ErrorCode::corrupt_file, kInt8WeightsOrigin, reader.label(), ": ",
          name, " has the shape ", Shape(std::span<const int64_t>(info->shape)).str(),
          ", the model needs ", Shape(std::span<const int64_t>(shape)).str());
  const bool fits =
      int8 ? info->foreign == kInt8Type : info->foreign.empty() && info->dtype == DType::f32;
  require(fits, ErrorCode::corrupt_file, kInt8WeightsOrigin, reader.label(), ": ", name, " is ",
          type_of(*info), ", the model needs ", int8 ? kInt8 : dtype_name(DType::f32));
  return *info;
}

// Every tensor is one of the model's parameters, or the scales of an int8 one.
void require_known(const SafetensorsReader& reader, const ParameterStore& parameters, bool stored) {
  for (const TensorInfo& info : reader.tensors()) {
    if (parameters.find(info.name) != kNoParam) continue;
    const std::string_view name = info.name;
    const bool scale = stored && name.ends_with(kScaleSuffix);
    const ParamId id =
        scale ? parameters.find(std::string(name.substr(0, name.rfind('.')))) : kNoParam;
    require(id != kNoParam && parameters.is_int8(id), ErrorCode::corrupt_file, kInt8WeightsOrigin,
            reader.label(), " has the tensor ", info.name, ", which the model does not know");
  }
}

template <class T>
std::vector<T> read_values(const SafetensorsReader& reader, const TensorInfo& info) {
  std::vector<T> values(info.bytes / sizeof(T));
  reader.read(info, std::as_writable_bytes(std::span(values)));
  return values;
}

template <class Make>
Int8Matrix named_matrix(const SafetensorsReader& reader, const std::string& name, ErrorCode code,
                        Make&& make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    fail(code, kInt8WeightsOrigin, reader.label(), ": ", name, ": ", error.message());
  }
}

Int8Matrix read_matrix(ThreadPool& pool, const SafetensorsReader& reader,
                       const ParameterStore& parameters, ParamId id, bool stored) {
  const std::string& name = parameters.name(id);
  const Shape& shape = parameters.shape(id);
  require(shape[1] <= Int8Matrix::kMaxColumns, ErrorCode::unsupported, kInt8WeightsOrigin,
          reader.label(), ": ", name, " has rows of ", shape[1],
          " elements, int8 weights have at most ", Int8Matrix::kMaxColumns);
  const TensorInfo& info = checked_tensor(reader, name, stored, dims(shape));
  if (!stored) {
    const std::vector<float> values = read_values<float>(reader, info);
    return named_matrix(reader, name, ErrorCode::invalid_argument, [&] {
      return Int8Matrix::quantized(pool, values.data(), shape[0], shape[1]);
    });
  }
  const TensorInfo& scale_info = checked_tensor(reader, name + kScaleSuffix, false, {shape[0]});
  const std::vector<int8_t> codes = read_values<int8_t>(reader, info);
  const std::vector<float> scales = read_values<float>(reader, scale_info);
  return named_matrix(reader, name, ErrorCode::corrupt_file,
                      [&] { return Int8Matrix::from_codes(pool, codes, scales, shape[1]); });
}

}  // namespace

bool has_int8_weights(const SafetensorsReader& reader) {
  const auto found = reader.metadata().find(kQuantizationKey);
  if (found != reader.metadata().end()) {
    require(found->second == kInt8, ErrorCode::unsupported, kInt8WeightsOrigin, reader.label(),
            " has the quantization ", quote(found->second), ", this release knows int8");
    return true;
  }
  for (const TensorInfo& info : reader.tensors())
    require(info.foreign.empty(), ErrorCode::corrupt_file, kInt8WeightsOrigin, reader.label(), ": ",
            info.name, " is int8, but the metadata has no '", kQuantizationKey, "'");
  return false;
}

void read_int8_weights(Context& context, const SafetensorsReader& reader, Model& model) {
  ThreadPool* pool = cpu_thread_pool(context.backend());
  require(pool != nullptr, ErrorCode::internal, kInt8WeightsOrigin,
          "int8 weights are read on the CPU");
  ParameterStore& parameters = model.parameters();
  const bool stored = has_int8_weights(reader);
  require_known(reader, parameters, stored);
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (parameters.is_int8(id)) {
      parameters.set_int8(id, read_matrix(*pool, reader, parameters, id, stored));
      continue;
    }
    const TensorInfo& info =
        checked_tensor(reader, parameters.name(id), false, dims(parameters.shape(id)));
    const std::vector<float> values = read_values<float>(reader, info);
    parameters.set_value(context, id, values.data(), values.size() * sizeof(float));
  }
}

void add_int8_entries(Context& context, const ParameterStore& parameters,
                      std::vector<std::vector<std::byte>>& storage,
                      std::vector<TensorEntry>& entries, SafetensorsMetadata& metadata) {
  ThreadPool* pool = cpu_thread_pool(context.backend());
  require(pool != nullptr, ErrorCode::internal, kInt8WeightsOrigin, "int8 weights are on the CPU");
  metadata[kQuantizationKey] = kInt8;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!parameters.is_int8(id)) continue;
    const Weight weight = parameters.weight(id);
    const Int8Matrix& matrix = *weight.int8;
    std::vector<std::byte>& codes =
        storage.emplace_back(static_cast<size_t>(matrix.rows() * matrix.columns()));
    matrix.read_codes(*pool, {reinterpret_cast<int8_t*>(codes.data()), codes.size()});
    entries.push_back(
        {parameters.name(id), DType::f32, dims(parameters.shape(id)), codes, kInt8Type});
    const auto scales = std::as_bytes(matrix.scales());
    std::vector<std::byte>& copy = storage.emplace_back(scales.begin(), scales.end());
    entries.push_back({parameters.name(id) + kScaleSuffix, DType::f32, {matrix.rows()}, copy, {}});
  }
}

}  // namespace trafo
