// Written by scripts/generate_options.py from schema/ops.toml: change that.
// clang-format off
#include "capi/src/op_arguments.h"
#include "engine/ops/activation/activation.h"
#include "engine/ops/along_dim/along_dim.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/bias_act_dropout/bias_act_dropout.h"
#include "engine/ops/bias_dropout_residual/bias_dropout_residual.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/rms_norm/rms_norm.h"
#include "engine/ops/rotary/rotary.h"
#include "engine/ops/segment_mean/segment_mean.h"
#include "engine/ops/softmax/softmax.h"
#include "engine/ops/swiglu/swiglu.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

using namespace trafo;
using namespace trafo::capi;

trafo_error* trafo_op_add(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::add(c, call.tensor(a, "a"), call.tensor(b, "b"));
  });
}

trafo_error* trafo_op_subtract(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::subtract(c, call.tensor(a, "a"), call.tensor(b, "b"));
  });
}

trafo_error* trafo_op_multiply(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::multiply(c, call.tensor(a, "a"), call.tensor(b, "b"));
  });
}

trafo_error* trafo_op_divide(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::divide(c, call.tensor(a, "a"), call.tensor(b, "b"));
  });
}

trafo_error* trafo_op_scale(trafo_context *context, const trafo_tensor *x, double factor, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::scale(c, call.tensor(x, "x"), factor);
  });
}

trafo_error* trafo_op_shift(trafo_context *context, const trafo_tensor *x, double amount, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::shift(c, call.tensor(x, "x"), amount);
  });
}

trafo_error* trafo_op_exp(trafo_context *context, const trafo_tensor *x, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::exp(c, call.tensor(x, "x"));
  });
}

trafo_error* trafo_op_log(trafo_context *context, const trafo_tensor *x, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::log(c, call.tensor(x, "x"));
  });
}

trafo_error* trafo_op_sqrt(trafo_context *context, const trafo_tensor *x, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::sqrt(c, call.tensor(x, "x"));
  });
}

trafo_error* trafo_op_tanh(trafo_context *context, const trafo_tensor *x, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::tanh(c, call.tensor(x, "x"));
  });
}

trafo_error* trafo_op_sigmoid(trafo_context *context, const trafo_tensor *x, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::sigmoid(c, call.tensor(x, "x"));
  });
}

trafo_error* trafo_op_abs(trafo_context *context, const trafo_tensor *x, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::abs(c, call.tensor(x, "x"));
  });
}

trafo_error* trafo_op_sin(trafo_context *context, const trafo_tensor *x, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::sin(c, call.tensor(x, "x"));
  });
}

trafo_error* trafo_op_cos(trafo_context *context, const trafo_tensor *x, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::cos(c, call.tensor(x, "x"));
  });
}

trafo_error* trafo_op_erf(trafo_context *context, const trafo_tensor *x, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::erf(c, call.tensor(x, "x"));
  });
}

trafo_error* trafo_op_gelu_erf(trafo_context *context, const trafo_tensor *x, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::gelu_erf(c, call.tensor(x, "x"));
  });
}

trafo_error* trafo_op_activation(trafo_context *context, const trafo_tensor *x, int32_t activation, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::activation(c, call.tensor(x, "x"), to_enum<Activation>(call, activation, 4, "activation"));
  });
}

trafo_error* trafo_op_power(trafo_context *context, const trafo_tensor *x, double exponent, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::power(c, call.tensor(x, "x"), exponent);
  });
}

trafo_error* trafo_op_clamp(trafo_context *context, const trafo_tensor *x, double low, double high, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::clamp(c, call.tensor(x, "x"), low, high);
  });
}

trafo_error* trafo_op_maximum(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::maximum(c, call.tensor(a, "a"), call.tensor(b, "b"));
  });
}

trafo_error* trafo_op_minimum(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::minimum(c, call.tensor(a, "a"), call.tensor(b, "b"));
  });
}

trafo_error* trafo_op_pow(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::pow(c, call.tensor(a, "a"), call.tensor(b, "b"));
  });
}

trafo_error* trafo_op_compare(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b, int32_t comparison, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::compare(c, call.tensor(a, "a"), call.tensor(b, "b"), to_enum<Comparison>(call, comparison, 6, "comparison"));
  });
}

trafo_error* trafo_op_compare_number(trafo_context *context, const trafo_tensor *a, double number, int32_t comparison, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::compare(c, call.tensor(a, "a"), number, to_enum<Comparison>(call, comparison, 6, "comparison"));
  });
}

trafo_error* trafo_op_where(trafo_context *context, const trafo_tensor *mask, const trafo_tensor *a, const trafo_tensor *b, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::where(c, call.tensor(mask, "mask"), call.tensor(a, "a"), call.tensor(b, "b"));
  });
}

