#include "engine/formats/onnx/onnx_read.h"

#include <charconv>
#include <set>

#include "engine/core/wire_format.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/onnx/onnx_graph.h"
#include "engine/io/safetensors_header.h"

namespace trafo::interop {
namespace {

using namespace onnx_field;

[[noreturn]] void fail_onnx(std::string_view label, std::string_view reason) {
  fail(ErrorCode::corrupt_file, kOrigin, label, ": not the ONNX file that was written: ", reason);
}

class Reader {
 public:
  explicit Reader(const std::string& label) : label_(label) {}

  std::map<std::string, OnnxStoredWeight> model(std::string_view bytes);

 private:
  template <class... Args>
  void check(bool condition, const Args&... reason) const {
    if (!condition) fail_onnx(label_, concat(reason...));
  }
  WireFields fields(std::string_view message) const { return {message, label_, fail_onnx}; }
  // The field `number` of a message that has it once.
  WireField only(std::string_view message, uint32_t number, uint32_t wire) const;
  std::string name(std::string_view message, uint32_t number) const {
    return std::string(only(message, number, WireField::bytes_of).bytes);
  }
  uint64_t number_of(std::string_view text) const;

  void graph(std::string_view message);
  void initializer(std::string_view message);
  void external(std::string_view pair, OnnxStoredWeight& weight) const;
  void define(const std::string& value) {
    check(defined_.insert(value).second, "two values are called ", value);
  }
  void node(std::string_view message);

  const std::string& label_;
  std::set<std::string> defined_;
  std::map<std::string, OnnxStoredWeight> weights_;
};

WireField Reader::only(std::string_view message, uint32_t number, uint32_t wire) const {
  WireField found;
  WireFields in = fields(message);
  for (WireField field; in.next(field);) {
    if (field.number != number) continue;
    check(field.wire == wire && found.number == 0, "field ", number, " of a message is wrong");
    found = field;
  }
  check(found.number != 0, "a message lacks its field ", number);
  return found;
}

uint64_t Reader::number_of(std::string_view text) const {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size(), quote(text), " is no number");
  return value;
}

void Reader::external(std::string_view pair, OnnxStoredWeight& weight) const {
  const std::string key = name(pair, kPairKey), value = name(pair, kPairValue);
  if (key == "location") weight.location = value;
  if (key == "offset") weight.offset = number_of(value);
  if (key == "length") weight.bytes = number_of(value);
}

void Reader::initializer(std::string_view message) {
  const std::string tensor = name(message, kTensorName);
  define(tensor);
  OnnxStoredWeight weight;
  bool is_external = false;
  WireFields in = fields(message);
  for (WireField field; in.next(field);) {
    if (field.is(kTensorDims, WireField::varint))
      weight.shape.push_back(static_cast<int64_t>(field.value));
    if (field.is(kTensorExternal, WireField::bytes_of)) external(field.bytes, weight);
    if (field.is(kTensorLocation, WireField::varint)) is_external = field.value == kOnnxExternal;
  }
  if (!is_external) return;  // a constant
  const uint64_t type = only(message, kTensorType, WireField::varint).value;
  const bool is_int8 = type == static_cast<uint64_t>(OnnxType::i8);
  check(is_int8 || type == static_cast<uint64_t>(OnnxType::f32), tensor, " is of the type ", type);
  if (is_int8) weight.type = OnnxType::i8;
  weights_[tensor] = std::move(weight);
}

void Reader::node(std::string_view message) {
  const std::string label = name(message, kNodeName);
  std::vector<std::string> outputs;
  WireFields in = fields(message);
  for (WireField field; in.next(field);) {
    if (field.is(kNodeInput, WireField::bytes_of))
      check(defined_.contains(std::string(field.bytes)), label, " reads ", field.bytes,
            ", which nothing gives it");
    if (field.is(kNodeOutput, WireField::bytes_of)) outputs.emplace_back(field.bytes);
  }
  for (const std::string& output : outputs) define(output);
}

void Reader::graph(std::string_view message) {
  // Nodes stand before what they may read in a message.
  const auto each = [&](uint32_t number, auto&& visit) {
    WireFields in = fields(message);
    for (WireField field; in.next(field);)
      if (field.is(number, WireField::bytes_of)) visit(field.bytes);
  };
  each(kGraphInput, [&](std::string_view input) { define(name(input, kValueName)); });
  each(kGraphInitializer, [&](std::string_view tensor) { initializer(tensor); });
  each(kGraphNode, [&](std::string_view operation) { node(operation); });
  each(kGraphOutput, [&](std::string_view output) {
    const std::string value = name(output, kValueName);
    check(defined_.contains(value), "nothing gives the output ", value);
  });
}

std::map<std::string, OnnxStoredWeight> Reader::model(std::string_view bytes) {
  const uint64_t version = only(bytes, kModelIrVersion, WireField::varint).value;
  check(version == kOnnxIrVersion, "its IR version is ", version);
  const std::string_view opset = only(bytes, kModelOpset, WireField::bytes_of).bytes;
  const uint64_t operators = only(opset, kOpsetVersion, WireField::varint).value;
  check(operators == kOnnxOpset, "its opset is ", operators);
  graph(only(bytes, kModelGraph, WireField::bytes_of).bytes);
  return std::move(weights_);
}

}  // namespace

std::map<std::string, OnnxStoredWeight> read_onnx_weights(std::string_view model,
                                                          const std::string& label) {
  return Reader(label).model(model);
}

}  // namespace trafo::interop
