#include "engine/formats/gguf/gguf_file.h"

#include "engine/core/checked.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/stored_weights.h"
#include "engine/io/atomic_file.h"

namespace trafo::interop {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32;
struct ValueType {
  enum Id : uint32_t {
    kUint8 = 0,
    kUint32 = 4,
    kInt32 = 5,
    kFloat32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9
  };
};

template <class T>
constexpr ValueType::Id type_of() {
  if constexpr (std::same_as<T, bool>) return ValueType::kBool;
  if constexpr (std::same_as<T, uint8_t>) return ValueType::kUint8;
  if constexpr (std::same_as<T, uint32_t>) return ValueType::kUint32;
  if constexpr (std::same_as<T, int32_t>) return ValueType::kInt32;
  if constexpr (std::same_as<T, float>) return ValueType::kFloat32;
  return ValueType::kString;
}

template <class T>
struct ElementOf {
  using type = void;
};
template <class T>
struct ElementOf<std::vector<T>> {
  using type = T;
};

uint64_t aligned(uint64_t position) {
  return (position + kAlignment - 1) / kAlignment * kAlignment;
}

class GgufWriter : public BinaryWriter {
 public:
  using BinaryWriter::BinaryWriter;

  void put(const std::string& value) {
    number<uint64_t>(value.size());
    text(value);
  }
  void put(bool value) { number(static_cast<uint8_t>(value)); }
  void put(uint8_t value) { number(value); }
  void put(uint32_t value) { number(value); }
  void put(int32_t value) { number(value); }
  void put(float value) { number(value); }

  void pair(const std::string& key, const GgufValue& value) {
    put(key);
    std::visit(
        [&]<class T>(const T& held) {
          using Element = typename ElementOf<T>::type;
          if constexpr (std::same_as<Element, void>) {
            number<uint32_t>(type_of<T>());
            put(held);
          } else {
            number<uint32_t>(ValueType::kArray);
            number<uint32_t>(type_of<Element>());
            number<uint64_t>(held.size());
            for (const Element& element : held) put(element);
          }
        },
        value);
  }
  void pad() {
    static constexpr std::byte kZeros[kAlignment]{};
    bytes(std::span(kZeros, aligned(position()) - position()));
  }
};

}  // namespace

uint64_t GgufTensor::bytes() const {
  int64_t count = 1;
  for (const int64_t size : shape) count = checked_mul(count, size, kOrigin);
  switch (type) {
    case GgufType::f32:
      count = checked_mul<int64_t>(count, 4, kOrigin);
      break;
    case GgufType::f16:
      count = checked_mul<int64_t>(count, 2, kOrigin);
      break;
    case GgufType::q4_0:
      count = count / formats::kQ4_0.group * block_bytes(formats::kQ4_0);
      break;
    case GgufType::q8_0:
      count =
          checked_mul<int64_t>(count / formats::kQ8_0.group, block_bytes(formats::kQ8_0), kOrigin);
      break;
  }
  return static_cast<uint64_t>(count);
}

void write_gguf_file(const std::filesystem::path& file, const GgufPairs& pairs,
                     const std::vector<GgufTensor>& tensors,
                     const std::function<std::vector<std::byte>(const GgufTensor&)>& data) {
  AtomicFile sink(file);
  GgufWriter out(sink);
  out.text(kMagic);
  out.number(kVersion);
  out.number<uint64_t>(tensors.size());
  out.number<uint64_t>(pairs.size());
  for (const auto& [key, value] : pairs) out.pair(key, value);
  uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    out.put(tensor.name);
    out.number(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i > 0; --i)
      out.number(static_cast<uint64_t>(tensor.shape[i - 1]));
    out.number(static_cast<uint32_t>(tensor.type));
    out.number(offset);
    offset = aligned(offset + tensor.bytes());
  }
  for (const GgufTensor& tensor : tensors) {
    out.pad();
    const std::vector<std::byte> bytes = data(tensor);
    require(bytes.size() == tensor.bytes(), ErrorCode::internal, kOrigin, tensor.name, " has ",
            bytes.size(), " bytes instead of ", tensor.bytes());
    out.bytes(bytes);
  }
  out.pad();
  sink.commit();
}

