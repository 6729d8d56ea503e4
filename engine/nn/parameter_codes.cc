// Frozen matrices in few bits of a ParameterStore.
#include <algorithm>

#include "engine/nn/parameter_store.h"

namespace trafo {

void ParameterStore::set_codes(Context& context, ParamId id, std::span<const std::byte> bytes) {
  const Tensor& to = entries_[index(id)].coded->bytes;
  require(bytes.size() == to.bytes(), ErrorCode::shape_mismatch, "parameters", name(id), " has ",
          to.bytes(), " bytes of codes, got ", bytes.size());
  context.backend().copy_from_host(to.raw(), bytes.data(), bytes.size());
  to.mark_written();
}

std::vector<std::byte> ParameterStore::codes(const Context& context, ParamId id) const {
  const Tensor& from = entries_[index(id)].coded->bytes;
  std::vector<std::byte> bytes(from.bytes());
  context.to_host(from, bytes.data(), bytes.size());
  return bytes;
}

[[gnu::cold]] std::vector<std::byte> ParameterStore::encoded(ParamId id, const void* data) const {
  const CodedMatrix& matrix = *entries_[index(id)].coded;
  std::vector<std::byte> bytes(matrix.bytes.bytes());
  const auto encode = [&](std::span<const float> values) {
    try {
      encode_base(matrix.precision, values, matrix.rows, matrix.columns, bytes);
    } catch (const Error& error) {
      fail(error.code(), "parameters", name(id), ": ", error.message());
    }
    return bytes;
  };
  const auto count = static_cast<size_t>(element_count(shape(id)));
  if (master_.dtype() != DType::f64) return encode({static_cast<const float*>(data), count});
  std::vector<float> values(count);
  std::ranges::transform(std::span(static_cast<const double*>(data), count), values.begin(),
                         [](double value) { return static_cast<float>(value); });
  return encode(values);
}

[[gnu::cold]] void ParameterStore::set_coded_value(Context& context, ParamId id, const void* data) {
  set_codes(context, id, encoded(id, data));
}

[[gnu::cold]] void ParameterStore::get_coded_value(const Context& context, ParamId id, void* data,
                                                   size_t bytes) const {
  const CodedMatrix& matrix = *entries_[index(id)].coded;
  const size_t needed = static_cast<size_t>(element_count(shape(id))) * dtype_size(master_.dtype());
  require(bytes == needed, ErrorCode::shape_mismatch, "parameters", name(id), " has ", needed,
          " bytes, the buffer ", bytes);
  const std::vector<std::byte> coded = codes(context, id);
  const MatrixTile whole{0, 0, matrix.rows, matrix.columns};
  const auto decode = [&](auto* values) {
    decode_base(matrix.precision, coded.data(), matrix.rows, matrix.columns, whole, values);
  };
  if (master_.dtype() == DType::f64)
    decode(static_cast<double*>(data));
  else
    decode(static_cast<float*>(data));
}

}  // namespace trafo
