#include "capi/src/handles.h"
#include "capi/src/op_arguments.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/softmax/softmax.h"

using namespace trafo;
using namespace trafo::capi;

static trafo_embedding_options embedding_defaults() {
  trafo_embedding_options options{};
  options.struct_size = sizeof options;
  options.scale = 1;
  options.padding_id = -1;
  return options;
}

trafo_error* trafo_embedding_options_init(trafo_embedding_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    init_options(call, options, struct_size, embedding_defaults());
  });
}

trafo_error* trafo_op_embedding(trafo_context* context, const trafo_tensor* ids,
                                const trafo_tensor* table, const trafo_embedding_options* options,
                                trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    const trafo_embedding_options o = read_options(call, options, embedding_defaults());
    ops::EmbeddingOptions settings;
    settings.scale = o.scale;
    settings.padding_id = o.padding_id;
    settings.positions = call.optional_tensor(o.positions, "positions");
    settings.position_table = call.optional_tensor(o.position_table, "position_table");
    settings.dropout = to_dropout(call, &o.dropout);
    *out = give_tensor(call.owner(), ops::embedding(c, call.tensor(ids, "ids"),
                                                    call.tensor(table, "table"), settings));
  });
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

trafo_error* trafo_op_layer_norm(trafo_context* context, const trafo_tensor* x,
                                 const trafo_tensor* gamma, const trafo_tensor* beta,
                                 double epsilon, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    *out = give_tensor(call.owner(),
                       ops::layer_norm(c, call.tensor(x, "x"), call.tensor(gamma, "gamma"),
                                       call.tensor(beta, "beta"), epsilon));
  });
}

trafo_error* trafo_op_softmax(trafo_context* context, const trafo_tensor* x, double scale,
                              int32_t causal, const trafo_tensor* padding_mask,
                              trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    ops::SoftmaxOptions options;
    options.scale = scale;
    options.causal = call.flag(causal, "causal");
    options.padding_mask = call.optional_tensor(padding_mask, "padding_mask");
    *out = give_tensor(call.owner(), ops::softmax(c, call.tensor(x, "x"), options));
  });
}

static trafo_attention_options attention_defaults() {
  trafo_attention_options options{};
  options.struct_size = sizeof options;
  options.heads = 1;
  return options;
}

trafo_error* trafo_attention_options_init(trafo_attention_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    init_options(call, options, struct_size, attention_defaults());
  });
}

trafo_error* trafo_op_attention(trafo_context* context, const trafo_tensor* q,
                                const trafo_tensor* k, const trafo_tensor* v,
                                const trafo_tensor* cu_seqlens_q, const trafo_tensor* cu_seqlens_k,
                                const trafo_attention_options* options, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    const trafo_attention_options o = read_options(call, options, attention_defaults());
    ops::AttentionOptions settings;
    call.reserved(o.reserved);
    settings.heads = o.heads;
    settings.kv_heads = o.kv_heads;
    settings.head_dim = o.head_dim;
    settings.causal = call.flag(o.causal, "causal");
    settings.scale = o.scale;
    settings.dropout = to_dropout(call, &o.dropout);
    settings.mask = call.optional_tensor(o.mask, "mask");
    *out = give_tensor(
        call.owner(),
        ops::attention(c, {call.tensor(q, "q"), o.q_column}, {call.tensor(k, "k"), o.k_column},
                       {call.tensor(v, "v"), o.v_column}, call.tensor(cu_seqlens_q, "cu_seqlens_q"),
                       call.tensor(cu_seqlens_k, "cu_seqlens_k"), settings));
  });
}

trafo_error* trafo_op_bias_act_dropout(trafo_context* context, const trafo_tensor* x,
                                       const trafo_tensor* bias, int32_t activation,
                                       const trafo_dropout* dropout, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    *out = give_tensor(
        call.owner(),
        ops::bias_act_dropout(c, call.tensor(x, "x"), call.optional_tensor(bias, "bias"),
                              to_activation(call, activation), to_dropout(call, dropout)));
  });
}

trafo_error* trafo_op_bias_dropout_residual(trafo_context* context, const trafo_tensor* x,
                                            const trafo_tensor* bias, const trafo_tensor* residual,
                                            const trafo_dropout* dropout, trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    *out = give_tensor(
        call.owner(),
        ops::bias_dropout_residual(c, call.tensor(x, "x"), call.optional_tensor(bias, "bias"),
                                   call.tensor(residual, "residual"), to_dropout(call, dropout)));
  });
}

