#include "engine/io/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "engine/core/checked.h"
#include "engine/core/status.h"
#include "engine/core/strings/json.h"
#include "engine/core/strings/utf8.h"
#include "engine/io/checksum.h"

namespace trafo {
namespace {

constexpr std::string_view kSafetensorsHeaderOrigin = "safetensors";
constexpr std::string_view kMetadataName = "__metadata__";
constexpr std::string_view kHeaderStart = R"({"__metadata__":{"trafo.header_crc32":")";
constexpr std::string_view kHeaderSumKey = "trafo.header_crc32";
constexpr std::string_view kFormatKey = "trafo.format";
constexpr std::string_view kHeaderFormat = "1";
constexpr std::string_view kTensorSumPrefix = "trafo.crc32.";

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr DTypeName kDTypeNames[] = {
    {DType::f32, "F32"}, {DType::f64, "F64"}, {DType::bf16, "BF16"}, {DType::i32, "I32"}};

struct ForeignType {
  std::string_view name;
  int64_t bytes;
};
constexpr ForeignType kForeignTypes[] = {{"BOOL", 1},    {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1},
                                         {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
                                         {"U32", 4},     {"I64", 8}, {"U64", 8}};

template <class Types>
auto find_type(const Types& types, std::string_view name) {
  const auto found = std::find_if(std::begin(types), std::end(types),
                                  [&](const auto& entry) { return entry.name == name; });
  return found == std::end(types) ? nullptr : &*found;
}

int64_t bytes_of(std::span<const int64_t> shape, int64_t element_bytes) {
  if (shape.size() > limits::kRank) return -1;
  std::optional<int64_t> bytes = element_bytes;
  for (const int64_t dimension : shape) {
    if (dimension < 0 || dimension > limits::kDimension) return -1;
    bytes = try_mul(*bytes, dimension);
    if (!bytes) return -1;
  }
  return *bytes;
}

// A streaming JSON handler that accepts only the three levels of the format. Neither depth nor
// numbers nor sizes of a hostile header reach a general data structure.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderHandler(const std::string& label, uint64_t payload_bytes, ElementTypes types)
      : label_(label), payload_bytes_(payload_bytes), types_(types) {}

  std::vector<TensorInfo> tensors;
  SafetensorsMetadata metadata;

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::start:
        state_ = State::top;
        return true;
      case State::top_value:
        state_ = in_metadata_ ? State::metadata : State::tensor;
        return true;
      default:
        unexpected("an object");
    }
  }

  bool key(string_t& text) override {
    require_text(text, "the name");
    if (state_ == State::top)
      begin_top_value(text);
    else if (state_ == State::metadata)
      begin_metadata_value(text);
    else
      begin_tensor_field(text);
    return true;
  }

  bool string(string_t& text) override {
    if (state_ == State::metadata_value) {
      require_text(text, "a metadata value");
      check(text.size() <= limits::kMetadataValueBytes, "metadata value ", quote(metadata_key_),
            " has ", text.size(), " bytes, the limit is ", limits::kMetadataValueBytes);
      metadata[metadata_key_] = std::move(text);
      state_ = State::metadata;
    } else if (state_ == State::field_value && field_ == Field::dtype) {
      const DTypeName* known = find_type(kDTypeNames, text);
      const bool codes = text == "I8" || text == "U8" || text == "F16";
      const bool allowed =
          types_ == ElementTypes::all || (types_ == ElementTypes::ours_and_codes && codes);
      const bool foreign = known == nullptr && allowed && find_type(kForeignTypes, text);
      require(known != nullptr || foreign, ErrorCode::unsupported, kSafetensorsHeaderOrigin, label_,
              ": tensor ", quote(tensors.back().name), " has dtype ", quote(text.substr(0, 32)),
              "; supported are F32, F64, BF16 and I32",
              text == "I8" ? ". Models with int8 weights only translate and score" : "");
      if (known != nullptr) tensors.back().dtype = known->dtype;
      if (foreign) tensors.back().foreign = text;
      state_ = State::tensor;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::field_value || field_ == Field::dtype) unexpected("a list");
    state_ = State::list;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::list) unexpected("a number");
    if (field_ == Field::shape) {
      check(value <= static_cast<uint64_t>(limits::kDimension), "tensor ",
            quote(tensors.back().name), " has a dimension of ", value, ", the limit is 2^40");
      check(tensors.back().shape.size() < limits::kRank, "tensor ", quote(tensors.back().name),
            " has more than ", limits::kRank, " dimensions");
      tensors.back().shape.push_back(static_cast<int64_t>(value));
    } else {
      check(offsets_.size() < 2, "tensor ", quote(tensors.back().name),
            " has more than two data_offsets");
      offsets_.push_back(value);
    }
    return true;
  }

  bool end_array() override {
    state_ = State::tensor;
    return true;
  }

  bool end_object() override {
    if (state_ == State::tensor) end_tensor();
    state_ = state_ == State::top ? State::end : State::top;
    return true;
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("true or false"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    unexpected("a number that is not a 64-bit integer");
  }
  bool binary(binary_t&) override { unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    corrupt("the header is not valid JSON at byte ", position);
  }

 private:
  enum class State {
    start,
    top,
    top_value,
    metadata,
    metadata_value,
    tensor,
    field_value,
    list,
    end
  };
  enum class Field { dtype, shape, data_offsets };

  template <class... Args>
  [[noreturn]] void corrupt(const Args&... message) const {
    fail(ErrorCode::corrupt_file, kSafetensorsHeaderOrigin, label_, ": ", message...);
  }
  template <class... Args>
  void check(bool condition, const Args&... message) const {
    if (!condition) corrupt(message...);
  }
  [[noreturn]] void unexpected(std::string_view what) const {
    corrupt("the header has ", what, " where the format has none",
            tensors.empty() ? "" : ", after the name of tensor " + quote(tensors.back().name));
  }

  void require_text(const std::string& text, std::string_view what) const {
    // The JSON parser has refused invalid UTF-8; an escaped NUL is left.
    check(text.find('\0') == std::string::npos, what, " ", quote(text), " contains a NUL");
  }

  void begin_top_value(std::string& name) {
    in_metadata_ = name == kMetadataName;
    if (in_metadata_) {
      check(!std::exchange(has_metadata_, true), "__metadata__ is there twice");
    } else {
      check(!name.empty() && name.size() <= limits::kNameBytes, "a tensor name has ", name.size(),
            " bytes; 1 to ", limits::kNameBytes, " are allowed");
      check(tensors.size() < limits::kTensors, "there are more than ", limits::kTensors,
            " tensors");
      check(names_.insert(name).second, "there are two tensors named ", quote(name));
      tensors.emplace_back().name = std::move(name);
      has_dtype_ = has_shape_ = has_offsets_ = false;
      offsets_.clear();
    }
    state_ = State::top_value;
  }

  void begin_metadata_value(std::string& name) {
    check(name.size() <= limits::kNameBytes + kTensorSumPrefix.size(), "a metadata key has ",
          name.size(), " bytes, the limit is ", limits::kNameBytes);
    check(metadata.size() < limits::kMetadataPairs, "there are more than ", limits::kMetadataPairs,
          " metadata pairs");
    check(!metadata.contains(name), "metadata key ", quote(name), " is there twice");
    metadata_key_ = std::move(name);
    state_ = State::metadata_value;
  }

  void begin_tensor_field(const std::string& name) {
    bool* seen = nullptr;
    if (name == "dtype") {
      field_ = Field::dtype;
      seen = &has_dtype_;
    } else if (name == "shape") {
      field_ = Field::shape;
      seen = &has_shape_;
    } else if (name == "data_offsets") {
      field_ = Field::data_offsets;
      seen = &has_offsets_;
    }
    check(seen != nullptr, "tensor ", quote(tensors.back().name), " has the unknown field ",
          quote(name.substr(0, 64)));
    check(!std::exchange(*seen, true), "tensor ", quote(tensors.back().name), " has ", quote(name),
          " twice");
    state_ = State::field_value;
  }

  void end_tensor() {
    TensorInfo& tensor = tensors.back();
    check(has_dtype_ && has_shape_ && has_offsets_, "tensor ", quote(tensor.name),
          " lacks one of dtype, shape and data_offsets");
    check(offsets_.size() == 2, "tensor ", quote(tensor.name), " needs two data_offsets");
    check(offsets_[0] <= offsets_[1] && offsets_[1] <= payload_bytes_, "tensor ",
          quote(tensor.name), " has data_offsets ", offsets_[0], " to ", offsets_[1],
          ", the file has ", payload_bytes_, " bytes of data");
    tensor.offset = offsets_[0];
    tensor.bytes = offsets_[1] - offsets_[0];
    const int64_t expected = tensor_bytes(tensor.shape, tensor.dtype, tensor.foreign);
    check(expected >= 0, "the shape of tensor ", quote(tensor.name), " overflows");
    check(static_cast<uint64_t>(expected) == tensor.bytes, "tensor ", quote(tensor.name), " needs ",
          expected, " bytes for its shape, its data_offsets give ", tensor.bytes);
  }

  const std::string& label_;
  uint64_t payload_bytes_;
  ElementTypes types_;
  State state_ = State::start;
  Field field_ = Field::dtype;
  bool in_metadata_ = false;
  bool has_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  std::vector<uint64_t> offsets_;
  std::string metadata_key_;
  std::set<std::string> names_;
};

