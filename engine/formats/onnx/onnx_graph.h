// Builds one graph of an ONNX model and serializes it. Field numbers are those of onnx.proto
// (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), operators those of opset 17.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "engine/formats/onnx/onnx_weights.h"

namespace trafo::interop {

// Field numbers of the messages that are written and read.
namespace onnx_field {
inline constexpr uint32_t kModelIrVersion = 1, kModelProducer = 2, kModelGraph = 7, kModelOpset = 8;
inline constexpr uint32_t kOpsetVersion = 2;
inline constexpr uint32_t kGraphNode = 1, kGraphName = 2, kGraphInitializer = 5, kGraphInput = 11,
                          kGraphOutput = 12;
inline constexpr uint32_t kNodeInput = 1, kNodeOutput = 2, kNodeName = 3, kNodeOperator = 4,
                          kNodeAttribute = 5;
inline constexpr uint32_t kAttributeName = 1, kAttributeFloat = 2, kAttributeInt = 3,
                          kAttributeInts = 8, kAttributeType = 20;
inline constexpr uint32_t kTensorDims = 1, kTensorType = 2, kTensorName = 8, kTensorRaw = 9,
                          kTensorExternal = 13, kTensorLocation = 14;
inline constexpr uint32_t kPairKey = 1, kPairValue = 2;  // StringStringEntryProto
inline constexpr uint32_t kValueName = 1, kValueType = 2, kTypeTensor = 1, kTensorTypeElement = 1,
                          kTensorTypeShape = 2, kShapeDim = 1, kDimSize = 1, kDimName = 2;
}  // namespace onnx_field

inline constexpr int64_t kOnnxIrVersion = 8, kOnnxOpset = 17;
inline constexpr int64_t kOnnxExternal = 1;  // TensorProto.DataLocation
inline constexpr const char* kOnnxWeightsFile = "model.onnx_data";

// A tensor in the graph: an input, a constant, a weight or the result of a node.
struct OnnxValue {
  int32_t id = -1;
  bool defined() const { return id >= 0; }
};

struct OnnxAttribute {
  const char* name;
  std::variant<int64_t, float, std::vector<int64_t>> value;
};

struct OnnxDim {
  OnnxDim(int64_t fixed) : size(fixed) {}
  OnnxDim(const char* open) : name(open) {}  // a size that the caller chooses
  int64_t size = 0;
  std::string name;
};

class OnnxGraph {
 public:
  // `weights` is shared by the graphs of a model and outlives them.
  OnnxGraph(std::string name, OnnxWeights& weights) : name_(std::move(name)), weights_(weights) {}

  OnnxValue input(const std::string& name, OnnxType type, std::vector<OnnxDim> shape);
  // The value gets the name.
  void output(OnnxValue value, const std::string& name, OnnxType type, std::vector<OnnxDim> shape);

  // Names of the nodes that follow begin with `scope` and a slash.
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  OnnxValue node(const char* op, const std::vector<OnnxValue>& inputs,
                 std::vector<OnnxAttribute> attributes = {});
  std::vector<OnnxValue> node_with_outputs(const char* op, const std::vector<OnnxValue>& inputs,
                                           size_t outputs,
                                           std::vector<OnnxAttribute> attributes = {});

  OnnxValue scalar(double value);                        // float32 []
  OnnxValue integer(int64_t value);                      // int64 []
  OnnxValue integers(const std::vector<int64_t>& list);  // int64 [n]
  OnnxValue parameter(const std::string& name, bool transposed = false);
  // See OnnxWeights.
  std::vector<int64_t> part_rows(const std::string& name) const { return weights_.part_rows(name); }
  // A matrix in int8: see OnnxWeights.
  bool int8() const { return weights_.int8(); }
  OnnxValue codes(const std::string& name, bool transposed = false);
  OnnxValue scales(const std::string& name);
  OnnxValue table(const std::string& name, std::vector<int64_t> shape,
                  std::function<std::vector<float>()> values);

  // A serialized ModelProto.
  std::string serialize() const;

 private:
  struct Node {
    const char* op;
    std::string name;
    std::vector<OnnxValue> inputs, outputs;
    std::vector<OnnxAttribute> attributes;
  };
  struct Interface {
    OnnxValue value;
    OnnxType type;
    std::vector<OnnxDim> shape;
  };
  struct Constant {
    OnnxValue value;
    OnnxType type;
    std::vector<int64_t> shape;
    std::string bytes;
  };

  OnnxValue add_value(std::string name);
  OnnxValue constant(std::string name, OnnxType type, std::vector<int64_t> shape,
                     std::string bytes);
  OnnxValue weight(const OnnxWeight& stored);
  const std::string& name_of(OnnxValue value) const {
    return names_.at(static_cast<size_t>(value.id));
  }
  std::string serialize_interface(const Interface& interface) const;
  std::string serialize_node(const Node& node) const;

  std::string name_, scope_;
  OnnxWeights& weights_;
  std::vector<std::string> names_;  // by id
  std::map<std::string, OnnxValue> constants_by_name_;
  std::vector<Constant> constants_;
  std::map<std::string, OnnxValue> used_weights_;
  std::map<std::string, int64_t> node_counts_;  // of a scope and an operator
  std::vector<Node> nodes_;
  std::vector<Interface> inputs_, outputs_;
};

}  // namespace trafo::interop
