#include "engine/formats/onnx/onnx_weights.h"

#include <bit>

#include "engine/core/checked.h"
#include "engine/core/status.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/stored_weights.h"
#include "engine/io/atomic_file.h"

namespace trafo::interop {
namespace {

static_assert(std::endian::native == std::endian::little, "ONNX files are little-endian");

// A large tensor begins where memory can be mapped on every system, a small one at a cache line.
constexpr uint64_t kLarge = 1u << 20, kPage = 1u << 16, kLine = 64;

uint64_t aligned(uint64_t offset, uint64_t bytes) {
  const uint64_t unit = bytes >= kLarge ? kPage : kLine;
  return (offset + unit - 1) / unit * unit;
}

}  // namespace

int64_t onnx_type_size(OnnxType type) {
  return type == OnnxType::i8 ? 1 : sizeof(float);
}

const OnnxWeight& OnnxWeights::place(MappedTensor tensor, OnnxType type,
                                     std::function<std::vector<float>()> values) {
  OnnxWeight weight;
  weight.bytes =
      static_cast<uint64_t>(checked_mul(tensor.elements(), onnx_type_size(type), kOrigin));
  weight.offset = aligned(end_, weight.bytes);
  weight.tensor = std::move(tensor);
  weight.type = type;
  weight.values = std::move(values);
  end_ = weight.offset + weight.bytes;
  const auto [place, added] = weights_.try_emplace(weight.tensor.name, std::move(weight));
  require(added, ErrorCode::internal, kOrigin, "the weight ", place->first, " has two forms");
  in_order_.push_back(&place->second);
  return place->second;
}

MappedTensor OnnxWeights::tensor_of(const std::string& name, bool transposed) const {
  const ParamId id = host_->parameters().find(name);
  require(id != kNoParam, ErrorCode::internal, kOrigin, "the model has no parameter ", name);
  const Tensor& value = host_->parameters().value(id);
  const std::span<const int64_t> sizes = value.shape().span();
  MappedTensor tensor{name, {sizes.begin(), sizes.end()}, name, 0, value.dim(0), transposed};
  if (transposed) std::swap(tensor.shape.at(0), tensor.shape.at(1));
  return tensor;
}

std::vector<int64_t> OnnxWeights::part_rows(const std::string& name) const {
  const ParameterStore& parameters = host_->parameters();
  std::vector<int64_t> rows;
  for (const Part& part : parameters.parts(parameters.find(name)).rows) rows.push_back(part.rows);
  return rows;
}

const OnnxWeight& OnnxWeights::parameter(const std::string& name, bool transposed) {
  const auto known = weights_.find(name);
  if (known != weights_.end() && known->second.type == OnnxType::f32 &&
      known->second.tensor.transposed == transposed)
    return known->second;
  const MappedTensor tensor = tensor_of(name, transposed);
  return place(tensor, OnnxType::f32,
               [host = host_, tensor] { return gather(host->parameters(), tensor); });
}

const OnnxWeight& OnnxWeights::codes(const std::string& name, bool transposed) {
  const auto known = weights_.find(name);
  if (known != weights_.end() && known->second.type == OnnxType::i8 &&
      known->second.tensor.transposed == transposed)
    return known->second;
  const MappedTensor tensor = tensor_of(name, transposed);
  return place(tensor, OnnxType::i8, [host = host_, tensor] {
    const Codes<int8_t> stored =
        to_codes<int8_t>(formats::kOnnxInt8, gather(host->parameters(), tensor), tensor.shape.at(1),
                         tensor.transposed);
    return std::vector<float>(stored.codes.begin(), stored.codes.end());
  });
}

const OnnxWeight& OnnxWeights::scales(const std::string& name) {
  const MappedTensor tensor = tensor_of(name, /*transposed=*/false);
  return table(scale_name(name), {tensor.shape.at(0)}, [host = host_, tensor] {
    return to_codes<int8_t>(formats::kOnnxInt8, gather(host->parameters(), tensor),
                            tensor.shape.at(1))
        .scales;
  });
}

const OnnxWeight& OnnxWeights::table(const std::string& name, std::vector<int64_t> shape,
                                     std::function<std::vector<float>()> values) {
  const auto known = weights_.find(name);
  if (known != weights_.end()) return known->second;
  MappedTensor tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  return place(std::move(tensor), OnnxType::f32, std::move(values));
}

void OnnxWeights::write(const std::filesystem::path& file) const {
  AtomicFile sink(file);
  uint64_t written = 0;
  for (const OnnxWeight* weight : in_order_) {
    const std::vector<std::byte> gap(weight->offset - written);
    sink.write(gap);
    const std::vector<float> values = weight->values();
    const auto size = static_cast<uint64_t>(onnx_type_size(weight->type));
    require(values.size() * size == weight->bytes, ErrorCode::internal, kOrigin,
            weight->tensor.name, " has ", values.size(), " elements");
    if (weight->type == OnnxType::i8)
      sink.write(converted<int8_t>(values, [](float code) { return static_cast<int8_t>(code); }));
    else
      sink.write(std::as_bytes(std::span(values)));
    written = weight->offset + weight->bytes;
  }
  sink.commit();
}

}  // namespace trafo::interop
