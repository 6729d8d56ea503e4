#include "engine/formats/torch/zip_file.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "engine/core/limits.h"
#include "engine/core/strings/quote.h"
#include "engine/formats/expressible.h"

namespace trafo::interop {
namespace {

constexpr std::string_view kZipLocal = "PK\3\4", kZipListed = "PK\1\2", kZipEnd = "PK\5\6",
                           kZip64End = "PK\6\6", kZip64Locator = "PK\6\7";
constexpr size_t kZipLocalBytes = 30, kZipListedBytes = 46, kZipEndBytes = 22, kZip64EndBytes = 56,
                 kZip64LocatorBytes = 20, kZipCommentBytes = 65535;
constexpr uint32_t kIn64Bits = 0xffffffff;  // the value is in a field of 64 bits
constexpr size_t kZipEntries = limits::kTensors + 64;

template <class T>
T number_at(std::string_view bytes, size_t place) {
  T value;
  std::memcpy(&value, bytes.data() + place, sizeof value);
  return value;
}

template <class... Args>
[[noreturn]] void damaged_zip(const Descriptor& file, const Args&... reason) {
  fail(ErrorCode::corrupt_file, kOrigin, file.path().string(),
       " is a damaged zip file: ", reason...);
}

struct ZipList {
  uint64_t entries, bytes, offset;
};

// The end of the file says where the list is.
ZipList find_zip_list(const Descriptor& file) {
  const uint64_t size = file.size();
  const uint64_t tail_bytes = std::min<uint64_t>(size, kZipEndBytes + kZipCommentBytes);
  const std::string tail = read_file_part(file, size - tail_bytes, tail_bytes);
  size_t end = std::string::npos;
  for (size_t i = tail.size() < kZipEndBytes ? 0 : tail.size() - kZipEndBytes + 1; i-- > 0;)
    if (std::string_view(tail).substr(i).starts_with(kZipEnd) &&
        number_at<uint16_t>(tail, i + 20) == tail.size() - i - kZipEndBytes) {
      end = i;
      break;
    }
  if (end == std::string::npos) damaged_zip(file, "it has no end of the list of its entries");
  ZipList list{number_at<uint16_t>(tail, end + 10), number_at<uint32_t>(tail, end + 12),
               number_at<uint32_t>(tail, end + 16)};
  const bool is_64 = list.entries == 0xffff || list.bytes == kIn64Bits || list.offset == kIn64Bits;
  if (is_64) {
    if (end < kZip64LocatorBytes || tail.compare(end - kZip64LocatorBytes, 4, kZip64Locator) != 0)
      damaged_zip(file, "the place of its 64-bit list is missing");
    const auto place = number_at<uint64_t>(tail, end - kZip64LocatorBytes + 8);
    const std::string record = read_file_part(file, place, kZip64EndBytes);
    if (!record.starts_with(kZip64End)) damaged_zip(file, "its 64-bit list is not where it says");
    list = {number_at<uint64_t>(record, 32), number_at<uint64_t>(record, 40),
            number_at<uint64_t>(record, 48)};
  }
  if (list.entries > kZipEntries || list.bytes > limits::kHeaderBytes)
    damaged_zip(file, "it would have ", list.entries, " entries in a list of ", list.bytes,
                " bytes, the limits are ", kZipEntries, " and ", limits::kHeaderBytes);
  return list;
}

// Puts the fields of 64 bits in the place of those that say that there is one.
void read_zip64_fields(const Descriptor& file, std::string_view extra, uint64_t& bytes,
                       uint64_t& stored, uint64_t& place) {
  constexpr uint16_t kZip64Field = 1;
  while (extra.size() >= 4) {
    const auto kind = number_at<uint16_t>(extra, 0), count = number_at<uint16_t>(extra, 2);
    extra.remove_prefix(4);
    if (count > extra.size()) break;
    std::string_view field = extra.substr(0, count);
    extra.remove_prefix(count);
    if (kind != kZip64Field) continue;
    for (uint64_t* value : {&bytes, &stored, &place})
      if (*value == kIn64Bits) {
        if (field.size() < 8) damaged_zip(file, "a 64-bit field of an entry is missing");
        *value = number_at<uint64_t>(field, 0);
        field.remove_prefix(8);
      }
    return;
  }
}

}  // namespace

std::string read_file_part(const Descriptor& file, uint64_t offset, uint64_t count) {
  const uint64_t size = file.size();
  require(offset <= size && count <= size - offset, ErrorCode::corrupt_file, kOrigin,
          file.path().string(), ": ", count, " bytes at ", offset, " are not in the file of ", size,
          " bytes");
  std::string bytes(static_cast<size_t>(count), '\0');
  require(
      file.read_at(offset, std::as_writable_bytes(std::span(bytes.data(), bytes.size()))) == count,
      ErrorCode::corrupt_file, kOrigin, file.path().string(), " became shorter while it was read");
  return bytes;
}

bool is_zip_file(const Descriptor& file) {
  return file.size() >= kZipLocal.size() && read_file_part(file, 0, kZipLocal.size()) == kZipLocal;
}

std::vector<ZipEntry> read_zip_entries(const Descriptor& file) {
  const ZipList list = find_zip_list(file);
  const std::string bytes = read_file_part(file, list.offset, list.bytes);
  std::vector<ZipEntry> entries;
  std::set<std::string_view> names;
  std::string_view left = bytes;
  for (uint64_t i = 0; i < list.entries; ++i) {
    if (left.size() < kZipListedBytes || !left.starts_with(kZipListed))
      damaged_zip(file, "entry ", i, " of its list is no entry");
    const auto flags = number_at<uint16_t>(left, 8), method = number_at<uint16_t>(left, 10);
    const size_t name_bytes = number_at<uint16_t>(left, 28),
                 extra_bytes = number_at<uint16_t>(left, 30),
                 whole = kZipListedBytes + name_bytes + extra_bytes + number_at<uint16_t>(left, 32);
    if (whole > left.size()) damaged_zip(file, "entry ", i, " of its list is too long");
    const std::string_view name = left.substr(kZipListedBytes, name_bytes);
    const auto crc = number_at<uint32_t>(left, 16);
    uint64_t stored = number_at<uint32_t>(left, 20), size = number_at<uint32_t>(left, 24),
             place = number_at<uint32_t>(left, 42);
    read_zip64_fields(file, left.substr(kZipListedBytes + name_bytes, extra_bytes), size, stored,
                      place);
    left.remove_prefix(whole);
    require((flags & 1) == 0 && method == 0, ErrorCode::unsupported, kOrigin, file.path().string(),
            ": the entry ", quote(name), " of the zip file is ",
            method == 0 ? "encrypted" : "compressed", ", torch.save() stores entries as they are");
    if (stored != size) damaged_zip(file, "the entry ", quote(name), " has two sizes");
    if (!names.insert(name).second) damaged_zip(file, "it has two entries ", quote(name));
    const std::string local = read_file_part(file, place, kZipLocalBytes);
    if (!local.starts_with(kZipLocal))
      damaged_zip(file, "the entry ", quote(name), " is not where the list says");
    const uint64_t offset =
        place + kZipLocalBytes + number_at<uint16_t>(local, 26) + number_at<uint16_t>(local, 28);
    if (offset > list.offset || size > list.offset - offset)
      damaged_zip(file, "the entry ", quote(name), " of ", size, " bytes is not within the file");
    entries.push_back({std::string(name), offset, size, crc});
  }
  return entries;
}

}  // namespace trafo::interop
