// The safetensors file format (github.com/huggingface/safetensors), read and written with
// checksums.
//
//   8 bytes   little-endian length N of the header
//   N bytes   JSON: {"__metadata__": {string: string}, NAME: {"dtype", "shape", "data_offsets":
//   [begin, end]}, ...} the rest  the tensors' bytes, little-endian, in data_offsets order without
//   hole or overlap
//
// Our writer adds to __metadata__, under names that begin with "trafo.":
//   trafo.header_crc32   always the first pair of the header, so that it lies at a fixed place;
//   covers all N header bytes trafo.format         "1" trafo.crc32.NAME     of each tensor's bytes
//   (every payload byte belongs to exactly one tensor, so that no sum over the
//                        whole payload is needed)
// A file with any "trafo." key must carry the header sum and one sum per tensor, all correct; thus
// no single flipped bit can make our file look like one from elsewhere, which loads without
// checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/dtype.h"
#include "engine/core/limits.h"
#include "engine/io/byte_sink.h"

namespace trafo {

using SafetensorsMetadata = std::map<std::string, std::string>;

// ---- writing ----

struct TensorEntry {
  std::string name;  // valid UTF-8 without NUL, not empty, not "__metadata__"
  DType dtype = DType::f32;
  std::vector<int64_t> shape;       // row-major; {} is a scalar
  std::span<const std::byte> data;  // exactly product(shape) * dtype_size(dtype) bytes
};

// The bytes depend on the content only, not on the order of `tensors`: wide element types come
// first (so that every tensor is aligned to its element size), then by name. Errors:
// INVALID_ARGUMENT for anything the reader would refuse (engine/core/limits.h, duplicate names,
// wrong sizes, metadata keys that begin with "trafo."), and what the sink throws.
void write_safetensors(ByteSink& sink, std::span<const TensorEntry> tensors,
                       const SafetensorsMetadata& metadata = {});
std::vector<std::byte> safetensors_to_memory(std::span<const TensorEntry> tensors,
                                             const SafetensorsMetadata& metadata = {});
// Whole or not at all, see AtomicFile.
void save_safetensors(const std::filesystem::path& path, std::span<const TensorEntry> tensors,
                      const SafetensorsMetadata& metadata = {});

// ---- reading ----

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // from the start of the payload
  uint64_t bytes = 0;
  std::string crc32;  // eight hexadecimal digits; empty in a file without checksums
  // Only from open_foreign: the file's name of an element type that is none of ours ("F16", "I64").
  // `dtype` says nothing then.
  std::string foreign;
};

class SafetensorsSource;  // a file or a buffer, read at offsets
enum class ElementTypes { ours, all };

class SafetensorsReader {
 public:
  // Reads and checks the header; allocates only in proportion to it. Errors: NOT_FOUND, IO,
  // CORRUPT_FILE naming the file and the tensor or rule, UNSUPPORTED naming the tensor whose dtype
  // is not F32, F64, BF16 or I32. The file is read through one descriptor, never mapped; symbolic
  // links are followed unless `links` says otherwise.
  static SafetensorsReader open(const std::filesystem::path& path);
  static SafetensorsReader open_no_follow(const std::filesystem::path& path);
  // Of another program: every element type of the format, see TensorInfo::foreign.
  static SafetensorsReader open_foreign(const std::filesystem::path& path);
  // `bytes` must outlive the reader; `label` stands for the file name in messages.
  static SafetensorsReader from_memory(std::span<const std::byte> bytes, std::string label);

  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) noexcept;
  ~SafetensorsReader();

  const std::string& label() const { return label_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in payload order
  const SafetensorsMetadata& metadata() const { return metadata_; }    // without our "trafo." pairs
  bool has_checksums() const { return has_checksums_; }

  const TensorInfo* find(std::string_view name) const;  // null when there is none
  const TensorInfo& at(std::string_view name) const;    // NOT_FOUND, naming file and tensor

  // Copies one tensor's bytes; `out` must have exactly info.bytes bytes (else SHAPE_MISMATCH,
  // nothing is written). The copy is checked, not the file, so that nobody can change it in
  // between: on CORRUPT_FILE, `out` holds the damaged bytes and must not be used. Call verify()
  // before filling anything that must stay whole.
  void read(const TensorInfo& info, std::span<std::byte> out) const;
  void read(std::string_view name, std::span<std::byte> out) const { read(at(name), out); }

  // Reads the whole payload in pieces of 1 MiB against the checksums; CORRUPT_FILE names the first
  // bad tensor. Without checksums it only proves that the bytes are there.
  void verify() const;

 private:
  SafetensorsReader(std::unique_ptr<SafetensorsSource> source, std::string label,
                    ElementTypes types = ElementTypes::ours);

  std::unique_ptr<SafetensorsSource> source_;
  std::string label_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> index_;  // name -> place in tensors_
  SafetensorsMetadata metadata_;
  uint64_t payload_start_ = 0;
  bool has_checksums_ = false;
};

// What a file's own header and checksums have against it, without its name: "tensor 'x' is damaged,
// ...". Empty if they have nothing. Reads all of it.
std::string safetensors_damage(const std::filesystem::path& file);
std::string safetensors_damage(std::span<const std::byte> file);

}  // namespace trafo
