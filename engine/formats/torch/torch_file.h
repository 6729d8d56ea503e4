// A file of torch.save() with a table of tensors, such as pytorch_model.bin: the zip file that
// torch writes since 1.6, or the older format.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/formats/torch/pickle.h"
#include "engine/formats/weight_files.h"
#include "engine/io/descriptor.h"

namespace trafo::interop {

class TorchFile final : public WeightFile {
 public:
  // Reads the table and no tensor, and checks that every tensor is in the file. CORRUPT_FILE and
  // UNSUPPORTED name the file and the reason; NOT_FOUND.
  explicit TorchFile(const std::filesystem::path& path);

  const std::string& label() const override { return label_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  // Elements that the file has in another order are put in the order of the shape.
  void read(const TensorInfo& info, std::span<std::byte> out) const override;

 private:
  // Where the file has the bytes of a storage.
  struct Stored {
    uint64_t offset = 0, bytes = 0;
    uint32_t crc32 = 0;  // 0: unknown
  };
  void open_zip();
  void open_older();
  void add(const PickledTable& table, const std::map<std::string, Stored, std::less<>>& storages);

  std::string label_;
  Descriptor file_;
  std::vector<TensorInfo> tensors_;  // their offsets are from the start of the file
  // Of a tensor whose elements are in another order, by name.
  std::map<std::string, std::vector<int64_t>, std::less<>> strides_;
};

}  // namespace trafo::interop