trafo_error* trafo_op_masked_fill(trafo_context *context, const trafo_tensor *x, const trafo_tensor *mask, double value, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::masked_fill(c, call.tensor(x, "x"), call.tensor(mask, "mask"), value);
  });
}

trafo_error* trafo_op_tril(trafo_context *context, const trafo_tensor *x, int64_t diagonal, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::tril(c, call.tensor(x, "x"), diagonal);
  });
}

trafo_error* trafo_op_triu(trafo_context *context, const trafo_tensor *x, int64_t diagonal, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::triu(c, call.tensor(x, "x"), diagonal);
  });
}

trafo_error* trafo_op_dropout(trafo_context *context, const trafo_tensor *x, const trafo_dropout *dropout, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::dropout(c, call.tensor(x, "x"), to_dropout(call, dropout));
  });
}

trafo_error* trafo_op_cast(trafo_context *context, const trafo_tensor *x, int32_t dtype, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::cast(c, call.tensor(x, "x"), checked_dtype(call, dtype));
  });
}

trafo_error* trafo_op_sum(trafo_context *context, const trafo_tensor *x, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::sum(c, call.tensor(x, "x"));
  });
}

trafo_error* trafo_op_mean(trafo_context *context, const trafo_tensor *x, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::mean(c, call.tensor(x, "x"));
  });
}

trafo_error* trafo_op_sum_dim(trafo_context *context, const trafo_tensor *x, int32_t dim, int32_t keep_dim, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::sum(c, call.tensor(x, "x"), dim, call.flag(keep_dim, "keep_dim"));
  });
}

trafo_error* trafo_op_mean_dim(trafo_context *context, const trafo_tensor *x, int32_t dim, int32_t keep_dim, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::mean(c, call.tensor(x, "x"), dim, call.flag(keep_dim, "keep_dim"));
  });
}

trafo_error* trafo_op_max_dim(trafo_context *context, const trafo_tensor *x, int32_t dim, int32_t keep_dim, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::max(c, call.tensor(x, "x"), dim, call.flag(keep_dim, "keep_dim"));
  });
}

trafo_error* trafo_op_sum_dims(trafo_context *context, const trafo_tensor *x, const int32_t *dims, size_t count, int32_t keep_dim, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::sum(c, call.tensor(x, "x"), dimensions(call, dims, count), call.flag(keep_dim, "keep_dim"));
  });
}

trafo_error* trafo_op_mean_dims(trafo_context *context, const trafo_tensor *x, const int32_t *dims, size_t count, int32_t keep_dim, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::mean(c, call.tensor(x, "x"), dimensions(call, dims, count), call.flag(keep_dim, "keep_dim"));
  });
}

trafo_error* trafo_op_max_dims(trafo_context *context, const trafo_tensor *x, const int32_t *dims, size_t count, int32_t keep_dim, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::max(c, call.tensor(x, "x"), dimensions(call, dims, count), call.flag(keep_dim, "keep_dim"));
  });
}

trafo_error* trafo_op_min_dims(trafo_context *context, const trafo_tensor *x, const int32_t *dims, size_t count, int32_t keep_dim, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::min(c, call.tensor(x, "x"), dimensions(call, dims, count), call.flag(keep_dim, "keep_dim"));
  });
}

trafo_error* trafo_op_argmax(trafo_context *context, const trafo_tensor *x, int32_t dim, int32_t keep_dim, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::argmax(c, call.tensor(x, "x"), dim, call.flag(keep_dim, "keep_dim"));
  });
}

trafo_error* trafo_op_argmin(trafo_context *context, const trafo_tensor *x, int32_t dim, int32_t keep_dim, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::argmin(c, call.tensor(x, "x"), dim, call.flag(keep_dim, "keep_dim"));
  });
}

trafo_error* trafo_op_top_k(trafo_context *context, const trafo_tensor *x, int64_t k, int32_t dim, trafo_tensor **out_values, trafo_tensor **out_ids) {
  return op_of_two(__func__, context, {out_values, "out_values"}, {out_ids, "out_ids"}, false, [&](const Call& call, Context& c) {
    auto result = ops::top_k_of(c, call.tensor(x, "x"), k, dim);
    return std::pair(result.values, result.ids);
  });
}

trafo_error* trafo_op_cumsum(trafo_context *context, const trafo_tensor *x, int32_t dim, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::cumsum(c, call.tensor(x, "x"), dim);
  });
}

trafo_error* trafo_op_gather(trafo_context *context, const trafo_tensor *x, int32_t dim, const trafo_tensor *index, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::gather(c, call.tensor(x, "x"), dim, call.tensor(index, "index"));
  });
}

