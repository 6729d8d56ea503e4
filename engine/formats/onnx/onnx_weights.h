// The file of weights that the graphs of an ONNX model share.
//
// A graph names a tensor of the file by its offset. A tensor that several graphs use is stored
// once: the place of a tensor is fixed when a graph asks for it first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/formats/host_model.h"
#include "engine/formats/interop.h"
#include "engine/formats/tensor_map.h"

namespace trafo::interop {

// TensorProto.DataType of onnx.proto.
enum class OnnxType : int32_t { f32 = 1, i8 = 3, i32 = 6, i64 = 7, boolean = 9 };

// Of a value in the file of weights: f32 or i8.
int64_t onnx_type_size(OnnxType type);

struct OnnxWeight {
  MappedTensor tensor;            // the parameter is empty for a table, which is computed
  OnnxType type = OnnxType::f32;  // or i8: codes, and their scales are the table scale_name(name)
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::function<std::vector<float>()> values;
};

class OnnxWeights {
 public:
  // `weights`: float32 or int8.
  OnnxWeights(const HostModel& host, ExportWeights weights)
      : host_(&host), int8_(weights == ExportWeights::int8) {}

  // Whether matrices are codes with scales (formats::kOnnxInt8).
  bool int8() const { return int8_; }
  static std::string scale_name(const std::string& parameter) { return parameter + "_scale"; }

  // A whole parameter, with its own name. transposed: [columns, rows], what MatMul multiplies with.
  const OnnxWeight& parameter(const std::string& name, bool transposed);
  // The rows of each part of a parameter, in their order.
  std::vector<int64_t> part_rows(const std::string& name) const;
  // The codes of a matrix in int8, [out, in], transposed [in, out], and their scales [out].
  const OnnxWeight& codes(const std::string& name, bool transposed);
  const OnnxWeight& scales(const std::string& name);
  // A table that the model computes.
  const OnnxWeight& table(const std::string& name, std::vector<int64_t> shape,
                          std::function<std::vector<float>()> values);

  // By name.
  const std::map<std::string, OnnxWeight>& all() const { return weights_; }
  // Writes the tensors in the order of their offsets.
  void write(const std::filesystem::path& file) const;

 private:
  MappedTensor tensor_of(const std::string& name, bool transposed) const;
  const OnnxWeight& place(MappedTensor tensor, OnnxType type,
                          std::function<std::vector<float>()> values);

  const HostModel* host_;
  bool int8_;
  std::map<std::string, OnnxWeight> weights_;
  std::vector<const OnnxWeight*> in_order_;
  uint64_t end_ = 0;
};

}  // namespace trafo::interop
