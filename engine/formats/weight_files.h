// The weights of a model directory of transformers: one safetensors file, or several of them and a
// list of which tensor is in which (model.safetensors.index.json).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/safetensors.h"

namespace trafo::interop {

// A tensor and the file that it is in.
struct WeightTensor {
  const SafetensorsReader* file;
  const TensorInfo* info;
};

class WeightFiles {
 public:
  // Opens DIR/model.safetensors or, if there is none, the files that the list names. Reads their
  // headers and no tensor. CORRUPT_FILE, naming tensor and file: a file of the list is missing or
  // not one of this directory, a tensor is in two files, not where the list says, or not on the
  // list. UNSUPPORTED: there are weights in another format; the message says what to do.
  static WeightFiles open(const std::filesystem::path& directory);

  // The name of the single file or of the list, for messages.
  const std::string& label() const { return label_; }
  bool has(std::string_view name) const { return tensors_.contains(name); }
  // NOT_FOUND, naming file and tensor.
  WeightTensor at(std::string_view name) const;
  // By name.
  const std::map<std::string, WeightTensor, std::less<>>& tensors() const { return tensors_; }
  uint64_t payload_bytes() const;

  // The bytes of a tensor, as SafetensorsReader::read().
  std::vector<std::byte> bytes(std::string_view name) const;

 private:
  void add(const SafetensorsReader& file);

  std::string label_;
  std::vector<SafetensorsReader> files_;  // never grows once `tensors_` refers to it
  std::map<std::string, WeightTensor, std::less<>> tensors_;
};

}  // namespace trafo::interop
