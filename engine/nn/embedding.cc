#include "engine/nn/embedding.h"

#include "engine/ops/binary/binary.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/int8_linear/int8_linear.h"
#include "engine/ops/view/view.h"

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

void Embedding::add_token_types(ParameterStore& store, const std::string& prefix, int64_t types,
                                int64_t width, const Init& init, const Place& place) {
  token_types_ = store.declare(prefix + ".weight", {types, width}, init);
  store.set_parts(token_types_, Piece::weight, {{Role::token_types, place, types}});
}

void Embedding::add_norm(ParameterStore& store, const std::string& prefix, const NormSpec& spec,
                         int64_t width, const Place& place) {
  norm_.emplace(store, prefix, spec, width, place, Role::embedding_norm);
}

Tensor Embedding::lookup(Context& context, const Tensor& ids,
                         const ops::EmbeddingOptions& options) const {
  const Weight weight = store_->weight(weight_);
  return weight.int8   ? ops::int8_embedding(context, ids, *weight.int8, options)
         : weight.int4 ? ops::int4_embedding(context, ids, *weight.int4, options)
                       : ops::embedding(context, ids, weight.values, options);
}

// norm(token + (position + type)). If all tokens have the type 0, its row is added as a bias.
Tensor Embedding::with_token_types(Context& context, const Tensor& ids, const Tensor& positions,
                                   const Tensor& token_types, bool indices_validated) const {
  ops::EmbeddingOptions options;
  options.indices_validated = indices_validated;
  PendingBias places{ops::embedding(context, positions, store_->value(positions_), options), {}};
  const Tensor& types = store_->value(token_types_);
  if (token_types.defined())
    places.matmul =
        ops::add(context, places.matmul, ops::embedding(context, token_types, types, options));
  else
    places.bias = ops::reshape(context, ops::slice(context, types, 0, 0, 1), Shape{types.dim(1)});
  options.scale = scale_;
  return norm_->fused_add(context, places, lookup(context, ids, options), {}).normed;
}

Tensor Embedding::forward(Context& context, const Tensor& ids, const Tensor& positions,
                          const Dropout& dropout, bool indices_validated,
                          const Tensor& token_types) const {
  if (token_types_ != kNoParam)
    return ops::dropout(context,
                        with_token_types(context, ids, positions, token_types, indices_validated),
                        dropout);
  require(!token_types.defined(), ErrorCode::invalid_argument, "embedding",
          "the model has no table of token types");
  ops::EmbeddingOptions options;
  options.indices_validated = indices_validated;
  options.scale = scale_;
  if (!norm_) options.dropout = dropout;
  options.position_table = positions_ == kNoParam ? fixed_positions_ : store_->value(positions_);
  if (options.position_table.defined()) options.positions = positions;
  const Tensor sum = lookup(context, ids, options);
  return norm_ ? ops::dropout(context, norm_->forward(context, sum), dropout) : sum;
}

}  // namespace trafo::nn
