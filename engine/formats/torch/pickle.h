// The pickle in a file of torch.save(): a table of tensors. Nothing of it runs. It is read by a
// list of opcodes and globals, and everything else is refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/dtype.h"

namespace trafo::interop {

// The elements of a storage.
struct TorchType {
  std::string_view storage;  // its class in torch, such as "FloatStorage"
  DType dtype;
  std::string_view foreign;  // as TensorInfo::foreign
  uint64_t bytes;            // of one element
};

struct PickledStorage {
  std::string key;  // names its bytes in the file
  const TorchType* type;
  uint64_t elements;
};

// A view of a storage: in it, element (i, j, ...) is at offset + i * strides[0] + j * strides[1]
// + ..., no two elements are at one place and none is outside.
struct PickledTensor {
  std::string name;
  size_t storage;  // its index in PickledTable::storages
  uint64_t offset;
  std::vector<int64_t> shape, strides;
};

struct PickledTable {
  std::vector<PickledStorage> storages;
  std::vector<PickledTensor> tensors;
  size_t pickle_bytes;  // the pickle ends here
};

// Reads the pickle that `bytes` begins with. CORRUPT_FILE with `label`: it is damaged. UNSUPPORTED
// names the opcode, the global or the value that is not part of a table of tensors.
PickledTable read_pickled_table(std::string_view bytes, const std::string& label);

// The two small pickles of the older format, one before and one after the table.
struct PickledSystem {
  bool little_endian;
  size_t pickle_bytes;
};
PickledSystem read_pickled_system(std::string_view bytes, const std::string& label);
struct PickledKeys {
  std::vector<std::string> keys;
  size_t pickle_bytes;
};
PickledKeys read_pickled_keys(std::string_view bytes, const std::string& label);

}  // namespace trafo::interop