trafo_error* trafo_op_scatter_add(trafo_context *context, const trafo_tensor *x, int32_t dim, const trafo_tensor *index, const trafo_tensor *src, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::scatter_add(c, call.tensor(x, "x"), dim, call.tensor(index, "index"), call.tensor(src, "src"));
  });
}

trafo_error* trafo_op_scatter(trafo_context *context, const trafo_tensor *x, int32_t dim, const trafo_tensor *index, const trafo_tensor *src, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::scatter(c, call.tensor(x, "x"), dim, call.tensor(index, "index"), call.tensor(src, "src"));
  });
}

trafo_error* trafo_op_segment_mean(trafo_context *context, const trafo_tensor *x, const trafo_tensor *cu_seqlens, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::segment_mean(c, call.tensor(x, "x"), call.tensor(cu_seqlens, "cu_seqlens"));
  });
}

trafo_error* trafo_op_reshape(trafo_context *context, const trafo_tensor *x, const int64_t *shape, int32_t rank, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::reshape(c, call.tensor(x, "x"), checked_shape(call, shape, rank));
  });
}

trafo_error* trafo_op_transpose(trafo_context *context, const trafo_tensor *x, int32_t dim0, int32_t dim1, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::transpose(c, call.tensor(x, "x"), dim0, dim1);
  });
}

trafo_error* trafo_op_permute(trafo_context *context, const trafo_tensor *x, const int32_t *dims, size_t count, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::permute(c, call.tensor(x, "x"), dimensions(call, dims, count));
  });
}

trafo_error* trafo_op_expand(trafo_context *context, const trafo_tensor *x, const int64_t *shape, int32_t rank, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::expand(c, call.tensor(x, "x"), checked_shape(call, shape, rank));
  });
}

trafo_error* trafo_op_slice(trafo_context *context, const trafo_tensor *x, int32_t dim, int64_t start, int64_t stop, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::slice(c, call.tensor(x, "x"), dim, start, stop);
  });
}

trafo_error* trafo_op_concat(trafo_context *context, const trafo_tensor *const *tensors, size_t count, int32_t dim, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::concat(c, tensors_of(call, tensors, count), dim);
  });
}

trafo_error* trafo_op_matmul(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b, int32_t transpose_a, int32_t transpose_b, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::matmul(c, call.tensor(a, "a"), call.tensor(b, "b"), ops::MatmulOptions{call.flag(transpose_a, "transpose_a"), call.flag(transpose_b, "transpose_b")});
  });
}

trafo_error* trafo_op_linear(trafo_context *context, const trafo_tensor *x, const trafo_tensor *weight, const trafo_tensor *bias, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::linear(c, call.tensor(x, "x"), call.tensor(weight, "weight"), call.optional_tensor(bias, "bias"));
  });
}

trafo_error* trafo_op_embedding(trafo_context *context, const trafo_tensor *ids, const trafo_tensor *table, const trafo_embedding_options *options, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::embedding(c, call.tensor(ids, "ids"), call.tensor(table, "table"), to_embedding(call, options));
  });
}

trafo_error* trafo_op_layer_norm(trafo_context *context, const trafo_tensor *x, const trafo_tensor *gamma, const trafo_tensor *beta, double epsilon, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::layer_norm(c, call.tensor(x, "x"), call.tensor(gamma, "gamma"), call.tensor(beta, "beta"), epsilon);
  });
}

trafo_error* trafo_op_rms_norm(trafo_context *context, const trafo_tensor *x, const trafo_tensor *gamma, double epsilon, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::rms_norm(c, call.tensor(x, "x"), call.tensor(gamma, "gamma"), epsilon);
  });
}

trafo_error* trafo_op_residual_rms_norm(trafo_context *context, const trafo_tensor *x, const trafo_tensor *residual, const trafo_tensor *gamma, double epsilon, const trafo_dropout *dropout, trafo_tensor **out_sum, trafo_tensor **out_normed) {
  return op_of_two(__func__, context, {out_sum, "out_sum"}, {out_normed, "out_normed"}, false, [&](const Call& call, Context& c) {
    auto result = ops::residual_rms_norm(c, call.tensor(x, "x"), call.tensor(residual, "residual"), call.tensor(gamma, "gamma"), epsilon, to_dropout(call, dropout));
    return std::pair(result.sum, result.normed);
  });
}

trafo_error* trafo_op_rotary(trafo_context *context, const trafo_tensor *x, const trafo_tensor *positions, int64_t heads, int64_t kv_heads, int64_t head_dim, double theta, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::rotary(c, call.tensor(x, "x"), call.tensor(positions, "positions"), ops::RotaryOptions{.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .angles = {.theta = theta}});
  });
}