GgufReader::GgufReader(const std::filesystem::path& file)
    : in_(open_file_for_reading(file, FollowLinks::no)) {
  const auto check = [&](bool condition, const auto&... message) {
    require(condition, ErrorCode::corrupt_file, kOrigin, label(), ": ", message...);
  };
  check(in_.text(kMagic.size()) == kMagic, "this is no GGUF file");
  check(in_.number<uint32_t>() == kVersion, "another version of GGUF");
  const auto tensors = in_.number<uint64_t>(), pairs = in_.number<uint64_t>();
  for (uint64_t i = 0; i < pairs; ++i) {
    std::string key = text();
    const auto type = in_.number<uint32_t>();
    pairs_.emplace_back(std::move(key), value(type));
  }
  uint64_t end = 0;
  for (uint64_t i = 0; i < tensors; ++i) {
    GgufTensor tensor{text(), {}, GgufType::f32};
    const auto rank = in_.number<uint32_t>();
    check(rank >= 1 && rank <= 2, tensor.name, " has a rank of ", rank);
    for (uint32_t k = 0; k < rank; ++k) {
      const auto size = in_.number<uint64_t>();
      check(size <= static_cast<uint64_t>(limits::kDimension), tensor.name, " has ", size, " rows");
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
    }
    const auto type = in_.number<uint32_t>();
    tensor.type = static_cast<GgufType>(type);
    check(type <= 2 || tensor.type == GgufType::q8_0, tensor.name, " is of type ", type);
    check(in_.number<uint64_t>() == end, tensor.name, " is not behind the tensor before it");
    offsets_.push_back(end);
    end = aligned(end + tensor.bytes());
    tensors_.push_back(std::move(tensor));
  }
  const uint64_t first = aligned(in_.position());
  for (uint64_t& offset : offsets_) offset += first;
  in_.seek(first);
  in_.require_left(end);
}

std::string GgufReader::text() {
  return in_.text(in_.number<uint64_t>());
}

GgufValue GgufReader::value(uint32_t type) {
  const auto fail_type = [&](uint32_t found) {
    fail(ErrorCode::corrupt_file, kOrigin, label(), ": a value of type ", found);
  };
  const auto list = [&]<class T>(std::vector<T> values, uint64_t count, const auto& next) {
    in_.require_left(count);  // each takes a byte or more
    while (count-- > 0) values.push_back(next());
    return GgufValue(std::move(values));
  };
  switch (type) {
    case ValueType::kBool:
      return in_.number<uint8_t>() != 0;
    case ValueType::kUint32:
      return in_.number<uint32_t>();
    case ValueType::kFloat32:
      return in_.number<float>();
    case ValueType::kString:
      return text();
    case ValueType::kArray:
      break;
    default:
      fail_type(type);
  }
  const auto element = in_.number<uint32_t>();
  const auto count = in_.number<uint64_t>();
  switch (element) {
    case ValueType::kUint8:
      return list(std::vector<uint8_t>(), count, [&] { return in_.number<uint8_t>(); });
    case ValueType::kInt32:
      return list(std::vector<int32_t>(), count, [&] { return in_.number<int32_t>(); });
    case ValueType::kFloat32:
      return list(std::vector<float>(), count, [&] { return in_.number<float>(); });
    case ValueType::kString:
      return list(std::vector<std::string>(), count, [&] { return text(); });
    default:
      fail_type(element);
  }
  return {};
}

std::vector<std::byte> GgufReader::data(size_t tensor) {
  in_.seek(offsets_.at(tensor));
  return in_.bytes(tensors_.at(tensor).bytes());
}

}  // namespace trafo::interop
