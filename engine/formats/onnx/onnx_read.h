// Reads an ONNX file as far as an export checks what it wrote.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/formats/onnx/onnx_weights.h"

namespace trafo::interop {

// A tensor of the file of weights, as a graph names it.
struct OnnxStoredWeight {
  std::vector<int64_t> shape;
  OnnxType type = OnnxType::f32;  // or i8
  std::string location;
  uint64_t offset = 0, bytes = 0;
};

// The weights of a serialized ModelProto, by name. CORRUPT_FILE naming `label`: the bytes are no
// message, the versions are others, an operator reads a value that nothing gives it, two give one
// value, nothing gives an output, or a weight is neither float32 nor int8.
std::map<std::string, OnnxStoredWeight> read_onnx_weights(std::string_view model,
                                                          const std::string& label);

}  // namespace trafo::interop
