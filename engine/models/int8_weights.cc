#include "engine/models/int8_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/checked.h"
#include "engine/io/safetensors_header.h"
#include "engine/quant/int4_panels.h"
#include "engine/quant/int8_matrix.h"

namespace trafo {
namespace {

constexpr const char* kInt8WeightsOrigin = "model file";
constexpr const char* kInt8 = "int8";
constexpr const char* kMixed = "mixed";
constexpr const char* kInt8Type = "I8";
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

bool is_vector(const ParameterStore& parameters, ParamId id) {
  return parameters.shape(id).rank() == 1;
}

// Norms, biases and learned positions.
bool is_rounded(const ParameterStore& parameters, ParamId id) {
  return !parameters.is_int8(id) && !parameters.kept_float(id) &&
         parameters.group(id).name != kAdapter;
}

// Every tensor is one of the model's parameters, holds several of these, which then have no
// separate tensor, or has the scales of int4 codes.
void require_known(const SafetensorsReader& reader, const ParameterStore& parameters,
                   StoredWeights stored) {
  const bool quantized = stored != StoredWeights::floats;
  for (const TensorInfo& info : reader.tensors()) {
    if (quantized && (info.name == kScalesName || info.name == kVectorsName)) continue;
    const ParamId own = parameters.find(info.name);
    if (own != kNoParam && !(quantized && is_vector(parameters, own))) continue;
    const std::string_view name = info.name;
    const std::string matrix(name.ends_with(kScaleSuffix) ? name.substr(0, name.rfind('.')) : "");
    const ParamId id = parameters.find(matrix);
    const TensorInfo* codes = reader.find(matrix);
    require(stored == StoredWeights::mixed && id != kNoParam && parameters.is_int8(id) &&
                codes != nullptr && has_type(*codes, kInt4Type),
            ErrorCode::corrupt_file, kInt8WeightsOrigin, reader.label(), " has the tensor ",
            info.name, ", which the model does not know");
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

std::vector<float> read_bfloat16(const SafetensorsReader& reader, const std::string& name,
                                 const std::vector<int64_t>& shape) {
  std::vector<float> values;
  for (const BFloat16 value :
       read_values<BFloat16>(reader, checked_tensor(reader, name, kBfloatType, shape)))
    values.push_back(value.to_float());
  return values;
}

// Those of the parameters that belong together in one tensor of a file, in its order.
template <class Belongs>
std::vector<ParamId> by_name(const ParameterStore& parameters, Belongs&& belongs) {
  std::vector<ParamId> ids;
  for (size_t i = 0; i < parameters.count(); ++i)
    if (belongs(static_cast<ParamId>(i))) ids.push_back(static_cast<ParamId>(i));
  std::sort(ids.begin(), ids.end(),
            [&](ParamId a, ParamId b) { return parameters.name(a) < parameters.name(b); });
  return ids;
}

// The parts of the tensor `name`, one value for each row of the parameters `ids`. Without any of
// these there is no such tensor.
std::map<ParamId, std::vector<float>> read_parts(const SafetensorsReader& reader,
                                                 const std::string& name,
                                                 const ParameterStore& parameters,
                                                 std::span<const ParamId> ids) {
  if (ids.empty() && reader.find(name) == nullptr) return {};
  int64_t rows = 0;
  for (const ParamId id : ids) rows += parameters.shape(id)[0];
  const std::vector<float> values = read_bfloat16(reader, name, {rows});
  std::map<ParamId, std::vector<float>> parts;
  auto begin = values.begin();
  for (const ParamId id : ids) {
    const auto end = begin + parameters.shape(id)[0];
    parts[id] = {begin, end};
    begin = end;
  }
  return parts;
}

// Contents of the tensors of several parameters.
struct Parts {
  std::map<ParamId, std::vector<float>> scales, vectors;
};

Parts read_parts(const SafetensorsReader& reader, const ParameterStore& parameters,
                 StoredWeights stored) {
  if (stored == StoredWeights::floats) return {};
  const auto matrices = by_name(parameters, [&](ParamId id) {
    return parameters.is_int8(id) &&
           (stored == StoredWeights::int8 ||
            has_type(known_tensor(reader, parameters.name(id)), kInt8Type));
  });
  const auto vectors = by_name(parameters, [&](ParamId id) { return is_vector(parameters, id); });
  return {read_parts(reader, kScalesName, parameters, matrices),
          read_parts(reader, kVectorsName, parameters, vectors)};
}

void read_int8_matrix(ThreadPool& pool, const SafetensorsReader& reader, ParameterStore& parameters,
                      ParamId id, const Parts& parts) {
  const std::string& name = parameters.name(id);
  const Shape& shape = parameters.shape(id);
  const auto codes =
      read_values<int8_t>(reader, checked_tensor(reader, name, kInt8Type, shape_dims(shape)));
  in_matrix(reader, name, ErrorCode::corrupt_file, [&] {
    parameters.set_int8(id, Int8Matrix::from_codes(pool, codes, parts.scales.at(id), shape[1]));
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
                 ParameterStore& parameters, ParamId id, StoredWeights stored, const Parts& parts) {
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
  if (stored != StoredWeights::floats) return read_int8_matrix(pool, reader, parameters, id, parts);
  const auto values =
      read_values<float>(reader, checked_tensor(reader, name, kFloatType, shape_dims(shape)));
  in_matrix(reader, name, ErrorCode::invalid_argument, [&] {
    parameters.set_int8(id, Int8Matrix::quantized(pool, values.data(), shape[0], shape[1]));
  });
}

// A parameter that has no codes.
void read_float(Context& context, const SafetensorsReader& reader, ParameterStore& parameters,
                ParamId id, StoredWeights stored, const Parts& parts) {
  const std::string& name = parameters.name(id);
  const std::vector<int64_t> shape = shape_dims(parameters.shape(id));
  if (stored != StoredWeights::floats && is_rounded(parameters, id)) {
    const auto vector = parts.vectors.find(id);
    return set_rounded(
        context, parameters, id,
        vector != parts.vectors.end() ? vector->second : read_bfloat16(reader, name, shape));
  }
  std::vector<float> values =
      read_values<float>(reader, checked_tensor(reader, name, kFloatType, shape));
  if (is_rounded(parameters, id)) return set_rounded(context, parameters, id, std::move(values));
  parameters.set_value(context, id, values.data(), values.size() * sizeof(float));
}

template <class T>
std::span<const std::byte> kept(std::vector<std::vector<std::byte>>& storage,
                                std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return storage.emplace_back(bytes.begin(), bytes.end());
}

// Values that set_rounded() has rounded, or scales, which are bfloat16.
TensorEntry bfloat16_entry(const std::string& name, std::vector<int64_t> shape,
                           std::span<const float> values,
                           std::vector<std::vector<std::byte>>& storage) {
  std::vector<BFloat16> halves;
  for (const float value : values) {
    halves.push_back(BFloat16::from_float(value));
    require(std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(halves.back().to_float()),
            ErrorCode::invalid_argument, kInt8WeightsOrigin, name, " has the value ", value,
            ", which a file with quantized weights cannot hold: bfloat16 does not represent it");
  }
  return {
      name, DType::bf16, std::move(shape), kept(storage, std::span<const BFloat16>(halves)), {}};
}

std::vector<float> float_values(Context& context, const ParameterStore& parameters, ParamId id) {
  std::vector<float> values(static_cast<size_t>(element_count(parameters.shape(id))));
  parameters.get_value(context, id, values.data(), values.size() * sizeof(float));
  return values;
}

std::span<const float> int8_scales(const ParameterStore& parameters, ParamId id) {
  return parameters.weight(id).int8->scales();
}

// The tensors `scales` and `vectors`.
std::vector<TensorEntry> entries_of_parts(Context& context, const ParameterStore& parameters,
                                          std::vector<std::vector<std::byte>>& storage) {
  std::vector<float> scales, vectors;
  const auto add = [](std::vector<float>& to, std::span<const float> values) {
    to.insert(to.end(), values.begin(), values.end());
  };
  for (const ParamId id : by_name(parameters, [](ParamId) { return true; })) {
    if (parameters.is_int8(id) && !parameters.int4(id)) add(scales, int8_scales(parameters, id));
    if (is_vector(parameters, id)) add(vectors, float_values(context, parameters, id));
  }
  std::vector<TensorEntry> entries;
  for (const auto& [name, values] : {std::pair{kScalesName, &scales}, {kVectorsName, &vectors}})
    if (!values->empty())
      entries.push_back(
          bfloat16_entry(name, {static_cast<int64_t>(values->size())}, *values, storage));
  return entries;
}

}  // namespace

StoredWeights stored_weights(const SafetensorsReader& reader) {
  const auto found = reader.metadata().find(kQuantizationKey);
  if (found != reader.metadata().end()) {
    if (found->second == kBaseQuantization) return StoredWeights::floats;
    require(found->second == kInt8 || found->second == kMixed, ErrorCode::unsupported,
            kInt8WeightsOrigin, reader.label(), " has the quantization ", quote(found->second),
            ", this release knows int8, mixed and base");
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
  const Parts parts = read_parts(reader, parameters, stored);
  std::vector<ParamId> coded;  // the codes of the file, which threads lay out at the same time
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!parameters.is_int8(id))
      read_float(context, reader, parameters, id, stored, parts);
    else if (stored == StoredWeights::floats ||
             has_type(known_tensor(reader, parameters.name(id)), kFloatType))
      read_matrix(context, *pool, reader, parameters, id, stored, parts);
    else
      coded.push_back(id);
  }
  pool->parallel_for(std::ssize(coded), [&](int64_t i) {
    read_matrix(context, *pool, reader, parameters, coded[static_cast<size_t>(i)], stored, parts);
  });
}

void set_rounded(Context& context, ParameterStore& parameters, ParamId id,
                 std::vector<float> values) {
  for (float& value : values) {
    const float rounded = BFloat16::from_float(value).to_float();
    require(std::isfinite(rounded) || !std::isfinite(value), ErrorCode::invalid_argument,
            kInt8WeightsOrigin, parameters.name(id), " has the value ", value,
            ", which is too large for bfloat16");
    value = rounded;
  }
  parameters.set_value(context, id, values.data(), values.size() * sizeof(float));
}

void add_int8_entries(Context& context, const ParameterStore& parameters,
                      std::vector<std::vector<std::byte>>& storage,
                      std::vector<TensorEntry>& entries, SafetensorsMetadata& metadata) {
  ThreadPool* pool = cpu_thread_pool(context.backend());
  require(pool != nullptr, ErrorCode::internal, kInt8WeightsOrigin, "int8 weights are on the CPU");
  const std::vector<TensorEntry> parts = entries_of_parts(context, parameters, storage);
  bool all_int8 = true;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const std::string& name = parameters.name(id);
    if (!parameters.is_int8(id)) {
      all_int8 = all_int8 && !parameters.kept_float(id);
      if (!is_rounded(parameters, id)) continue;
      std::erase_if(entries, [&](const TensorEntry& entry) { return entry.name == name; });
      if (!is_vector(parameters, id))
        entries.push_back(bfloat16_entry(name, shape_dims(parameters.shape(id)),
                                         float_values(context, parameters, id), storage));
    } else if (parameters.int4(id)) {
      all_int8 = false;
      const Int4Matrix int4 = parameters.int4(id)->matrix(*pool);
      entries.push_back({name,
                         DType::f32,
                         {int4.rows(), int4.row_bytes()},
                         kept(storage, int4.codes()),
                         kInt4Type});
      entries.push_back({name + kScaleSuffix,
                         DType::f32,
                         {int4.rows(), int4.groups()},
                         kept(storage, int4.scales()),
                         kHalfType});
    } else {
      const Weight weight = parameters.weight(id);
      const Int8Matrix& matrix = *weight.int8;
      std::vector<int8_t> codes(static_cast<size_t>(matrix.rows() * matrix.columns()));
      matrix.read_codes(*pool, codes);
      entries.push_back({name, DType::f32, shape_dims(parameters.shape(id)),
                         kept(storage, std::span<const int8_t>(codes)), kInt8Type});
    }
  }
  entries.insert(entries.end(), parts.begin(), parts.end());
  metadata[kQuantizationKey] = all_int8 ? kInt8 : kMixed;
}

}  // namespace trafo
