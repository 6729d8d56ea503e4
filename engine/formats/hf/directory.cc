#include "engine/formats/hf/directory.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "engine/core/checked.h"
#include "engine/core/progress.h"
#include "engine/formats/stored_weights.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"
#include "engine/io/safetensors_header.h"
#include "engine/models/architecture.h"
#include "engine/models/model_io.h"
#include "engine/text/tokenizer/tokenizer_json_text.h"

namespace trafo::interop {
namespace {

// Position tables are computed, not read. They may need this much more memory than the file.
constexpr auto kTableAllowance = static_cast<double>(limits::kRefusalBytes);

std::string shape_text(std::span<const int64_t> shape) {
  return Shape(shape).str();
}

void check_tensor(const WeightFiles& weights, const std::string& name, const MappedTensor& tensor) {
  require(weights.has(name), ErrorCode::corrupt_file, kOrigin, weights.label(),
          " lacks the tensor ", name, ", which its configuration asks for");
  const auto [file, info] = weights.at(name);
  const std::vector<int64_t> wanted = tensor.stored_shape();
  require(info->shape == wanted, ErrorCode::corrupt_file, kOrigin, file->label(), ": ", name,
          " has the shape ", shape_text(info->shape), ", its configuration asks for ",
          shape_text(wanted));
  require_weight_type(file->label(), *info);
}

}  // namespace

void check_vocabulary(const ModelSpec& spec, const Tokenizer& tokenizer) {
  require_vocabulary_size(kOrigin, spec, tokenizer);
}

void write_json(const std::filesystem::path& file, const Json& value) {
  write_file_atomically(file, value.dump(2) + "\n");
}

namespace {

// The bytes of a tensor in the file. `copy` keeps them if they are not the parameter's own.
std::span<const std::byte> stored_bytes(const HostModel& host, const MappedTensor& tensor,
                                        std::vector<std::byte>& copy) {
  if (is_as_stored(tensor)) {
    const std::span<const float> own = stored_values(host.parameters(), tensor);
    if (!host.is_bfloat16) return std::as_bytes(own);
    copy = to_bfloat16(tensor.name, own);
    return copy;
  }
  std::vector<float> values = gather(host.parameters(), tensor);
  values.insert(values.begin(), tensor.front_elements(), 0.0f);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  if (host.is_bfloat16)
    copy = to_bfloat16(tensor.name, values);
  else
    copy.assign(bytes.begin(), bytes.end());
  return copy;
}

}  // namespace

void write_tensors(const std::filesystem::path& file, const HostModel& host,
                   const std::vector<MappedTensor>& tensors) {
  std::vector<TensorInfo> infos;
  std::vector<std::byte> copy;
  {
    const ProgressPause pause;  // the bytes are made again below
    uint64_t offset = 0;
    for (const MappedTensor& tensor : tensors) {
      const std::span<const std::byte> bytes = stored_bytes(host, tensor, copy);
      infos.push_back({tensor.name, host.is_bfloat16 ? DType::bf16 : DType::f32,
                       tensor.stored_shape(), offset, bytes.size(), crc32_text(crc32(bytes)), ""});
      offset += bytes.size();
    }
  }
  // transformers reads this to learn which library wrote the file.
  const std::string header = encode_safetensors_header(infos, {{"format", "pt"}});
  const uint64_t header_size = header.size();
  AtomicFile out(file);
  out.write(std::as_bytes(std::span(&header_size, 1)));
  out.write(std::string_view(header));
  for (const MappedTensor& tensor : tensors) out.write(stored_bytes(host, tensor, copy));
  out.commit();
}

void write_weight_type(const std::filesystem::path& directory) {
  const auto weights = SafetensorsReader::open(directory / "model.safetensors");
  const std::filesystem::path config = directory / "config.json";
  const std::string text = read_text_file(config, limits::kConfigBytes);
  if (weights.tensors().front().dtype == DType::bf16)
    write_file_atomically(config, with_member(text, "torch_dtype", " \"bfloat16\""));
}

ConfigReader::ConfigReader(const std::filesystem::path& file) : label_(file.string()) {
  json_ = parse_json(read_text_file(file, limits::kConfigBytes), kOrigin, label_);
  require(json_.as<Json::Object>(), ErrorCode::corrupt_file, kOrigin, label_,
          " is not a JSON object");
}

bool ConfigReader::has(const char* field) const {
  const Json* found = json_.find(field);
  return found != nullptr && !found->as<std::nullptr_t>();
}

bool ConfigReader::names(const char* field) const {
  return json_.find(field) != nullptr;
}

const Json& ConfigReader::at(const char* field) const {
  require(has(field), ErrorCode::corrupt_file, kOrigin, label_, " has no ", field);
  return *json_.find(field);
}

ConfigReader ConfigReader::inside(const char* field) const {
  const Json& value = at(field);
  require(value.as<Json::Object>(), ErrorCode::corrupt_file, kOrigin, label_, ": ", field,
          " must be an object");
  return {concat(label_, ": ", field), value};
}

void validate_read(const ModelConfig& config, const ConfigReader& json) {
  try {
    validate(config);
  } catch (const Error& error) {
    fail(ErrorCode::corrupt_file, kOrigin, json.label(), ": ", error.message());
  }
}

int64_t ConfigReader::integer(const char* field, int64_t low, int64_t high) const {
  const Json& value = at(field);
  require(value.is_integer() && value.number() >= static_cast<double>(low) &&
              value.number() <= static_cast<double>(high),
          ErrorCode::corrupt_file, kOrigin, label_, ": ", field, " must be an integer from ", low,
          " to ", high);
  return static_cast<int64_t>(value.number());
}

std::vector<int64_t> ConfigReader::integers(const char* field, int64_t low, int64_t high) const {
  const Json& value = at(field);
  const auto* list = value.as<Json::List>();
  if (list == nullptr) return {integer(field, low, high)};
  std::vector<int64_t> numbers;
  for (const Json& item : *list) {
    require(item.is_integer() && item.number() >= static_cast<double>(low) &&
                item.number() <= static_cast<double>(high),
            ErrorCode::corrupt_file, kOrigin, label_, ": ", field, " must be integers from ", low,
            " to ", high);
    numbers.push_back(static_cast<int64_t>(item.number()));
  }
  return numbers;
}

std::vector<std::string> ConfigReader::texts(const char* field) const {
  const auto* list = at(field).as<Json::List>();
  bool is_texts = list != nullptr;
  std::vector<std::string> texts;
  for (size_t i = 0; is_texts && i < list->size(); ++i) {
    const auto* text = (*list)[i].as<std::string>();
    is_texts = text != nullptr;
    if (is_texts) texts.push_back(*text);
  }
  require(is_texts, ErrorCode::corrupt_file, kOrigin, label_, ": ", field,
          " must be a list of texts");
  return texts;
}

double ConfigReader::number(const char* field) const {
  const Json& value = at(field);
  require(value.is_number(), ErrorCode::corrupt_file, kOrigin, label_, ": ", field,
          " must be a number");
  return value.number();
}

double ConfigReader::number(const char* field, double otherwise) const {
  return has(field) ? number(field) : otherwise;
}

bool ConfigReader::flag(const char* field, bool otherwise) const {
  if (!has(field)) return otherwise;
  const Json& value = at(field);
  require(value.as<bool>(), ErrorCode::corrupt_file, kOrigin, label_, ": ", field,
          " must be true or false");
  return *value.as<bool>();
}

std::string ConfigReader::text(const char* field) const {
  const Json& value = at(field);
  require(value.as<std::string>(), ErrorCode::corrupt_file, kOrigin, label_, ": ", field,
          " must be a text");
  return *value.as<std::string>();
}

void ConfigReader::demand_same(const char* other, const char* field) const {
  require(json_.find(other) == nullptr || *json_.find(other) == at(field), ErrorCode::unsupported,
          kOrigin, label_, ": ", other, " is another name of ", field, " and has another value");
}

void ConfigReader::refuse(const char* field, const char* reason) const {
  require(!has(field), ErrorCode::unsupported, kOrigin, label_, ": ", field, " is given; ", reason);
}

void ConfigReader::allow(std::initializer_list<std::string_view> fields) const {
  for (const Json::Member& member : *json_.as<Json::Object>())
    require(std::find(fields.begin(), fields.end(), member.key) != fields.end() ||
                member.value.as<std::nullptr_t>(),
            ErrorCode::unsupported, kOrigin, label_, ": ", quote(member.key), " is not known here");
}

void ConfigReader::demand(const char* field, bool wanted, bool otherwise) const {
  const bool is_null = !has(field) && json_.find(field) != nullptr;  // Python: not true
  require((is_null ? false : flag(field, otherwise)) == wanted, ErrorCode::unsupported, kOrigin,
          label_, ": ", field, " is ", wanted ? "false" : "true", ", models here have ",
          wanted ? "true" : "false");
}

void require_weight_type(const std::string& file, const TensorInfo& info) {
  const bool known = info.foreign == "F16" || (info.foreign.empty() && is_floating(info.dtype));
  require(known, ErrorCode::unsupported, kOrigin, file, ": ", info.name, " is ",
          info.foreign.empty() ? dtype_name(info.dtype) : info.foreign.c_str(),
          "; weights are F32, F64, BF16 or F16");
}

void widen(const TensorInfo& info, std::span<float> values) {
  const std::span<std::byte> all = std::as_writable_bytes(values);
  const std::byte* from = all.data() + all.size() / 2;
  for (float& value : values) {  // never before `from`
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    from += sizeof half;
    BFloat16 narrow;
    std::memcpy(&narrow, &half, sizeof half);
    value = info.foreign == "F16" ? half_to_float(half) : narrow.to_float();
  }
}

void check_copy(const WeightFiles& weights, const std::string& original, const std::string& copy) {
  if (!weights.has(copy)) return;
  const TensorInfo& first = *weights.at(original).info;
  const TensorInfo& second = *weights.at(copy).info;
  const bool equal = first.shape == second.shape && first.dtype == second.dtype &&
                     first.foreign == second.foreign &&
                     weights.bytes(original) == weights.bytes(copy);
  require(equal, ErrorCode::corrupt_file, kOrigin, weights.label(), ": ", copy, " and ", original,
          " differ, the configuration says that they are one matrix");
}

namespace {

// The elements of a tensor without rows that no token has. CORRUPT_FILE: one is not finite.
std::vector<float> read_values(const WeightTensor& stored, const MappedTensor& tensor) {
  std::vector<float> values = read_floats(*stored.file, *stored.info);
  const auto bad = std::find_if_not(values.begin(), values.end(),
                                    [](float value) { return std::isfinite(value); });
  require(bad == values.end(), ErrorCode::corrupt_file, kOrigin, stored.file->label(), ": value ",
          bad - values.begin(), " of ", stored.info->name, " is not a finite float32 number");
  values.erase(values.begin(), values.begin() + static_cast<ptrdiff_t>(tensor.front_elements()));
  values.resize(static_cast<size_t>(tensor.elements()));  // without the spare rows after them
  return values;
}

// Whether the tensors are all rows of the parameters, each once.
bool cover(const std::vector<MappedTensor>& tensors, const ParameterStore& parameters) {
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    int64_t next = 0;
    bool follows = true;
    for (const MappedTensor& tensor : tensors) {
      if (tensor.parameter != parameters.name(id)) continue;
      follows = follows && tensor.first_row == next;
      next = tensor.first_row + tensor.rows;
    }
    if (!follows || next != parameters.shape(id)[0]) return false;
  }
  return true;
}

// Whether the files have the weights of this model.
bool is_stored(const TensorSource& source, const std::vector<MappedTensor>& tensors,
               const HostModel& host) {
  for (const MappedTensor& tensor : tensors) {
    const std::string name = source.name(tensor);
    const std::vector<float> values =
        name.empty() ? std::vector<float>(static_cast<size_t>(tensor.elements()))
                     : read_values(source.weights.at(name), tensor);
    const bool same = tensor.transposed || tensor.less != 0
                          ? gather(host.parameters(), tensor) == values
                          : std::ranges::equal(stored_values(host.parameters(), tensor), values);
    if (!same) return false;
  }
  return true;
}

}  // namespace

