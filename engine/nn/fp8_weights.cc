#include "engine/nn/fp8_weights.h"

#include "engine/ops/op_kernel.h"

namespace trafo {
namespace {

constexpr const char* kFp8WeightsOrigin = "fp8 weights";

}  // namespace

Fp8Weights::Fp8Weights(Context& context, const ParameterStore& parameters, ParamId output,
                       int64_t elements)
    : parameters_(parameters), places_(parameters.count(), -1) {
  ops::require_fp8_multiple(kFp8WeightsOrigin, "the width of the model",
                            parameters.shape(output)[1]);
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const Shape& shape = parameters.shape(id);
    // Embeddings cannot be pruned: what can be is a linear layer.
    const bool linear = parameters.prunable(id) && !parameters.is_coded(id) &&
                        shape[0] * shape[1] >= elements && shape[0] % kFp8Multiple == 0 &&
                        shape[1] % kFp8Multiple == 0;
    if (id != output && !linear) continue;
    places_[i] = static_cast<int32_t>(ids_.size());
    ids_.push_back(id);
    matrices_.push_back(
        ops::fp8_matrix(context, Fp8Format::e4m3, shape[0], shape[1], ops::Fp8Copies::both));
  }
}

void Fp8Weights::refresh(const Context& context) {
  const UpdateRange range(context, kFp8WeightsOrigin);
  std::vector<Fp8Item> items;
  for (size_t i = 0; i < ids_.size(); ++i)
    items.push_back(ops::fp8_item(parameters_.value(ids_[i]), matrices_[i]));
  launch(context, OpKernel::fp8_quantize, kFp8WeightsOrigin,
         Fp8QuantizeParams{parameters_.dtype(), Fp8Format::e4m3, static_cast<int64_t>(items.size()),
                           items.data()});
}

const ops::Fp8Matrix* Fp8Weights::find(const Weight& weight) const {
  const auto id = static_cast<ParamId>(weight.parameter);
  const bool known = weight.parameter >= 0 && static_cast<size_t>(id) < places_.size();
  if (!known || weight.values.raw() != parameters_.value(id).raw()) return nullptr;
  const int32_t place = places_[static_cast<size_t>(id)];
  return place < 0 ? nullptr : &matrices_[static_cast<size_t>(place)];
}

int64_t Fp8Weights::bytes() const {
  size_t bytes = 0;
  for (const ops::Fp8Matrix& matrix : matrices_)
    bytes += matrix.values.bytes() + matrix.transposed.bytes() + matrix.scale.bytes();
  return static_cast<int64_t>(bytes);
}

}  // namespace trafo
