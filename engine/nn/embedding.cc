#include "engine/nn/embedding.h"

#include "engine/ops/dropout/dropout.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/int8_linear/int8_linear.h"

namespace trafo::nn {

Embedding::Embedding(ParameterStore& store, const std::string& prefix, int64_t vocabulary,
                     int64_t width, const Init& init, double scale, const Place& place)
    : store_(&store),
      weight_(store.declare(prefix + ".weight", {vocabulary, width}, init)),
      scale_(scale) {
  store.allow_int8(weight_);
  store.set_parts(weight_, Piece::weight, {{Role::embedding, place, vocabulary}});
}

void Embedding::add_positions(ParameterStore& store, const std::string& prefix, int64_t positions,
                              int64_t width, const Init& init, const Place& place) {
  positions_ = store.declare(prefix + ".weight", {positions, width}, init);
  store.set_parts(positions_, Piece::weight, {{Role::positions, place, positions}});
}

void Embedding::add_norm(ParameterStore& store, const std::string& prefix, const NormSpec& spec,
                         int64_t width, const Place& place) {
  norm_.emplace(store, prefix, spec, width, place, Role::embedding_norm);
}

Tensor Embedding::forward(Context& context, const Tensor& ids, const Tensor& positions,
                          const Dropout& dropout, bool indices_validated) const {
  ops::EmbeddingOptions options;
  options.indices_validated = indices_validated;
  options.scale = scale_;
  if (!norm_) options.dropout = dropout;
  options.position_table = positions_ == kNoParam ? fixed_positions_ : store_->value(positions_);
  if (options.position_table.defined()) options.positions = positions;
  const Weight weight = store_->weight(weight_);
  const Tensor sum = weight.int8 ? ops::int8_embedding(context, ids, *weight.int8, options)
                                 : ops::embedding(context, ids, weight.values, options);
  return norm_ ? ops::dropout(context, norm_->forward(context, sum), dropout) : sum;
}

}  // namespace trafo::nn