HostModel read_tensors(const TensorSource& source, const ModelConfig& config,
                       const std::vector<MappedTensor>& tensors, const ReadTarget& target) {
  const WeightFiles& weights = source.weights;
  std::set<std::string> used;
  const auto payload = static_cast<double>(weights.payload_bytes());
  for (const MappedTensor& tensor : tensors) {
    const std::string name = source.name(tensor);
    if (name.empty()) continue;
    check_tensor(weights, name, tensor);
    used.insert(name);
  }
  for (const auto& [name, stored] : weights.tensors())
    require(used.contains(name) || source.surplus(*stored.info), ErrorCode::corrupt_file, kOrigin,
            stored.file->label(), " has the tensor ", name,
            ", which a model of its configuration does not have");
  const ModelSpec spec = spec_of(config);
  // Bytes of a position: of a table, or of the buckets of two distances.
  const double bytes = spec.embedding.positions != PositionTable::none
                           ? 4 * static_cast<double>(spec.width())
                       : spec.decoder.attention.relative ? 16
                                                         : 0;
  const double table = static_cast<double>(spec.max_positions) * bytes;
  require(table <= 2 * payload + kTableAllowance, ErrorCode::corrupt_file, kOrigin, weights.label(),
          ": ", spec.max_positions, " positions are out of proportion to the model");
  if (const HostModel* const written = target.written;
      written != nullptr && are_same_function(config, written->config()) &&
      cover(tensors, written->parameters()) && is_stored(source, tensors, *written))
    return shared_with(*written);
  HostModel host = make_host_model(config, target.context, target.memory);
  for (const MappedTensor& tensor : tensors) {
    const std::string name = source.name(tensor);
    scatter(host.parameters(), tensor,
            name.empty() ? std::vector<float>(static_cast<size_t>(tensor.elements()))
                         : read_values(weights.at(name), tensor));
  }
  return host;
}

const char* activation_to_name(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu_new";  // the tanh form
    case Activation::gelu_erf:
      return "gelu";
    case Activation::silu:
      return "swish";
  }
  return "";
}

Activation activation_from_name(const ConfigReader& config, const char* field) {
  return activation_named(config, field, config.text(field));
}

Activation activation_named(const ConfigReader& config, const char* field,
                            const std::string& name) {
  if (name == "relu") return Activation::relu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return Activation::gelu;
  if (name == "gelu" || name == "gelu_python") return Activation::gelu_erf;
  if (name == "swish" || name == "silu") return Activation::silu;
  fail(ErrorCode::unsupported, kOrigin, config.label(), ": ", field, " is ", name.substr(0, 64),
       "; there are relu, swish, gelu and gelu_new (the tanh form of GELU)");
}

}  // namespace trafo::interop
