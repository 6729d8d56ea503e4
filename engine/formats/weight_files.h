// The weights of a model directory of transformers: one file, or several of them and a list of
// which tensor is in which (model.safetensors.index.json). They are safetensors or, where there are
// none, files of torch.save() (pytorch_model.bin, pytorch_model.bin.index.json).
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/safetensors.h"

namespace trafo::interop {

class WeightFile {
 public:
  virtual ~WeightFile() = default;
  virtual const std::string& label() const = 0;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // Copies the bytes of a tensor of this file, of which `out` has exactly as many.
  virtual void read(const TensorInfo& info, std::span<std::byte> out) const = 0;
};

// A tensor and the file that it is in.
struct WeightTensor {
  const WeightFile* file;
  const TensorInfo* info;
};

class WeightFiles {
 public:
  // Opens the file or, if there is none, the files that the list names; safetensors before files of
  // torch.save(). Reads their headers and no tensor. CORRUPT_FILE, naming tensor and file: a file
  // of the list is missing or not one of this directory, a tensor is in two files, not where the
  // list says, or not on the list. NOT_FOUND: there are no weights.
  static WeightFiles open(const std::filesystem::path& directory);

  // The name of the single file or of the list, for messages.
  const std::string& label() const { return label_; }
  bool has(std::string_view name) const { return tensors_.contains(name); }
  // NOT_FOUND, naming file and tensor.
  WeightTensor at(std::string_view name) const;
  // By name.
  const std::map<std::string, WeightTensor, std::less<>>& tensors() const { return tensors_; }
  uint64_t payload_bytes() const;

  // The bytes of a tensor, as WeightFile::read().
  std::vector<std::byte> bytes(std::string_view name) const;

 private:
  const WeightFile& add(std::unique_ptr<const WeightFile> file);

  std::string label_;
  std::vector<std::unique_ptr<const WeightFile>> files_;
  std::map<std::string, WeightTensor, std::less<>> tensors_;
};

}  // namespace trafo::interop
