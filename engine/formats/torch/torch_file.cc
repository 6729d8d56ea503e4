#include "engine/formats/torch/torch_file.h"

#include <algorithm>
#include <cstring>

#include "engine/core/limits.h"
#include "engine/core/strings/quote.h"
#include "engine/formats/expressible.h"
#include "engine/formats/torch/zip_file.h"
#include "engine/io/checksum.h"
#include "engine/io/safetensors_header.h"

namespace trafo::interop {
namespace {

// The pickles of a magic number and of the version 1001.
constexpr std::string_view kOlderBegin(
    "\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", 21);
// Tied tables are several tensors of one storage. A file cannot ask for much more than it has.
constexpr uint64_t kViewsOfFile = 8;

bool is_contiguous(const PickledTensor& tensor) {
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return true;
  int64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] > 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

// The bytes between the first and the end of the last element.
uint64_t reach_of(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                  uint64_t element_bytes) {
  uint64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i)
    last += static_cast<uint64_t>((shape[i] - 1) * strides[i]);
  return (last + 1) * element_bytes;
}

}  // namespace

TorchFile::TorchFile(const std::filesystem::path& path)
    : label_(path.string()), file_(open_file_for_reading(path, FollowLinks::yes)) {
  const uint64_t size = file_.size();
  const std::string begin = read_file_part(file_, 0, std::min<uint64_t>(size, kOlderBegin.size()));
  if (begin == kOlderBegin)
    open_older();
  else if (is_zip_file(file_))
    open_zip();
  else
    fail(ErrorCode::corrupt_file, kOrigin, label_,
         " is not a file of torch.save(): it begins neither as a zip file nor as the older format");
}

void TorchFile::open_zip() {
  constexpr std::string_view kTable = "/data.pkl";
  const std::vector<ZipEntry> entries = read_zip_entries(file_);
  const auto table = std::find_if(entries.begin(), entries.end(), [&](const ZipEntry& entry) {
    return entry.name.ends_with(kTable) &&
           entry.name.find('/') == entry.name.size() - kTable.size();
  });
  require(table != entries.end(), ErrorCode::corrupt_file, kOrigin, label_,
          " has no entry NAME/data.pkl, so that it is no zip file of torch.save()");
  const std::string folder = table->name.substr(0, table->name.find('/') + 1);
  require(table->bytes <= limits::kHeaderBytes, ErrorCode::corrupt_file, kOrigin, label_, ": ",
          table->name, " has ", table->bytes, " bytes, the limit is ", limits::kHeaderBytes);
  std::map<std::string, Stored, std::less<>> storages;
  for (const ZipEntry& entry : entries) {
    const std::string_view name = entry.name;
    if (!name.starts_with(folder)) continue;
    constexpr std::string_view kData = "data/";
    const std::string_view inside = name.substr(folder.size());
    if (inside.starts_with(kData))
      storages.emplace(inside.substr(kData.size()), Stored{entry.offset, entry.bytes, entry.crc32});
    if (inside == "byteorder")
      require(entry.bytes == 6 && read_file_part(file_, entry.offset, 6) == "little",
              ErrorCode::unsupported, kOrigin, label_,
              ": the byte order of its numbers is not little");
  }
  const std::string pickle = read_file_part(file_, table->offset, table->bytes);
  const std::string label = concat(label_, ": ", table->name);
  require(table->crc32 == 0 ||
              crc32(std::as_bytes(std::span(pickle.data(), pickle.size()))) == table->crc32,
          ErrorCode::corrupt_file, kOrigin, label, " is damaged, its checksum does not fit");
  add(read_pickled_table(pickle, label), storages);
}