trafo_error* trafo_op_bias_dropout_residual_norm(
    trafo_context* context, const trafo_tensor* x, const trafo_tensor* bias,
    const trafo_tensor* residual, const trafo_tensor* gamma, const trafo_tensor* beta,
    double epsilon, const trafo_dropout* dropout, trafo_tensor** out_sum,
    trafo_tensor** out_normed) {
  return api(__func__, [&](const Call& call) {
    call.out(out_sum, "out_sum");
    call.out(out_normed, "out_normed");
    Context& c = call.context(context);
    const ops::ResidualNorm result = ops::bias_dropout_residual_norm(
        c, call.tensor(x, "x"), call.optional_tensor(bias, "bias"),
        call.tensor(residual, "residual"), call.tensor(gamma, "gamma"), call.tensor(beta, "beta"),
        epsilon, to_dropout(call, dropout));
    NewTensors results(call.owner(), {result.sum, result.normed});
    results.hand_over({out_sum, out_normed});
  });
}

static trafo_cross_entropy_options cross_entropy_defaults() {
  trafo_cross_entropy_options options{};
  options.struct_size = sizeof options;
  options.ignore_label = -100;
  options.reduction = TRAFO_REDUCE_MEAN;
  return options;
}

trafo_error* trafo_cross_entropy_options_init(trafo_cross_entropy_options* options,
                                              size_t struct_size) {
  return api(__func__, [&](const Call& call) {
    init_options(call, options, struct_size, cross_entropy_defaults());
  });
}

static ops::CrossEntropyOptions to_cross_entropy(const Call& call,
                                                 const trafo_cross_entropy_options* options) {
  const trafo_cross_entropy_options o = read_options(call, options, cross_entropy_defaults());
  if (o.reduction < TRAFO_REDUCE_NONE || o.reduction > TRAFO_REDUCE_MEAN)
    call.refuse_argument("reduction", " is unknown: ", o.reduction);
  ops::CrossEntropyOptions result;
  result.label_smoothing = o.label_smoothing;
  result.ignore_label = o.ignore_label;
  result.reduction = static_cast<Reduction>(o.reduction);
  result.weights = call.optional_tensor(o.weights, "weights");
  result.class_weights = call.optional_tensor(o.class_weights, "class_weights");
  return result;
}

static void give_loss(const Call& call, const ops::CrossEntropyOutput& result,
                      trafo_tensor** out_loss, trafo_tensor** out_nll) {
  if (!out_nll) {
    *out_loss = give_tensor(call.owner(), result.loss);
    return;
  }
  NewTensors results(call.owner(), {result.loss, result.nll});
  results.hand_over({out_loss, out_nll});
}

trafo_error* trafo_op_cross_entropy(trafo_context* context, const trafo_tensor* logits,
                                    const trafo_tensor* labels,
                                    const trafo_cross_entropy_options* options,
                                    trafo_tensor** out_loss, trafo_tensor** out_nll) {
  return api(__func__, [&](const Call& call) {
    if (out_nll) *out_nll = nullptr;
    call.out(out_loss, "out_loss");
    Context& c = call.context(context);
    give_loss(call,
              ops::cross_entropy(c, call.tensor(logits, "logits"), call.tensor(labels, "labels"),
                                 to_cross_entropy(call, options)),
              out_loss, out_nll);
  });
}

trafo_error* trafo_op_soft_cross_entropy(trafo_context* context, const trafo_tensor* logits,
                                         const trafo_tensor* targets,
                                         const trafo_cross_entropy_options* options,
                                         trafo_tensor** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    Context& c = call.context(context);
    *out = give_tensor(call.owner(), ops::soft_cross_entropy(c, call.tensor(logits, "logits"),
                                                             call.tensor(targets, "targets"),
                                                             to_cross_entropy(call, options)));
  });
}

trafo_error* trafo_op_linear_cross_entropy(trafo_context* context, const trafo_tensor* x,
                                           const trafo_tensor* weight, const trafo_tensor* bias,
                                           const trafo_tensor* labels,
                                           const trafo_cross_entropy_options* options,
                                           int64_t chunk_bytes, trafo_tensor** out_loss,
                                           trafo_tensor** out_nll) {
  return api(__func__, [&](const Call& call) {
    if (out_nll) *out_nll = nullptr;
    call.out(out_loss, "out_loss");
    Context& c = call.context(context);
    if (chunk_bytes < 0)
      call.refuse_argument("chunk_bytes", " must be at least 0, got ", chunk_bytes);
    ops::LinearCrossEntropyOptions settings;
    settings.loss = to_cross_entropy(call, options);
    if (chunk_bytes > 0) settings.chunk_bytes = chunk_bytes;
    give_loss(call,
              ops::linear_cross_entropy(c, call.tensor(x, "x"), call.tensor(weight, "weight"),
                                        call.optional_tensor(bias, "bias"),
                                        call.tensor(labels, "labels"), settings),
              out_loss, out_nll);
  });
}