// Moves the "trafo." pairs from `metadata` into the tensors.
void take_checksums(SafetensorsHeader& header, const std::string& label) {
  const auto first = header.metadata.lower_bound(std::string(kOurPrefix));
  auto last = first;
  while (last != header.metadata.end() && last->first.starts_with(kOurPrefix)) ++last;
  SafetensorsMetadata ours;
  for (auto it = first; it != last;) ours.insert(header.metadata.extract(it++));

  const auto format = ours.find(std::string(kFormatKey));
  require(format != ours.end(), ErrorCode::corrupt_file, kSafetensorsHeaderOrigin, label,
          ": trafo.format is missing");
  require(format->second == kHeaderFormat, ErrorCode::version, kSafetensorsHeaderOrigin, label,
          " was written in format ", quote(format->second.substr(0, 16)),
          " by a newer version; this one reads format ", kHeaderFormat);
  for (TensorInfo& tensor : header.tensors) {
    auto sum = ours.extract(concat(kTensorSumPrefix, tensor.name));
    require(!sum.empty() && sum.mapped().size() == 8, ErrorCode::corrupt_file,
            kSafetensorsHeaderOrigin, label, ": the checksum of tensor ", quote(tensor.name),
            " is missing");
    tensor.crc32 = std::move(sum.mapped());
  }
  header.has_checksums = true;
}

}  // namespace

