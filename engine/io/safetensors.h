// The safetensors file format (github.com/huggingface/safetensors), read and written with
// checksums.
//
//   8 bytes   N, the length of the header, little-endian
//   N bytes   the header, JSON: {"__metadata__": {string: string},
//             NAME: {"dtype", "shape", "data_offsets": [begin, end]}, ...}
//   the rest  the bytes of the tensors, little-endian, in the order of data_offsets, without gap or
//             overlap
//
// The writer adds pairs to __metadata__ whose names begin with "trafo.":
//   trafo.header_crc32  of all N header bytes; always the first pair, so its position is fixed
//   trafo.format        "1"
//   trafo.crc32.NAME    of the bytes of each tensor; together they cover the whole payload
//
// A file with any "trafo." pair must have the checksum of the header and one for each tensor, all
// correct. So no single flipped bit can make such a file look like one of another program, which
// loads without checksums.
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
  std::span<const std::byte> data;  // exactly element_count(shape) * dtype_size(dtype) bytes
  // "I8", "U8" or "F16" for codes and scales of quantized weights, "I64" for their shapes: no
  // Tensor holds these. `dtype` has no meaning then.
  std::string foreign = {};
};

// The bytes do not depend on the order of `tensors`. Tensors are sorted by element size, largest
// first, so that each is aligned to its element size, and then by name. Errors: INVALID_ARGUMENT
// for everything that the reader would refuse (engine/core/limits.h, duplicate names, wrong sizes,
// metadata keys that begin with "trafo."), and errors of the sink.
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
  // The name of an element type that DType does not have. `dtype` has no meaning then.
  std::string foreign;
};

class SafetensorsSource;  // a file or a buffer, read at offsets
// The element types that a reader allows: the types of DType, in addition the types of quantized
// weights (I8, U8 and F16), or every type of the format. See TensorInfo::foreign.
enum class ElementTypes { ours, ours_and_codes, all };

class SafetensorsReader {
 public:
  // Reads and checks the header, with memory in proportion to it. Errors: NOT_FOUND; IO;
  // CORRUPT_FILE, naming the file and the tensor or rule; UNSUPPORTED, naming a tensor whose dtype
  // is not allowed. The file is read through one descriptor and never mapped.
  // `links`: whether symbolic links are followed.
  static SafetensorsReader open(const std::filesystem::path& path,
                                ElementTypes types = ElementTypes::ours);
  // For files of checkpoints: ElementTypes::ours_and_codes.
  static SafetensorsReader open_no_follow(const std::filesystem::path& path);
  // For files of other programs: ElementTypes::all.
  static SafetensorsReader open_foreign(const std::filesystem::path& path);
  // `bytes` must outlive the reader; messages show `label` instead of the file name.
  static SafetensorsReader from_memory(std::span<const std::byte> bytes, std::string label,
                                       ElementTypes types = ElementTypes::ours);

  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) noexcept;
  ~SafetensorsReader();

  const std::string& label() const { return label_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in payload order
  const SafetensorsMetadata& metadata() const { return metadata_; }    // without "trafo." pairs
  bool has_checksums() const { return has_checksums_; }

  const TensorInfo* find(std::string_view name) const;  // null without one
  const TensorInfo& at(std::string_view name) const;    // NOT_FOUND, naming file and tensor

  // Copies the bytes of a tensor. `out` must have exactly info.bytes bytes, else SHAPE_MISMATCH and
  // nothing is written. The copy is checked, not the file, so that the file cannot change in
  // between. After CORRUPT_FILE `out` has the damaged bytes; call verify() first if `out` must not
  // be destroyed.
  void read(const TensorInfo& info, std::span<std::byte> out) const;
  void read(std::string_view name, std::span<std::byte> out) const { read(at(name), out); }

  // Checks the whole payload against the checksums, 1 MiB at a time. CORRUPT_FILE names the first
  // damaged tensor. Without checksums, only checks that all bytes can be read.
  void verify() const;

 private:
  SafetensorsReader(std::unique_ptr<SafetensorsSource> source, std::string label,
                    ElementTypes types = ElementTypes::ours);

  std::unique_ptr<SafetensorsSource> source_;
  std::string label_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> index_;  // name -> index in tensors_
  SafetensorsMetadata metadata_;
  uint64_t payload_start_ = 0;
  bool has_checksums_ = false;
};

// The damage that the file's own header and checksums show, without the name of the file, such as
// "tensor 'x' is damaged, ..."; empty without one. Reads the whole file.
std::string safetensors_damage(const std::filesystem::path& file);
std::string safetensors_damage(std::span<const std::byte> file);

}  // namespace trafo
