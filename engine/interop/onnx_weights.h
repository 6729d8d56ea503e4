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

#include "engine/interop/host_model.h"
#include "engine/interop/tensor_map.h"

namespace trafo::interop {

// TensorProto.DataType of onnx.proto.
enum class OnnxType : int32_t { f32 = 1, i32 = 6, i64 = 7, boolean = 9 };

struct OnnxWeight {
  MappedTensor tensor;  // the parameter is empty for a table, which is computed
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::function<std::vector<float>()> values;
};

class OnnxWeights {
 public:
  explicit OnnxWeights(const HostModel& host) : host_(&host) {}

  // A whole parameter, with its own name. transposed: [columns, rows], what MatMul multiplies with.
  const OnnxWeight& parameter(const std::string& name, bool transposed);
  // A table that the model computes.
  const OnnxWeight& table(const std::string& name, std::vector<int64_t> shape,
                          std::function<std::vector<float>()> values);

  // By name.
  const std::map<std::string, OnnxWeight>& all() const { return weights_; }
  // Writes the tensors in the order of their offsets.
  void write(const std::filesystem::path& file) const;

 private:
  const OnnxWeight& place(MappedTensor tensor, std::function<std::vector<float>()> values);

  const HostModel* host_;
  std::map<std::string, OnnxWeight> weights_;
  std::vector<const OnnxWeight*> in_order_;
  uint64_t end_ = 0;
};

}  // namespace trafo::interop
