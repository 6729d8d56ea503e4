#include "engine/formats/onnx/onnx_graph.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "engine/core/status.h"
#include "engine/core/wire_format.h"
#include "engine/formats/hf/directory.h"

namespace trafo::interop {
namespace {

using namespace onnx_field;

constexpr const char* kProducer = "trafo";

// AttributeProto.AttributeType.
enum AttributeType : int64_t { kFloat = 1, kInt = 2, kInts = 7 };

template <class T>
std::string bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

std::string serialize_attribute(const OnnxAttribute& attribute) {
  WireWriter out;
  out.bytes(kAttributeName, attribute.name);
  if (const auto* number = std::get_if<int64_t>(&attribute.value)) {
    out.integer(kAttributeInt, *number);
    out.integer(kAttributeType, kInt);
  } else if (const auto* real = std::get_if<float>(&attribute.value)) {
    out.real(kAttributeFloat, *real);
    out.integer(kAttributeType, kFloat);
  } else {
    for (const int64_t each : std::get<std::vector<int64_t>>(attribute.value))
      out.integer(kAttributeInts, each);
    out.integer(kAttributeType, kInts);
  }
  return out.message();
}

WireWriter tensor_of(const std::string& name, OnnxType type, const std::vector<int64_t>& shape) {
  WireWriter out;
  for (const int64_t size : shape) out.integer(kTensorDims, size);
  out.integer(kTensorType, static_cast<int64_t>(type));
  out.bytes(kTensorName, name);
  return out;
}

std::string serialize_weight(const OnnxWeight& weight) {
  WireWriter out = tensor_of(weight.tensor.name, weight.type, weight.tensor.shape);
  const auto pair = [&](const char* key, const std::string& value) {
    WireWriter entry;
    entry.bytes(kPairKey, key);
    entry.bytes(kPairValue, value);
    out.bytes(kTensorExternal, entry.message());
  };
  pair("location", kOnnxWeightsFile);
  pair("offset", std::to_string(weight.offset));
  pair("length", std::to_string(weight.bytes));
  out.integer(kTensorLocation, kOnnxExternal);
  return out.message();
}

}  // namespace

OnnxValue OnnxGraph::add_value(std::string name) {
  names_.push_back(std::move(name));
  return {static_cast<int32_t>(names_.size() - 1)};
}

OnnxValue OnnxGraph::input(const std::string& name, OnnxType type, std::vector<OnnxDim> shape) {
  const OnnxValue value = add_value(name);
  inputs_.push_back({value, type, std::move(shape)});
  return value;
}

void OnnxGraph::output(OnnxValue value, const std::string& name, OnnxType type,
                       std::vector<OnnxDim> shape) {
  names_.at(static_cast<size_t>(value.id)) = name;
  outputs_.push_back({value, type, std::move(shape)});
}

std::vector<OnnxValue> OnnxGraph::node_with_outputs(const char* op,
                                                    const std::vector<OnnxValue>& inputs,
                                                    size_t outputs,
                                                    std::vector<OnnxAttribute> attributes) {
  const std::string kind = scope_ + "/" + op;
  const int64_t number = node_counts_[kind]++;
  Node node{op, number == 0 ? kind : concat(kind, "_", number), inputs, {}, std::move(attributes)};
  for (const OnnxValue input : inputs)
    require(input.defined(), ErrorCode::internal, kOrigin, node.name, " has an undefined input");
  for (size_t i = 0; i < outputs; ++i)
    node.outputs.push_back(add_value(concat(node.name, "_output_", i)));
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

OnnxValue OnnxGraph::node(const char* op, const std::vector<OnnxValue>& inputs,
                          std::vector<OnnxAttribute> attributes) {
  return node_with_outputs(op, inputs, 1, std::move(attributes)).front();
}

OnnxValue OnnxGraph::constant(std::string name, OnnxType type, std::vector<int64_t> shape,
                              std::string bytes) {
  const auto [known, is_new] = constants_by_name_.try_emplace(name);
  if (!is_new) return known->second;
  known->second = add_value(std::move(name));
  constants_.push_back({known->second, type, std::move(shape), std::move(bytes)});
  return known->second;
}

OnnxValue OnnxGraph::scalar(double value) {
  const auto narrow = static_cast<float>(value);
  // Every value has a different name, as with printf's %a.
  char digits[32];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, std::abs(narrow), std::chars_format::hex).ptr;
  const std::string name = concat("float_", std::signbit(narrow) ? "-" : "",
                                  std::isfinite(narrow) ? "0x" : "", std::string(digits, end));
  return constant(name, OnnxType::f32, {}, bytes_of(std::span<const float>(&narrow, 1)));
}

OnnxValue OnnxGraph::integer(int64_t value) {
  return constant(concat("int_", value), OnnxType::i64, {},
                  bytes_of(std::span<const int64_t>(&value, 1)));
}

OnnxValue OnnxGraph::integers(const std::vector<int64_t>& list) {
  std::string name = "ints";
  for (const int64_t value : list) name.append("_").append(std::to_string(value));
  return constant(name, OnnxType::i64, {static_cast<int64_t>(list.size())},
                  bytes_of(std::span<const int64_t>(list)));
}

OnnxValue OnnxGraph::weight(const OnnxWeight& stored) {
  const auto [known, is_new] = used_weights_.try_emplace(stored.tensor.name);
  if (is_new) known->second = add_value(stored.tensor.name);
  return known->second;
}

OnnxValue OnnxGraph::parameter(const std::string& name, bool transposed) {
  return weight(weights_.parameter(name, transposed));
}

OnnxValue OnnxGraph::codes(const std::string& name, bool transposed) {
  return weight(weights_.codes(name, transposed));
}

OnnxValue OnnxGraph::scales(const std::string& name) {
  return weight(weights_.scales(name));
}

OnnxValue OnnxGraph::table(const std::string& name, std::vector<int64_t> shape,
                           std::function<std::vector<float>()> values) {
  return weight(weights_.table(name, std::move(shape), std::move(values)));
}

std::string OnnxGraph::serialize_interface(const Interface& interface) const {
  WireWriter shape;
  for (const OnnxDim& dim : interface.shape) {
    WireWriter size;
    if (dim.name.empty())
      size.integer(kDimSize, dim.size);
    else
      size.bytes(kDimName, dim.name);
    shape.bytes(kShapeDim, size.message());
  }
  WireWriter tensor, type, out;
  tensor.integer(kTensorTypeElement, static_cast<int64_t>(interface.type));
  tensor.bytes(kTensorTypeShape, shape.message());
  type.bytes(kTypeTensor, tensor.message());
  out.bytes(kValueName, name_of(interface.value));
  out.bytes(kValueType, type.message());
  return out.message();
}

std::string OnnxGraph::serialize_node(const Node& node) const {
  WireWriter out;
  for (const OnnxValue input : node.inputs) out.bytes(kNodeInput, name_of(input));
  for (const OnnxValue output : node.outputs) out.bytes(kNodeOutput, name_of(output));
  out.bytes(kNodeName, node.name);
  out.bytes(kNodeOperator, node.op);
  for (const OnnxAttribute& attribute : node.attributes)
    out.bytes(kNodeAttribute, serialize_attribute(attribute));
  return out.message();
}

std::string OnnxGraph::serialize() const {
  WireWriter graph;
  for (const Node& node : nodes_) graph.bytes(kGraphNode, serialize_node(node));
  graph.bytes(kGraphName, name_);
  for (const Constant& constant : constants_) {
    WireWriter tensor = tensor_of(name_of(constant.value), constant.type, constant.shape);
    tensor.bytes(kTensorRaw, constant.bytes);
    graph.bytes(kGraphInitializer, tensor.message());
  }
  for (const auto& [name, value] : used_weights_)
    graph.bytes(kGraphInitializer, serialize_weight(weights_.all().at(name)));
  for (const Interface& input : inputs_) graph.bytes(kGraphInput, serialize_interface(input));
  for (const Interface& output : outputs_) graph.bytes(kGraphOutput, serialize_interface(output));
  WireWriter opset, model;
  opset.integer(kOpsetVersion, kOnnxOpset);  // of the default domain
  model.integer(kModelIrVersion, kOnnxIrVersion);
  model.bytes(kModelProducer, kProducer);
  model.bytes(kModelGraph, graph.message());
  model.bytes(kModelOpset, opset.message());
  return model.message();
}

}  // namespace trafo::interop
