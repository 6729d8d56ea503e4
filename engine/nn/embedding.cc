#include "engine/nn/embedding.h"

#include "engine/ops/embedding/embedding.h"

namespace trafo::nn {

Embedding::Embedding(ParameterStore& store, const std::string& prefix, int64_t vocabulary,
                     int64_t width, const Init& init, double scale)
    : store_(&store),
      weight_(store.declare(prefix + ".weight", {vocabulary, width}, init)),
      scale_(scale) {}

void Embedding::add_positions(ParameterStore& store, const std::string& prefix, int64_t positions,
                              int64_t width, const Init& init) {
  positions_ = store.declare(prefix + ".weight", {positions, width}, init);
}

Tensor Embedding::forward(Context& context, const Tensor& ids, const Tensor& positions,
                          const Dropout& dropout, bool indices_validated) const {
  ops::EmbeddingOptions options;
  options.indices_validated = indices_validated;
  options.scale = scale_;
  options.dropout = dropout;
  options.position_table = positions_ == kNoParam ? fixed_positions_ : store_->value(positions_);
  if (options.position_table.defined()) options.positions = positions;
  return ops::embedding(context, ids, store_->value(weight_), options);
}

}  // namespace trafo::nn
