#include "engine/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "engine/core/file_memory.h"
#include "engine/core/status.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"
#include "engine/io/descriptor.h"
#include "engine/io/safetensors_header.h"

namespace trafo {

static_assert(std::endian::native == std::endian::little,
              "tensors are written as they lie in memory");

class SafetensorsSource {
 public:
  virtual ~SafetensorsSource() = default;
  virtual uint64_t size() const = 0;
  // Returns fewer bytes than requested only at the end.
  virtual size_t read_at(uint64_t offset, std::span<std::byte> out) const = 0;
};

namespace {

constexpr std::string_view kSafetensorsOrigin = "safetensors";
constexpr size_t kPieceBytes = size_t{1} << 20;

class FileSource final : public SafetensorsSource {
 public:
  explicit FileSource(Descriptor file) : file_(std::move(file)), size_(file_.size()) {}
  uint64_t size() const override { return size_; }
  size_t read_at(uint64_t offset, std::span<std::byte> out) const override {
    return file_.read_at(offset, out);
  }

 private:
  Descriptor file_;
  uint64_t size_;
};

class MemorySource final : public SafetensorsSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t size() const override { return bytes_.size(); }
  size_t read_at(uint64_t offset, std::span<std::byte> out) const override {
    if (offset >= bytes_.size() || out.empty()) return 0;
    const size_t count = std::min<uint64_t>(out.size(), bytes_.size() - offset);
    std::memcpy(out.data(), bytes_.data() + offset, count);
    return count;
  }

 private:
  std::span<const std::byte> bytes_;
};

std::unique_ptr<SafetensorsSource> open_source(const std::filesystem::path& path,
                                               FollowLinks links) {
  return std::make_unique<FileSource>(open_file_for_reading(path, links));
}

void check_entry(const TensorEntry& entry) {
  const auto check = [&](bool condition, const auto&... message) {
    require(condition, ErrorCode::invalid_argument, kSafetensorsOrigin, message...);
  };
  check(!entry.name.empty() && entry.name.size() <= limits::kNameBytes, "a tensor name has ",
        entry.name.size(), " bytes; 1 to ", limits::kNameBytes, " are allowed");
  check(is_valid_utf8_without_nul(entry.name), "a tensor name is not UTF-8 without NUL");
  check(entry.name != "__metadata__", "no tensor can be named __metadata__");
  const std::string_view foreign = entry.foreign;
  const bool known = foreign == "I8" || foreign == "U8" || foreign == "F16" || foreign == "I64";
  check(foreign.empty() || known, "tensor ", quote(entry.name), " has dtype ", quote(foreign),
        ", which is not written");
  const int64_t bytes = tensor_bytes(entry.shape, entry.dtype, entry.foreign);
  check(bytes >= 0, "the shape of tensor ", quote(entry.name),
        " has a negative or too large dimension, too many of them, or overflows");
  check(static_cast<uint64_t>(bytes) == entry.data.size(), "tensor ", quote(entry.name), " has ",
        entry.data.size(), " bytes, its shape needs ", bytes);
}

void check_metadata(const SafetensorsMetadata& metadata) {
  for (const auto& [key, value] : metadata) {
    const auto check = [&](bool condition, const auto&... message) {
      require(condition, ErrorCode::invalid_argument, kSafetensorsOrigin, message...);
    };
    check(is_valid_utf8_without_nul(key) && is_valid_utf8_without_nul(value),
          "a metadata pair is not UTF-8 without NUL");
    check(!key.starts_with(kOurPrefix), "metadata key ", quote(key),
          " begins with 'trafo.', which is reserved");
    check(key.size() <= limits::kNameBytes, "a metadata key has ", key.size(),
          " bytes, the limit is ", limits::kNameBytes);
    check(value.size() <= limits::kMetadataValueBytes, "metadata value ", quote(key), " has ",
          value.size(), " bytes, the limit is ", limits::kMetadataValueBytes);
  }
}

}  // namespace

// ---- writing ----

