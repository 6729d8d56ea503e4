#include "engine/models/int8_weights.h"

#include <bit>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/int8_matrix.h"
#include "engine/core/checked.h"
#include "engine/io/safetensors_header.h"

namespace trafo {
namespace {

constexpr const char* kInt8WeightsOrigin = "model file";
constexpr const char* kInt8 = "int8";
constexpr const char* kMixed = "mixed";
constexpr const char* kInt8Type = "I8";
constexpr const char* kInt4Type = "U8";
constexpr const char* kHalfType = "F16";
constexpr const char* kFloatType = "F32";
constexpr const char* kBfloatType = "BF16";
constexpr const char* kScaleSuffix = ".scale";

std::vector<int64_t> shape_dims(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

// The type of a tensor in the words of messages.
std::string type_name(std::string_view type) {
  if (type == kInt8Type) return kInt8;
  if (type == kFloatType) return dtype_name(DType::f32);
  if (type == kBfloatType) return dtype_name(DType::bf16);
  return std::string(type);
}

std::string type_of(const TensorInfo& info) {
  return info.foreign.empty() ? dtype_name(info.dtype) : type_name(info.foreign);
}

bool has_type(const TensorInfo& info, std::string_view type) {
  if (type == kFloatType) return info.foreign.empty() && info.dtype == DType::f32;
  if (type == kBfloatType) return info.foreign.empty() && info.dtype == DType::bf16;
  return info.foreign == type;
}

const TensorInfo& known_tensor(const SafetensorsReader& reader, const std::string& name) {
  const TensorInfo* info = reader.find(name);
  require(info != nullptr, ErrorCode::corrupt_file, kInt8WeightsOrigin, reader.label(),
          " lacks the tensor ", name);
  return *info;
}

// The tensor `name` of the file, which must be of this type and shape.
const TensorInfo& checked_tensor(const SafetensorsReader& reader, const std::string& name,
                                 std::string_view type, const std::vector<int64_t>& shape) {
  const TensorInfo& info = known_tensor(reader, name);
  require(info.shape == shape, ErrorCode::corrupt_file, kInt8WeightsOrigin, reader.label(), ": ",
          name, " has the shape ", Shape(std::span<const int64_t>(info.shape)).str(),
          ", the model needs ", Shape(std::span<const int64_t>(shape)).str());
  require(has_type(info, type), ErrorCode::corrupt_file, kInt8WeightsOrigin, reader.label(), ": ",
          name, " is ", type_of(info), ", the model needs ", type_name(type));
  return info;
}

// Every tensor is one of the model's parameters, or the scales of one that has codes.
void require_known(const SafetensorsReader& reader, const ParameterStore& parameters,
                   StoredWeights stored) {
  for (const TensorInfo& info : reader.tensors()) {
    if (parameters.find(info.name) != kNoParam) continue;
    const std::string_view name = info.name;
    const bool scale = stored != StoredWeights::floats && name.ends_with(kScaleSuffix);
    const std::string matrix(scale ? name.substr(0, name.rfind('.')) : "");
    const ParamId id = scale ? parameters.find(matrix) : kNoParam;
    const TensorInfo* codes = scale ? reader.find(matrix) : nullptr;
    const bool is_float =
        stored == StoredWeights::mixed && codes != nullptr && has_type(*codes, kFloatType);
    require(id != kNoParam && parameters.is_int8(id) && !is_float, ErrorCode::corrupt_file,
            kInt8WeightsOrigin, reader.label(), " has the tensor ", info.name,
            ", which the model does not know");
  }
}

template <class T>
std::vector<T> read_values(const SafetensorsReader& reader, const TensorInfo& info) {
  std::vector<T> values(info.bytes / sizeof(T));
  reader.read(info, std::as_writable_bytes(std::span(values)));
  return values;
}

// Says in which matrix of the file an error is.
template <class Make>
void in_matrix(const SafetensorsReader& reader, const std::string& name, ErrorCode code,
               Make&& make) {
  try {
    make();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    fail(code, kInt8WeightsOrigin, reader.label(), ": ", name, ": ", error.message());
  }
}

// The scales of int8 rows. Files of before have them as float32.
std::vector<float> read_int8_scales(const SafetensorsReader& reader, const std::string& name,
                                    int64_t rows) {
  if (has_type(known_tensor(reader, name), kFloatType))
    return read_values<float>(reader, checked_tensor(reader, name, kFloatType, {rows}));
  const auto halves =
      read_values<uint16_t>(reader, checked_tensor(reader, name, kBfloatType, {rows}));
  std::vector<float> scales;
  for (const uint16_t half : halves)
    scales.push_back(std::bit_cast<float>(static_cast<uint32_t>(half) << 16));
  return scales;
}

void read_int8_matrix(ThreadPool& pool, const SafetensorsReader& reader, ParameterStore& parameters,
                      ParamId id) {
  const std::string& name = parameters.name(id);
  const Shape& shape = parameters.shape(id);
  const auto codes =
      read_values<int8_t>(reader, checked_tensor(reader, name, kInt8Type, shape_dims(shape)));
  const std::vector<float> scales = read_int8_scales(reader, name + kScaleSuffix, shape[0]);
  in_matrix(reader, name, ErrorCode::corrupt_file, [&] {
    parameters.set_int8(id, Int8Matrix::from_codes(pool, codes, scales, shape[1]));
  });
}

void read_int4_matrix(Context& context, const SafetensorsReader& reader, ParameterStore& parameters,
                      ParamId id) {
  const std::string& name = parameters.name(id);
  const int64_t rows = parameters.shape(id)[0], columns = parameters.shape(id)[1];
  const int64_t groups = (columns + Int4Matrix::kGroup - 1) / Int4Matrix::kGroup;
  auto codes = read_values<uint8_t>(
      reader, checked_tensor(reader, name, kInt4Type, {rows, (columns + 1) / 2}));
  auto scales = read_values<uint16_t>(
      reader, checked_tensor(reader, name + kScaleSuffix, kHalfType, {rows, groups}));
  in_matrix(reader, name, ErrorCode::corrupt_file, [&] {
    parameters.set_int4(context, id,
                        Int4Matrix::from_codes(std::move(codes), std::move(scales), rows, columns));
  });
}

void read_matrix(Context& context, ThreadPool& pool, const SafetensorsReader& reader,
                 ParameterStore& parameters, ParamId id, StoredWeights stored) {
  const std::string& name = parameters.name(id);
  const Shape& shape = parameters.shape(id);
  const TensorInfo& info = known_tensor(reader, name);
  const bool mixed = stored == StoredWeights::mixed;
  if (mixed && has_type(info, kFloatType)) {
    const auto values =
        read_values<float>(reader, checked_tensor(reader, name, kFloatType, shape_dims(shape)));
    return parameters.keep_float(context, id, values);
  }
  require(shape[1] <= Int8Matrix::kMaxColumns, ErrorCode::unsupported, kInt8WeightsOrigin,
          reader.label(), ": ", name, " has rows of ", shape[1],
          " elements, int8 weights have at most ", Int8Matrix::kMaxColumns);
  if (mixed && has_type(info, kInt4Type)) return read_int4_matrix(context, reader, parameters, id);
  if (stored != StoredWeights::floats) return read_int8_matrix(pool, reader, parameters, id);
  const auto values =
      read_values<float>(reader, checked_tensor(reader, name, kFloatType, shape_dims(shape)));
  in_matrix(reader, name, ErrorCode::invalid_argument, [&] {
    parameters.set_int8(id, Int8Matrix::quantized(pool, values.data(), shape[0], shape[1]));
  });
}

template <class T>
std::span<const std::byte> kept(std::vector<std::vector<std::byte>>& storage,
                                std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return storage.emplace_back(bytes.begin(), bytes.end());
}

// As bfloat16, or as float32 if the model was read from a file with such scales.
TensorEntry int8_scale_entry(std::string name, std::span<const float> scales,
                             std::vector<std::vector<std::byte>>& storage) {
  const auto rows = static_cast<int64_t>(scales.size());
  std::vector<uint16_t> halves;
  for (const float scale : scales) {
    const auto bits = std::bit_cast<uint32_t>(scale);
    if ((bits & 0xffffu) != 0)
      return {std::move(name), DType::f32, {rows}, kept(storage, scales), {}};
    halves.push_back(static_cast<uint16_t>(bits >> 16));
  }
  return {
      std::move(name), DType::bf16, {rows}, kept(storage, std::span<const uint16_t>(halves)), {}};
}

}  // namespace

StoredWeights stored_weights(const SafetensorsReader& reader) {
  const auto found = reader.metadata().find(kQuantizationKey);
  if (found != reader.metadata().end()) {
    require(found->second == kInt8 || found->second == kMixed, ErrorCode::unsupported,
            kInt8WeightsOrigin, reader.label(), " has the quantization ", quote(found->second),
            ", this release knows int8 and mixed");
    return found->second == kInt8 ? StoredWeights::int8 : StoredWeights::mixed;
  }
  for (const TensorInfo& info : reader.tensors())
    require(info.foreign.empty(), ErrorCode::corrupt_file, kInt8WeightsOrigin, reader.label(), ": ",
            info.name, " is ", type_of(info), ", but the metadata has no '", kQuantizationKey, "'");
  return StoredWeights::floats;
}

void read_int8_weights(Context& context, const SafetensorsReader& reader, Model& model) {
  ThreadPool* pool = cpu_thread_pool(context.backend());
  require(pool != nullptr, ErrorCode::internal, kInt8WeightsOrigin,
          "int8 weights are read on the CPU");
  ParameterStore& parameters = model.parameters();
  const StoredWeights stored = stored_weights(reader);
  require_known(reader, parameters, stored);
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (parameters.is_int8(id)) {
      read_matrix(context, *pool, reader, parameters, id, stored);
      continue;
    }
    const TensorInfo& info =
        checked_tensor(reader, parameters.name(id), kFloatType, shape_dims(parameters.shape(id)));
    const std::vector<float> values = read_values<float>(reader, info);
    parameters.set_value(context, id, values.data(), values.size() * sizeof(float));
  }
}

void add_int8_entries(Context& context, const ParameterStore& parameters,
                      std::vector<std::vector<std::byte>>& storage,
                      std::vector<TensorEntry>& entries, SafetensorsMetadata& metadata) {
  ThreadPool* pool = cpu_thread_pool(context.backend());
  require(pool != nullptr, ErrorCode::internal, kInt8WeightsOrigin, "int8 weights are on the CPU");
  bool all_int8 = true;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const std::string& name = parameters.name(id);
    if (!parameters.is_int8(id)) {
      all_int8 = all_int8 && !parameters.kept_float(id);
    } else if (const auto int4 = parameters.int4(id)) {
      all_int8 = false;
      entries.push_back({name,
                         DType::f32,
                         {int4->rows(), int4->row_bytes()},
                         kept(storage, int4->codes()),
                         kInt4Type});
      entries.push_back({name + kScaleSuffix,
                         DType::f32,
                         {int4->rows(), int4->groups()},
                         kept(storage, int4->scales()),
                         kHalfType});
    } else {
      const Weight weight = parameters.weight(id);
      const Int8Matrix& matrix = *weight.int8;
      std::vector<int8_t> codes(static_cast<size_t>(matrix.rows() * matrix.columns()));
      matrix.read_codes(*pool, codes);
      entries.push_back({name, DType::f32, shape_dims(parameters.shape(id)),
                         kept(storage, std::span<const int8_t>(codes)), kInt8Type});
      entries.push_back(int8_scale_entry(name + kScaleSuffix, matrix.scales(), storage));
    }
  }
  metadata[kQuantizationKey] = all_int8 ? kInt8 : kMixed;
}

}  // namespace trafo
