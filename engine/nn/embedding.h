// Token embeddings with optional position embeddings.
#pragma once

#include <optional>
#include <string>

#include "engine/core/numeric/philox.h"
#include "engine/nn/norm.h"
#include "engine/nn/parameter_store.h"
#include "engine/ops/embedding/embedding.h"

namespace trafo::nn {

class Embedding {
 public:
  Embedding() = default;
  // Declares `prefix`.weight [vocabulary, width], which may be int8. Embeddings are multiplied by
  // `scale`.
  Embedding(ParameterStore& store, const std::string& prefix, int64_t vocabulary, int64_t width,
            const Init& init, double scale = 1, const Place& place = {});
  // Declares `prefix`.weight [positions, width], which is learned and added.
  void add_positions(ParameterStore& store, const std::string& prefix, int64_t positions,
                     int64_t width, const Init& init, const Place& place);
  // Adds a fixed table [positions, width].
  void add_positions(Tensor table) { fixed_positions_ = std::move(table); }
  // Has the fixed table of the same module of another model.
  void share_constants(const Embedding& from) { fixed_positions_ = from.fixed_positions_; }
  // Declares `prefix`.weight [types, width], of which the row of each token's type is added. Comes
  // with learned positions and a norm.
  void add_token_types(ParameterStore& store, const std::string& prefix, int64_t types,
                       int64_t width, const Init& init, const Place& place);
  // Declares `prefix`.weight and .bias: a norm of the sum, before dropout.
  void add_norm(ParameterStore& store, const std::string& prefix, const NormSpec& spec,
                int64_t width, const Place& place);

  // ids, positions, token_types [T] int32 -> [T, width]. Undefined token_types: all are 0.
  // indices_validated: see ops::EmbeddingOptions.
  Tensor forward(Context& context, const Tensor& ids, const Tensor& positions,
                 const Dropout& dropout, bool indices_validated,
                 const Tensor& token_types = {}) const;

  ParamId weight() const { return weight_; }

 private:
  Tensor lookup(Context& context, const Tensor& ids, const ops::EmbeddingOptions& options) const;
  Tensor with_token_types(Context& context, const Tensor& ids, const Tensor& positions,
                          const Tensor& token_types, bool indices_validated) const;

  const ParameterStore* store_ = nullptr;
  ParamId weight_ = kNoParam, positions_ = kNoParam, token_types_ = kNoParam;
  Tensor fixed_positions_;
  std::optional<Norm> norm_;
  double scale_ = 1;
};

}  // namespace trafo::nn