void write_safetensors(ByteSink& sink, std::span<const TensorEntry> tensors,
                       const SafetensorsMetadata& metadata) {
  require(tensors.size() <= limits::kTensors, ErrorCode::invalid_argument, kSafetensorsOrigin,
          "there are ", tensors.size(), " tensors, the limit is ", limits::kTensors);
  // Leaves space for the writer's pairs: one for each tensor and two for the file.
  require(metadata.size() + tensors.size() + 2 <= limits::kMetadataPairs,
          ErrorCode::invalid_argument, kSafetensorsOrigin, "there are ", metadata.size(),
          " metadata pairs, too many");
  check_metadata(metadata);
  for (const TensorEntry& entry : tensors) check_entry(entry);

  std::vector<const TensorEntry*> order;
  for (const TensorEntry& entry : tensors) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const TensorEntry* a, const TensorEntry* b) {
    const auto width = [](const TensorEntry& entry) {
      if (entry.foreign.empty()) return dtype_size(entry.dtype);
      return entry.foreign == "I64" ? size_t{8} : entry.foreign == "F16" ? size_t{2} : size_t{1};
    };
    const size_t width_a = width(*a), width_b = width(*b);
    return width_a != width_b ? width_a > width_b : a->name < b->name;
  });

  std::set<std::string_view> names;
  std::vector<TensorInfo> infos;
  uint64_t offset = 0;
  for (const TensorEntry* entry : order) {
    require(names.insert(entry->name).second, ErrorCode::invalid_argument, kSafetensorsOrigin,
            "there are two tensors named ", quote(entry->name));
    release_file_memory();
    infos.push_back({entry->name, entry->dtype, entry->shape, offset, entry->data.size(),
                     crc32_text(crc32(entry->data)), entry->foreign});
    offset += entry->data.size();
  }
  const std::string header = encode_safetensors_header(infos, metadata);
  require(header.size() <= limits::kHeaderBytes, ErrorCode::invalid_argument, kSafetensorsOrigin,
          "the header needs ", header.size(), " bytes, the limit is ", limits::kHeaderBytes);
  const uint64_t header_size = header.size();
  sink.write(std::as_bytes(std::span(&header_size, 1)));
  sink.write(std::string_view(header));
  for (const TensorEntry* entry : order) {
    release_file_memory();
    sink.write(entry->data);
  }
}

std::vector<std::byte> safetensors_to_memory(std::span<const TensorEntry> tensors,
                                             const SafetensorsMetadata& metadata) {
  MemorySink sink;
  write_safetensors(sink, tensors, metadata);
  return sink.take();
}

void save_safetensors(const std::filesystem::path& path, std::span<const TensorEntry> tensors,
                      const SafetensorsMetadata& metadata) {
  AtomicFile file(path);
  write_safetensors(file, tensors, metadata);
  file.commit();
}

// ---- reading ----

SafetensorsReader SafetensorsReader::open(const std::filesystem::path& path, ElementTypes types) {
  return SafetensorsReader(open_source(path, FollowLinks::yes), path.string(), types);
}

SafetensorsReader SafetensorsReader::open_no_follow(const std::filesystem::path& path) {
  return SafetensorsReader(open_source(path, FollowLinks::no), path.string(),
                           ElementTypes::ours_and_codes);
}

SafetensorsReader SafetensorsReader::open_foreign(const std::filesystem::path& path) {
  return SafetensorsReader(open_source(path, FollowLinks::yes), path.string(), ElementTypes::all);
}

SafetensorsReader SafetensorsReader::from_memory(std::span<const std::byte> bytes,
                                                 std::string label, ElementTypes types) {
  return SafetensorsReader(std::make_unique<MemorySource>(bytes), std::move(label), types);
}

SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;
SafetensorsReader& SafetensorsReader::operator=(SafetensorsReader&&) noexcept = default;
SafetensorsReader::~SafetensorsReader() = default;