trafo_error* trafo_op_swiglu(trafo_context *context, const trafo_tensor *x, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::swiglu(c, call.tensor(x, "x"));
  });
}

trafo_error* trafo_op_softmax(trafo_context *context, const trafo_tensor *x, double scale, int32_t causal, const trafo_tensor *padding_mask, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::softmax(c, call.tensor(x, "x"), ops::SoftmaxOptions{.scale = scale, .causal = call.flag(causal, "causal"), .padding_mask = call.optional_tensor(padding_mask, "padding_mask")});
  });
}

trafo_error* trafo_op_attention(trafo_context *context, const trafo_tensor *q, const trafo_tensor *k, const trafo_tensor *v, const trafo_tensor *cu_seqlens_q, const trafo_tensor *cu_seqlens_k, const trafo_attention_options *options, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return attention(call, c, call.tensor(q, "q"), call.tensor(k, "k"), call.tensor(v, "v"), call.tensor(cu_seqlens_q, "cu_seqlens_q"), call.tensor(cu_seqlens_k, "cu_seqlens_k"), options);
  });
}

trafo_error* trafo_op_bias_act_dropout(trafo_context *context, const trafo_tensor *x, const trafo_tensor *bias, int32_t activation, const trafo_dropout *dropout, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::bias_act_dropout(c, call.tensor(x, "x"), call.optional_tensor(bias, "bias"), to_enum<Activation>(call, activation, 4, "activation"), to_dropout(call, dropout));
  });
}

trafo_error* trafo_op_bias_dropout_residual(trafo_context *context, const trafo_tensor *x, const trafo_tensor *bias, const trafo_tensor *residual, const trafo_dropout *dropout, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::bias_dropout_residual(c, call.tensor(x, "x"), call.optional_tensor(bias, "bias"), call.tensor(residual, "residual"), to_dropout(call, dropout));
  });
}

trafo_error* trafo_op_bias_dropout_residual_norm(trafo_context *context, const trafo_tensor *x, const trafo_tensor *bias, const trafo_tensor *residual, const trafo_tensor *gamma, const trafo_tensor *beta, double epsilon, const trafo_dropout *dropout, trafo_tensor **out_sum, trafo_tensor **out_normed) {
  return op_of_two(__func__, context, {out_sum, "out_sum"}, {out_normed, "out_normed"}, false, [&](const Call& call, Context& c) {
    auto result = ops::bias_dropout_residual_norm(c, call.tensor(x, "x"), call.optional_tensor(bias, "bias"), call.tensor(residual, "residual"), call.tensor(gamma, "gamma"), call.tensor(beta, "beta"), epsilon, to_dropout(call, dropout));
    return std::pair(result.sum, result.normed);
  });
}

trafo_error* trafo_op_cross_entropy(trafo_context *context, const trafo_tensor *logits, const trafo_tensor *labels, const trafo_cross_entropy_options *options, trafo_tensor **out_loss, trafo_tensor **out_nll) {
  return op_of_two(__func__, context, {out_loss, "out_loss"}, {out_nll, "out_nll"}, true, [&](const Call& call, Context& c) {
    auto result = ops::cross_entropy(c, call.tensor(logits, "logits"), call.tensor(labels, "labels"), to_cross_entropy(call, options));
    return std::pair(result.loss, result.nll);
  });
}

trafo_error* trafo_op_soft_cross_entropy(trafo_context *context, const trafo_tensor *logits, const trafo_tensor *targets, const trafo_cross_entropy_options *options, trafo_tensor **out) {
  return op_of_one(__func__, context, out, [&](const Call& call, Context& c) {
    return ops::soft_cross_entropy(c, call.tensor(logits, "logits"), call.tensor(targets, "targets"), to_cross_entropy(call, options));
  });
}

trafo_error* trafo_op_linear_cross_entropy(trafo_context *context, const trafo_tensor *x, const trafo_tensor *weight, const trafo_tensor *bias, const trafo_tensor *labels, const trafo_cross_entropy_options *options, int64_t chunk_bytes, trafo_tensor **out_loss, trafo_tensor **out_nll) {
  return op_of_two(__func__, context, {out_loss, "out_loss"}, {out_nll, "out_nll"}, true, [&](const Call& call, Context& c) {
    auto result = ops::linear_cross_entropy(c, call.tensor(x, "x"), call.tensor(weight, "weight"), call.optional_tensor(bias, "bias"), call.tensor(labels, "labels"), to_linear_cross_entropy(call, options, chunk_bytes));
    return std::pair(result.loss, result.nll);
  });
}
