#include "engine/formats/weight_files.h"

#include <algorithm>

#include "engine/core/strings/json.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/torch/torch_file.h"
#include "engine/io/atomic_file.h"
#include "engine/io/safetensors_header.h"
#include "engine/os/names.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

class SafetensorsWeights final : public WeightFile {
 public:
  explicit SafetensorsWeights(const fs::path& file)
      : reader_(SafetensorsReader::open_foreign(file)) {}
  const std::string& label() const override { return reader_.label(); }
  const std::vector<TensorInfo>& tensors() const override { return reader_.tensors(); }
  void read(const TensorInfo& info, std::span<std::byte> out) const override {
    reader_.read(info, out);
  }

 private:
  SafetensorsReader reader_;
};

template <class File>
std::unique_ptr<const WeightFile> open_weights(const fs::path& file) {
  return std::make_unique<File>(file);
}

// In the order of preference.
struct WeightSource {
  const char* one_file;
  const char* list;
  std::unique_ptr<const WeightFile> (*open)(const fs::path& file);
};
constexpr WeightSource kWeightSources[] = {
    {"model.safetensors", "model.safetensors.index.json", open_weights<SafetensorsWeights>},
    {"pytorch_model.bin", "pytorch_model.bin.index.json", open_weights<TorchFile>}};
// Each has an open descriptor. Llama 3.1 with 405 billion parameters has 191.
constexpr size_t kFiles = 512;

bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored);
}

[[noreturn]] void refuse_list(const std::string& label, const std::string& reason) {
  fail(ErrorCode::corrupt_file, kOrigin, label, reason);
}

// The name of a file beside the list, and nothing that leads elsewhere.
void check_file_name(const std::string& label, const std::string& name) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
                     name.find_first_of("/\\") == std::string::npos &&
                     is_valid_utf8_without_nul(name);
  if (!plain)
    refuse_list(label, concat(" names the file ", quote(name),
                              ", which is not the name of a file of this directory"));
}

// Of every tensor of the list, the file; and the files, in order.
struct WeightMap {
  std::map<std::string, std::string, std::less<>> file_of;
  std::vector<std::string> files;
};

WeightMap read_weight_map(const fs::path& list) {
  const std::string label = list.string();
  const Json json = parse_json(read_text_file(list, limits::kConfigBytes), kOrigin, label);
  const Json* map = json.find("weight_map");
  const auto* members = map != nullptr ? map->as<Json::Object>() : nullptr;
  if (members == nullptr) refuse_list(label, " has no object weight_map");
  WeightMap result;
  for (const Json::Member& member : *members) {
    const auto* file = member.value.as<std::string>();
    if (file == nullptr)
      refuse_list(label, concat(": weight_map: the file of ", quote(member.key), " is no text"));
    check_file_name(label, *file);
    result.file_of.emplace(member.key, *file);
    result.files.push_back(*file);
  }
  std::sort(result.files.begin(), result.files.end());
  result.files.erase(std::unique(result.files.begin(), result.files.end()), result.files.end());
  if (result.files.empty()) refuse_list(label, ": weight_map is empty");
  if (result.files.size() > kFiles)
    refuse_list(label, concat(" names ", result.files.size(), " files, the limit is ", kFiles));
  return result;
}

}  // namespace

WeightFiles WeightFiles::open(const fs::path& directory) {
  WeightFiles weights;
  const auto source = std::find_if(
      std::begin(kWeightSources), std::end(kWeightSources), [&](const WeightSource& known) {
        return is_there(directory / known.one_file) || is_there(directory / known.list);
      });
  require(source != std::end(kWeightSources), ErrorCode::not_found, kOrigin, directory.string(),
          ": there are no weights: no ", kWeightSources[0].one_file, ", no ",
          kWeightSources[1].one_file, " and no list of either (", kWeightSources[0].list, ", ",
          kWeightSources[1].list, ")");
  if (const fs::path file = directory / source->one_file; is_there(file)) {
    weights.label_ = file.string();
    weights.add(source->open(file));
    return weights;
  }
  const fs::path list = directory / source->list;
  weights.label_ = list.string();
  const WeightMap map = read_weight_map(list);
  for (const std::string& name : map.files) {
    const fs::path part = directory / os::path_of(name);
    if (!is_there(part))
      refuse_list(weights.label_,
                  concat(" names the file ", quote(name), ", which is not in the directory"));
    const WeightFile& file = weights.add(source->open(part));
    for (const TensorInfo& info : file.tensors()) {
      const auto listed = map.file_of.find(info.name);
      if (listed == map.file_of.end())
        refuse_list(weights.label_,
                    concat(" does not list the tensor ", info.name, " of ", quote(name)));
    }
  }
  for (const auto& [tensor, name] : map.file_of) {
    const auto found = weights.tensors_.find(tensor);
    if (found == weights.tensors_.end() ||
        found->second.file !=
            weights
                .files_[static_cast<size_t>(
                    std::lower_bound(map.files.begin(), map.files.end(), name) - map.files.begin())]
                .get())
      refuse_list(weights.label_, concat(" says that the tensor ", quote(tensor), " is in ",
                                         quote(name), ", which has no such tensor"));
  }
  return weights;
}

const WeightFile& WeightFiles::add(std::unique_ptr<const WeightFile> opened) {
  const WeightFile& file = *files_.emplace_back(std::move(opened));
  for (const TensorInfo& info : file.tensors()) {
    const auto [place, added] = tensors_.try_emplace(info.name, WeightTensor{&file, &info});
    if (!added)
      refuse_list(label_, concat(": the tensor ", info.name, " is in ", place->second.file->label(),
                                 " and in ", file.label()));
  }
  return file;
}

WeightTensor WeightFiles::at(std::string_view name) const {
  const auto found = tensors_.find(name);
  require(found != tensors_.end(), ErrorCode::not_found, kOrigin, label_, " has no tensor ",
          quote(name));
  return found->second;
}

uint64_t WeightFiles::payload_bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors_) sum += tensor.info->bytes;
  return sum;
}

std::vector<std::byte> WeightFiles::bytes(std::string_view name) const {
  const WeightTensor tensor = at(name);
  std::vector<std::byte> bytes(tensor.info->bytes);
  tensor.file->read(*tensor.info, bytes);
  return bytes;
}

}  // namespace trafo::interop
