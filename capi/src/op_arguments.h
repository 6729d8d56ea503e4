// C arguments of ops as the engine's; generated/ops.cc calls these.
#pragma once

#include <utility>
#include <vector>

#include "capi/src/handles.h"
#include "engine/core/function_ref.h"
#include "engine/core/numeric/philox.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"

namespace trafo::capi {

// Not templates: these are compiled once.
trafo_error* op_of_one(const char* function, trafo_context* context, trafo_tensor** out,
                       FunctionRef<Tensor(const Call&, Context&)> op);

struct Output {
  trafo_tensor** handle;
  const char* name;
};
// `optional`: the second output may be null, and its tensor is dropped then.
trafo_error* op_of_two(const char* function, trafo_context* context, Output first, Output second,
                       bool optional,
                       FunctionRef<std::pair<Tensor, Tensor>(const Call&, Context&)> op);

// NULL: no dropout. The op checks the probability.
Dropout to_dropout(const Call& call, const trafo_dropout* dropout);
std::vector<int> dimensions(const Call& call, const int32_t* dims, size_t count);
std::vector<Tensor> tensors_of(const Call& call, const trafo_tensor* const* tensors, size_t count);
ops::EmbeddingOptions to_embedding(const Call& call, const trafo_embedding_options* options);
ops::CrossEntropyOptions to_cross_entropy(const Call& call,
                                          const trafo_cross_entropy_options* options);
ops::LinearCrossEntropyOptions to_linear_cross_entropy(const Call& call,
                                                       const trafo_cross_entropy_options* options,
                                                       int64_t chunk_bytes);
Tensor attention(const Call& call, Context& context, const Tensor& q, const Tensor& k,
                 const Tensor& v, const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                 const trafo_attention_options* options);

// Of an enum with the values 0 to count - 1.
template <class E>
E to_enum(const Call& call, int32_t value, int32_t count, const char* name) {
  if (value < 0 || value >= count) call.refuse_argument(name, " is unknown: ", value);
  return static_cast<E>(value);
}

}  // namespace trafo::capi
