// The GGUF file format, version 3 (github.com/ggml-org/ggml, docs/gguf.md). Little-endian:
//
//   "GGUF"   u32 3   u64 tensors   u64 pairs
//   pairs    { string key   u32 type   value }
//   tensors  { string name   u32 rank   u64 dims[rank], innermost first   u32 type   u64 offset }
//   zeros up to a multiple of 32, then the data of the tensors, each at a multiple of 32 after that
//
// A string is a u64 length and the bytes; an array is a u32 type, a u64 count and the values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/formats/binary_file.h"

namespace trafo::interop {

using GgufValue = std::variant<bool, uint32_t, float, std::string, std::vector<uint8_t>,
                               std::vector<int32_t>, std::vector<float>, std::vector<std::string>>;
using GgufPairs = std::vector<std::pair<std::string, GgufValue>>;

enum class GgufType : uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q8_0 = 8 };

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // [rows, columns] or [n]; of blocks, columns is a multiple of 32
  GgufType type = GgufType::f32;

  uint64_t bytes() const;
  bool operator==(const GgufTensor&) const = default;
};

// `data` gives the bytes of each tensor, in order.
void write_gguf_file(const std::filesystem::path& file, const GgufPairs& pairs,
                     const std::vector<GgufTensor>& tensors,
                     const std::function<std::vector<std::byte>(const GgufTensor&)>& data);

// Reads a file as write_gguf_file writes them. CORRUPT_FILE names the file and what is wrong.
class GgufReader {
 public:
  explicit GgufReader(const std::filesystem::path& file);
  const GgufPairs& pairs() const { return pairs_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  std::vector<std::byte> data(size_t tensor);
  std::string label() const { return in_.label(); }

 private:
  std::string text();
  GgufValue value(uint32_t type);
  BinaryReader in_;
  GgufPairs pairs_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint64_t> offsets_;  // in the file
};

}  // namespace trafo::interop
