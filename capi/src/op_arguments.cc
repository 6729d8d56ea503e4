#include "capi/src/op_arguments.h"

#include "engine/ops/attention/attention.h"

using namespace trafo;
using namespace trafo::capi;

trafo_error* trafo::capi::op_of_one(const char* function, trafo_context* context,
                                    trafo_tensor** out,
                                    FunctionRef<Tensor(const Call&, Context&)> op) {
  return api(function, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    *out = give_tensor(call.owner(), op(call, c));
  });
}

trafo_error* trafo::capi::op_of_two(
    const char* function, trafo_context* context, Output first, Output second, bool optional,
    FunctionRef<std::pair<Tensor, Tensor>(const Call&, Context&)> op) {
  return api(function, [&](const Call& call) {
    if (optional && second.handle != nullptr) *second.handle = nullptr;
    call.out(first.handle, first.name);
    if (!optional) call.out(second.handle, second.name);
    Context& c = call.context(context);
    const auto [one, two] = op(call, c);
    if (second.handle == nullptr) {
      *first.handle = give_tensor(call.owner(), one);
      return;
    }
    NewTensors results(call.owner(), {one, two});
    results.hand_over({first.handle, second.handle});
  });
}

Dropout trafo::capi::to_dropout(const Call& call, const trafo_dropout* dropout) {
  if (!dropout) return {};
  call.reserved(dropout->reserved);
  return {dropout->p, dropout->seed, dropout->step, dropout->dropout_id};
}

std::vector<int> trafo::capi::dimensions(const Call& call, const int32_t* dims, size_t count) {
  call.array(dims, count, "dims");
  if (count > kMaxRank)
    call.refuse_argument("dims", " are ", count, ", a tensor has at most ", kMaxRank);
  return std::vector<int>(dims, dims + count);
}

std::vector<Tensor> trafo::capi::tensors_of(const Call& call, const trafo_tensor* const* tensors,
                                            size_t count) {
  call.array(tensors, count, "tensors");
  std::vector<Tensor> parts;
  for (size_t i = 0; i < count; ++i) parts.push_back(call.tensor(tensors[i], "tensors"));
  return parts;
}

ops::EmbeddingOptions trafo::capi::to_embedding(const Call& call,
                                                const trafo_embedding_options* options) {
  const trafo_embedding_options o = read_options(call, options);
  ops::EmbeddingOptions result;
  result.scale = o.scale;
  result.padding_id = o.padding_id;
  result.positions = call.optional_tensor(o.positions, "positions");
  result.position_table = call.optional_tensor(o.position_table, "position_table");
  result.dropout = to_dropout(call, &o.dropout);
  return result;
}

trafo_error* trafo_sinusoidal_positions(trafo_context* context, int64_t positions, int64_t width,
                                        int32_t dtype, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    *out = give_tensor(call.owner(),
                       sinusoidal_positions(c, positions, width, checked_dtype(call, dtype)));
  });
}

Tensor trafo::capi::attention(const Call& call, Context& context, const Tensor& q, const Tensor& k,
                              const Tensor& v, const Tensor& cu_seqlens_q,
                              const Tensor& cu_seqlens_k, const trafo_attention_options* options) {
  const trafo_attention_options o = read_options(call, options);
  call.reserved(o.reserved);
  ops::AttentionOptions settings;
  settings.heads = o.heads;
  settings.kv_heads = o.kv_heads;
  settings.head_dim = o.head_dim;
  settings.causal = call.flag(o.causal, "causal");
  settings.scale = o.scale;
  settings.window = o.window;
  settings.dropout = to_dropout(call, &o.dropout);
  settings.mask = call.optional_tensor(o.mask, "mask");
  return ops::attention(context, {q, o.q_column}, {k, o.k_column}, {v, o.v_column}, cu_seqlens_q,
                        cu_seqlens_k, settings);
}

ops::CrossEntropyOptions trafo::capi::to_cross_entropy(const Call& call,
                                                       const trafo_cross_entropy_options* options) {
  const trafo_cross_entropy_options o = read_options(call, options);
  ops::CrossEntropyOptions result;
  result.label_smoothing = o.label_smoothing;
  result.ignore_label = o.ignore_label;
  result.reduction = to_enum<Reduction>(call, o.reduction, TRAFO_REDUCE_MEAN + 1, "reduction");
  result.weights = call.optional_tensor(o.weights, "weights");
  result.class_weights = call.optional_tensor(o.class_weights, "class_weights");
  return result;
}

ops::LinearCrossEntropyOptions trafo::capi::to_linear_cross_entropy(
    const Call& call, const trafo_cross_entropy_options* options, int64_t chunk_bytes) {
  if (chunk_bytes < 0)
    call.refuse_argument("chunk_bytes", " must be at least 0, got ", chunk_bytes);
  ops::LinearCrossEntropyOptions result;
  result.loss = to_cross_entropy(call, options);
  if (chunk_bytes > 0) result.chunk_bytes = chunk_bytes;
  return result;
}
