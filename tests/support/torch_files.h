// Files as torch.save() writes them: the zip file with 32- or 64-bit fields, and the older format.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/io/checksum.h"

namespace trafo::testing {

// A tensor in a new storage, or in the storage of the tensor `of`.
struct TorchTensor {
  std::string name;
  std::string storage = "FloatStorage";
  std::vector<int64_t> shape, strides;
  std::string bytes;  // of its storage
  size_t element = 4;
  int64_t offset = 0;
  std::string key = {};  // of another tensor's storage; its own has the tensor's name
};

// Opcodes of a pickle, one after another.
class PickleText {
 public:
  PickleText& raw(std::string_view bytes) {
    text_ += bytes;
    return *this;
  }
  template <class T>
  PickleText& binary(char opcode, T value) {
    text_ += opcode;
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  PickleText& number(int64_t value) {
    text_ += "\x8a\x08";
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  PickleText& text(std::string_view value) {
    return binary('X', static_cast<uint32_t>(value.size())).raw(value);
  }
  PickleText& global(std::string_view module, std::string_view name) {
    return raw("c").raw(module).raw("\n").raw(name).raw("\n");
  }
  PickleText& numbers(const std::vector<int64_t>& values) {
    raw("(");
    for (const int64_t value : values) number(value);
    return raw("t");
  }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

inline const std::string& key_of(const TorchTensor& tensor) {
  return tensor.key.empty() ? tensor.name : tensor.key;
}

inline void put_tensor(PickleText& pickle, const TorchTensor& tensor, bool older) {
  pickle.global("torch._utils", "_rebuild_tensor_v2").raw("((").text("storage");
  pickle.global("torch", tensor.storage).text(key_of(tensor)).text("cpu");
  pickle.number(static_cast<int64_t>(tensor.bytes.size() / tensor.element));
  pickle.raw(older ? "NtQ" : "tQ").number(tensor.offset);
  pickle.numbers(tensor.shape).numbers(tensor.strides);
  pickle.raw("\x89").global("collections", "OrderedDict").raw(")RtR");
}

// The pickle of a state_dict(), with the attribute _metadata.
inline std::string torch_pickle(const std::vector<TorchTensor>& tensors, bool older = false) {
  PickleText pickle;
  pickle.raw("\x80\x02").global("collections", "OrderedDict").binary('q', uint8_t{0}).raw(")R(");
  for (const TorchTensor& tensor : tensors) {
    pickle.text(tensor.name);
    put_tensor(pickle, tensor, older);
  }
  return pickle.raw("u}").text("_metadata").raw("}s").raw("b.").str();
}

using ZipParts = std::vector<std::pair<std::string, std::string>>;  // names and bytes

// With `wide`, every field that may have 64 bits has them.
inline std::string zip_file(const ZipParts& parts, bool wide = false) {
  std::string file, list;
  const auto put = [](std::string& to, auto value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  constexpr uint32_t kWide = 0xffffffff;
  for (const auto& part : parts) {
    const std::string &name = part.first, &bytes = part.second;
    const uint32_t crc = crc32(std::as_bytes(std::span(bytes.data(), bytes.size())));
    const auto size = static_cast<uint32_t>(bytes.size());
    const auto place = static_cast<uint32_t>(file.size());
    const auto common = [&](std::string& to, uint16_t extra) {
      for (const uint16_t value : {0, 0x808, 0, 0, 0}) put(to, value);
      put(to, crc);
      put(to, wide ? kWide : size);
      put(to, wide ? kWide : size);
      put(to, static_cast<uint16_t>(name.size()));
      put(to, extra);
    };
    file += "PK\3\4";
    common(file, 3);
    file += name + "pad" + bytes;
    list += "PK\1\2";
    put(list, uint16_t{0});
    common(list, wide ? 28 : 0);
    for (const uint16_t value : {0, 0, 0, 0, 0}) put(list, value);
    put(list, wide ? kWide : place);
    list += name;
    if (!wide) continue;
    put(list, uint16_t{1});
    put(list, uint16_t{24});
    for (const uint64_t value : {uint64_t{size}, uint64_t{size}, uint64_t{place}}) put(list, value);
  }
  const uint64_t place = file.size(), size = list.size(), count = parts.size();
  file += list;
  if (wide) {
    const uint64_t end = file.size();
    file += "PK\6\6";
    put(file, uint64_t{44});
    for (const uint32_t value : {0, 0, 0}) put(file, value);
    for (const uint64_t value : {count, count, size, place}) put(file, value);
    file += "PK\6\7";
    put(file, uint32_t{0});
    put(file, end);
    put(file, uint32_t{1});
  }
  file += "PK\5\6";
  for (const uint16_t value : {0, 0}) put(file, value);
  for (int i = 0; i < 2; ++i) put(file, wide ? uint16_t{0xffff} : static_cast<uint16_t>(count));
  put(file, wide ? kWide : static_cast<uint32_t>(size));
  put(file, wide ? kWide : static_cast<uint32_t>(place));
  put(file, uint16_t{0});
  return file;
}

inline ZipParts torch_parts(const std::vector<TorchTensor>& tensors) {
  ZipParts parts{{"archive/data.pkl", torch_pickle(tensors)}, {"archive/byteorder", "little"}};
  for (const TorchTensor& tensor : tensors)
    if (tensor.key.empty()) parts.emplace_back("archive/data/" + tensor.name, tensor.bytes);
  parts.emplace_back("archive/version", "3\n");
  return parts;
}

inline std::string torch_older_file(const std::vector<TorchTensor>& tensors) {
  PickleText file;
  file.raw({"\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", 21});
  file.raw("\x80\x02}(").text("little_endian").raw("\x88").text("protocol_version");
  file.binary('M', uint16_t{1001}).raw("u.").raw(torch_pickle(tensors, true)).raw("\x80\x02](");
  std::string bytes;
  for (const TorchTensor& tensor : tensors) {
    if (!tensor.key.empty()) continue;
    file.text(tensor.name);
    const uint64_t elements = tensor.bytes.size() / tensor.element;
    bytes.append(reinterpret_cast<const char*>(&elements), sizeof elements);
    bytes += tensor.bytes;
  }
  return file.raw("e.").str() + bytes;
}

}  // namespace trafo::testing