int64_t tensor_bytes(std::span<const int64_t> shape, DType dtype, std::string_view foreign) {
  return bytes_of(shape, foreign.empty() ? static_cast<int64_t>(dtype_size(dtype))
                                         : find_type(kForeignTypes, foreign)->bytes);
}

bool is_valid_utf8_without_nul(std::string_view text) {
  return is_valid_utf8(text) && text.find('\0') == std::string_view::npos;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t payload_bytes,
                                           const std::string& label, ElementTypes types) {
  const auto check = [&](bool condition, const auto&... message) {
    require(condition, ErrorCode::corrupt_file, kSafetensorsHeaderOrigin, label, ": ", message...);
  };
  check(json.starts_with('{'), "the header does not begin with '{'");
  // The JSON parser would take a NUL for the end of the text.
  check(json.find('\0') == std::string_view::npos, "the header contains a NUL byte");
  const bool has_seal = json.starts_with(kHeaderStart);
  check(!has_seal || is_sealed(json, kHeaderStart.size()),
        "the header is damaged (or was edited): its checksum does not fit");

  HeaderHandler handler(label, payload_bytes, types);
  nlohmann::json::sax_parse(json.begin(), json.end(), &handler);
  SafetensorsHeader header;
  header.tensors = std::move(handler.tensors);
  header.metadata = std::move(handler.metadata);

  // Empty tensors share their offset with the next one, hence the second key.
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
                   });
  uint64_t end = 0;
  for (const TensorInfo& tensor : header.tensors) {
    check(tensor.offset == end, "tensor ", quote(tensor.name), " begins at ", tensor.offset,
          tensor.offset < end ? ", inside the one before it, which ends at "
                              : ", leaving a hole after the one before it, which ends at ",
          end);
    end = tensor.offset + tensor.bytes;
  }
  check(end == payload_bytes, "the tensors take ", end, " bytes, the file has ", payload_bytes,
        " bytes of data");

  const auto ours = header.metadata.lower_bound(std::string(kOurPrefix));
  const bool is_ours = ours != header.metadata.end() && ours->first.starts_with(kOurPrefix);
  check(!is_ours || has_seal, "the header is damaged (or was edited): its checksum is missing");
  if (is_ours) take_checksums(header, label);
  return header;
}

std::string encode_safetensors_header(std::span<const TensorInfo> tensors,
                                      const SafetensorsMetadata& metadata) {
  const auto quoted = [](std::string_view text) { return Json(std::string(text)).dump(); };
  std::string json(kHeaderStart);
  json += "00000000\"";
  json += concat(",", quoted(kFormatKey), ":", quoted(kHeaderFormat));
  for (const auto& [key, value] : metadata) json += concat(",", quoted(key), ":", quoted(value));
  for (const TensorInfo& tensor : tensors)
    json += concat(",", quoted(concat(kTensorSumPrefix, tensor.name)), ":", quoted(tensor.crc32));
  json += "}";
  for (const TensorInfo& tensor : tensors) {
    const auto* known =
        std::find_if(std::begin(kDTypeNames), std::end(kDTypeNames),
                     [&](const DTypeName& entry) { return entry.dtype == tensor.dtype; });
    require(known != std::end(kDTypeNames), ErrorCode::internal, kSafetensorsHeaderOrigin,
            "tensor ", quote(tensor.name), " has an unknown dtype");
    json += concat(",", quoted(tensor.name), R"(:{"dtype":")",
                   tensor.foreign.empty() ? known->name : tensor.foreign, R"(","shape":)",
                   Json(tensor.shape).dump(), R"(,"data_offsets":[)", tensor.offset, ",",
                   tensor.offset + tensor.bytes, "]}");
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  seal_text(json, kHeaderStart.size());
  return json;
}

}  // namespace trafo