SafetensorsReader::SafetensorsReader(std::unique_ptr<SafetensorsSource> source, std::string label,
                                     ElementTypes types)
    : source_(std::move(source)), label_(std::move(label)) {
  const auto check = [&](bool condition, const auto&... message) {
    require(condition, ErrorCode::corrupt_file, kSafetensorsOrigin, label_, ": ", message...);
  };
  const uint64_t file_size = source_->size();
  uint64_t header_size = 0;
  check(file_size >= sizeof(header_size), "the file has ", file_size,
        " bytes, too few for the length of the header");
  check(source_->read_at(0, std::as_writable_bytes(std::span(&header_size, 1))) ==
            sizeof(header_size),
        "the file became shorter while it was read");
  check(header_size <= limits::kHeaderBytes, "the header would have ", header_size,
        " bytes, the limit is ", limits::kHeaderBytes);
  check(header_size <= file_size - sizeof(header_size), "the header would have ", header_size,
        " bytes, the file has ", file_size);
  std::string json(static_cast<size_t>(header_size), '\0');
  check(source_->read_at(sizeof(header_size), std::as_writable_bytes(std::span(
                                                  json.data(), json.size()))) == header_size,
        "the file became shorter while it was read");
  payload_start_ = sizeof(header_size) + header_size;

  SafetensorsHeader header =
      parse_safetensors_header(json, file_size - payload_start_, label_, types);
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
  has_checksums_ = header.has_checksums;
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const TensorInfo* SafetensorsReader::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& SafetensorsReader::at(std::string_view name) const {
  const TensorInfo* info = find(name);
  require(info != nullptr, ErrorCode::not_found, kSafetensorsOrigin, label_, " has no tensor ",
          quote(name));
  return *info;
}

void SafetensorsReader::read(const TensorInfo& info, std::span<std::byte> out) const {
  require(out.size() == info.bytes, ErrorCode::shape_mismatch, kSafetensorsOrigin, label_,
          ": tensor ", quote(info.name), " has ", info.bytes, " bytes, there is room for ",
          out.size());
  require(source_->read_at(payload_start_ + info.offset, out) == out.size(),
          ErrorCode::corrupt_file, kSafetensorsOrigin, label_, ": the file ends inside tensor ",
          quote(info.name));
  require(info.crc32.empty() || crc32_text(crc32(out)) == info.crc32, ErrorCode::corrupt_file,
          kSafetensorsOrigin, label_, ": tensor ", quote(info.name),
          " is damaged, its checksum does not fit");
}

void SafetensorsReader::verify() const {
  std::vector<std::byte> piece(kPieceBytes);
  for (const TensorInfo& info : tensors_) {
    uint32_t crc = 0;
    for (uint64_t done = 0; done < info.bytes;) {
      const std::span<std::byte> part(piece.data(),
                                      std::min<uint64_t>(kPieceBytes, info.bytes - done));
      require(source_->read_at(payload_start_ + info.offset + done, part) == part.size(),
              ErrorCode::corrupt_file, kSafetensorsOrigin, label_, ": the file ends inside tensor ",
              quote(info.name));
      crc = crc32(part, crc);
      done += part.size();
    }
    require(info.crc32.empty() || crc32_text(crc) == info.crc32, ErrorCode::corrupt_file,
            kSafetensorsOrigin, label_, ": tensor ", quote(info.name),
            " is damaged, its checksum does not fit");
  }
}

namespace {

template <class Open>
std::string damage_found(const std::string& label, const Open& open) {
  try {
    open().verify();
    return {};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory) throw;
    const std::string start = label + ": ";
    std::string_view what = error.message();
    if (what.starts_with(start)) what.remove_prefix(start.size());
    return std::string(what);
  }
}

}  // namespace

std::string safetensors_damage(const std::filesystem::path& file) {
  return damage_found(file.string(), [&] { return SafetensorsReader::open_no_follow(file); });
}

std::string safetensors_damage(std::span<const std::byte> file) {
  return damage_found(
      {}, [&] { return SafetensorsReader::from_memory(file, {}, ElementTypes::ours_and_codes); });
}

}  // namespace trafo