// After the two pickles come the pickle of the system, of the table, of the list of storages,
// and of each storage the number of its elements and its bytes.
void TorchFile::open_older() {
  const uint64_t size = file_.size();
  const std::string begin =
      read_file_part(file_, 0, std::min<uint64_t>(size, limits::kHeaderBytes));
  std::string_view left = std::string_view(begin).substr(kOlderBegin.size());
  const PickledSystem system = read_pickled_system(left, label_);
  require(system.little_endian, ErrorCode::unsupported, kOrigin, label_,
          ": the byte order of its numbers is not little");
  left.remove_prefix(system.pickle_bytes);
  const PickledTable table = read_pickled_table(left, label_);
  left.remove_prefix(table.pickle_bytes);
  const PickledKeys list = read_pickled_keys(left, label_);
  left.remove_prefix(list.pickle_bytes);

  std::map<std::string_view, const PickledStorage*> known;
  for (const PickledStorage& storage : table.storages) known.emplace(storage.key, &storage);
  std::map<std::string, Stored, std::less<>> storages;
  uint64_t place = begin.size() - left.size();
  for (const std::string& key : list.keys) {
    const auto storage = known.find(key);
    require(storage != known.end(), ErrorCode::corrupt_file, kOrigin, label_, " has the storage ",
            quote(key), ", which its table does not name");
    uint64_t elements = 0;
    const std::string number = read_file_part(file_, place, sizeof elements);
    std::memcpy(&elements, number.data(), sizeof elements);
    place += sizeof elements;
    require(elements == storage->second->elements, ErrorCode::corrupt_file, kOrigin, label_,
            ": the storage ", quote(key), " has ", elements, " elements, its table says ",
            storage->second->elements);
    const uint64_t bytes = elements * storage->second->type->bytes;
    require(bytes <= size - place, ErrorCode::corrupt_file, kOrigin, label_,
            " ends inside the storage ", quote(key));
    storages.emplace(key, Stored{place, bytes, 0});
    place += bytes;
  }
  add(table, storages);
}

void TorchFile::add(const PickledTable& table,
                    const std::map<std::string, Stored, std::less<>>& storages) {
  uint64_t all = 0;
  for (const PickledTensor& tensor : table.tensors) {
    const PickledStorage& storage = table.storages[tensor.storage];
    const TorchType& type = *storage.type;
    const auto found = storages.find(storage.key);
    require(found != storages.end(), ErrorCode::corrupt_file, kOrigin, label_,
            " does not have the storage ", quote(storage.key), " of the tensor ",
            quote(tensor.name));
    const Stored& stored = found->second;
    require(stored.bytes == storage.elements * type.bytes, ErrorCode::corrupt_file, kOrigin, label_,
            ": the storage ", quote(storage.key), " has ", stored.bytes, " bytes, its ",
            storage.elements, " elements need ", storage.elements * type.bytes);
    TensorInfo info{tensor.name,
                    type.dtype,
                    tensor.shape,
                    stored.offset + tensor.offset * type.bytes,
                    static_cast<uint64_t>(tensor_bytes(tensor.shape, type.dtype, type.foreign)),
                    {},
                    std::string(type.foreign)};
    const bool in_order = is_contiguous(tensor);
    if (!in_order) strides_.emplace(tensor.name, tensor.strides);
    if (in_order && stored.crc32 != 0 && info.bytes == stored.bytes)
      info.crc32 = crc32_text(stored.crc32);
    all += info.bytes;
    require(all <= kViewsOfFile * file_.size(), ErrorCode::corrupt_file, kOrigin, label_,
            ": its tensors would have more than ", kViewsOfFile, " times the bytes of the file");
    tensors_.push_back(std::move(info));
  }
}

void TorchFile::read(const TensorInfo& info, std::span<std::byte> out) const {
  require(out.size() == info.bytes, ErrorCode::internal, kOrigin, label_, ": tensor ",
          quote(info.name), " has ", info.bytes, " bytes, there is room for ", out.size());
  const auto read_all = [&](std::span<std::byte> to) {
    require(file_.read_at(info.offset, to) == to.size(), ErrorCode::corrupt_file, kOrigin, label_,
            ": the file ends inside tensor ", quote(info.name));
  };
  const auto strided = strides_.find(info.name);
  if (strided == strides_.end()) {
    read_all(out);
    require(info.crc32.empty() || crc32_text(crc32(out)) == info.crc32, ErrorCode::corrupt_file,
            kOrigin, label_, ": tensor ", quote(info.name),
            " is damaged, its checksum does not fit");
    return;
  }
  const std::vector<int64_t>& strides = strided->second;
  uint64_t element = info.bytes;
  for (const int64_t dimension : info.shape) element /= static_cast<uint64_t>(dimension);
  std::vector<std::byte> stored(reach_of(info.shape, strides, element));
  read_all(stored);
  std::vector<int64_t> index(info.shape.size());
  uint64_t place = 0;  // in elements
  for (size_t done = 0; done < out.size(); done += element) {
    std::memcpy(out.data() + done, stored.data() + place * element, element);
    for (size_t axis = index.size(); axis-- > 0;) {
      place += static_cast<uint64_t>(strides[axis]);
      if (++index[axis] < info.shape[axis]) break;
      place -= static_cast<uint64_t>(strides[axis] * info.shape[axis]);
      index[axis] = 0;
    }
  }
}

}  // namespace trafo::interop
