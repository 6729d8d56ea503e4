/* Written by scripts/generate_options.py from schema/ops.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_OPS_H
#define TRAFO_GENERATED_OPS_H

/* ---- Ops: element by element ---- */
/* Operands broadcast as in NumPy. A mask is int32, such as comparisons give; where it is not 0 it holds. NaN stays NaN. */

/* a + b, with NumPy broadcasting. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_add(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                   trafo_tensor **out);
/* a - b, with NumPy broadcasting. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_subtract(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                        trafo_tensor **out);
/* a * b by elements, with NumPy broadcasting. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_multiply(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                        trafo_tensor **out);
/* a / b by elements, with NumPy broadcasting. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_divide(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                      trafo_tensor **out);
/* factor * x. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_scale(trafo_context *context, const trafo_tensor *x, double factor,
                                                     trafo_tensor **out);
/* x + amount. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_shift(trafo_context *context, const trafo_tensor *x, double amount,
                                                     trafo_tensor **out);
/* e to the power of each element. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_exp(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The natural logarithm of each element. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_log(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The square root of each element. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sqrt(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The hyperbolic tangent of each element. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_tanh(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* 1 / (1 + exp(-x)) of each element. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sigmoid(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* |x|; the gradient at 0 is 0. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_abs(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The sine of each element, in radians. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sin(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The cosine of each element, in radians. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_cos(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_erf(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The exact GELU, x (1 + erf(x / sqrt(2))) / 2. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_gelu_erf(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* An activation of each element. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_activation(trafo_context *context, const trafo_tensor *x, int32_t activation,
                                                          trafo_tensor **out);
/* x^exponent; NaN for negative x with an exponent that is no integer. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_power(trafo_context *context, const trafo_tensor *x, double exponent,
                                                     trafo_tensor **out);
/* min(max(x, low), high), low <= high; the gradient of an element outside is 0. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_clamp(trafo_context *context, const trafo_tensor *x, double low, double high,
                                                     trafo_tensor **out);
/* The larger of two elements; the gradient of equal elements is divided in half. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_maximum(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                       trafo_tensor **out);
/* The smaller of two elements; the gradient of equal elements is divided in half. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_minimum(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                       trafo_tensor **out);
/* a^b. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_pow(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                   trafo_tensor **out);
/* An int32 tensor: 1 where the comparison of a with b holds, else 0. Both have one type; int32 is allowed. No gradient.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_compare(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                       int32_t comparison, trafo_tensor **out);
/* trafo_op_compare with a number. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_compare_number(trafo_context *context, const trafo_tensor *a, double number,
                                                              int32_t comparison, trafo_tensor **out);
/* a where mask is not 0, else b; int32 is allowed. The operand that is not chosen affects neither values nor gradients.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_where(trafo_context *context, const trafo_tensor *mask, const trafo_tensor *a,
                                                     const trafo_tensor *b, trafo_tensor **out);
/* value where mask is not 0, else x; int32 is allowed. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_masked_fill(trafo_context *context, const trafo_tensor *x,
                                                           const trafo_tensor *mask, double value, trafo_tensor **out);
/* x [.., rows, columns] with 0 in place of the elements [i, j] above the diagonal: j - i > diagonal. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_tril(trafo_context *context, const trafo_tensor *x, int64_t diagonal,
                                                    trafo_tensor **out);
/* trafo_op_tril below the diagonal: j - i < diagonal. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_triu(trafo_context *context, const trafo_tensor *x, int64_t diagonal,
                                                    trafo_tensor **out);
/* Zeroes elements and scales the others by 1 / (1 - p). Without a dropout the values do not change. dropout may be NULL.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_dropout(trafo_context *context, const trafo_tensor *x,
                                                       const trafo_dropout *dropout, trafo_tensor **out);
/* Between float32, float64, bfloat16 and int32. To int32 it rounds towards zero; a value outside becomes the nearest int32, NaN
 * becomes 0; it has no gradient. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_cast(trafo_context *context, const trafo_tensor *x, int32_t dtype,
                                                    trafo_tensor **out);

/* ---- Ops: reductions ---- */
/* A negative dim counts from the end; keep_dim leaves a dimension of size 1. */

/* The sum of all elements, [1]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sum(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The mean of all elements, [1]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_mean(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* The sum over one dimension. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sum_dim(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                       int32_t keep_dim, trafo_tensor **out);
/* The mean over one dimension. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_mean_dim(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                        int32_t keep_dim, trafo_tensor **out);
/* The maximum over one dimension; the gradient goes to the first maximum. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_max_dim(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                       int32_t keep_dim, trafo_tensor **out);
/* The sum over several dimensions, each given once; over all if none is given. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_sum_dims(trafo_context *context, const trafo_tensor *x, const int32_t *dims,
                                                        size_t count, int32_t keep_dim, trafo_tensor **out);
/* The mean over several dimensions, given as for trafo_op_sum_dims. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_mean_dims(trafo_context *context, const trafo_tensor *x, const int32_t *dims,
                                                         size_t count, int32_t keep_dim, trafo_tensor **out);
/* The maximum over several dimensions, given as for trafo_op_sum_dims; the gradient goes to the first one. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_max_dims(trafo_context *context, const trafo_tensor *x, const int32_t *dims,
                                                        size_t count, int32_t keep_dim, trafo_tensor **out);
/* The minimum over several dimensions, given as for trafo_op_sum_dims; the gradient goes to the first one. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_min_dims(trafo_context *context, const trafo_tensor *x, const int32_t *dims,
                                                        size_t count, int32_t keep_dim, trafo_tensor **out);
/* An int32 tensor: the number along dim of the largest element, the first of equal ones; NaN counts as largest. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_argmax(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                      int32_t keep_dim, trafo_tensor **out);
/* trafo_op_argmax of the smallest element; NaN counts as smallest. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_argmin(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                      int32_t keep_dim, trafo_tensor **out);

/* ---- Ops: along dimensions ---- */
/* A negative dim counts from the end. An element of an index out of range is INVALID_ARGUMENT on the CPU. A GPU cannot report
 * it: gather gives NaN (-1 in int32), scatter and scatter_add make the first element along dim NaN. */

/* The k largest elements along dim, largest first, and their numbers (int32), equal ones by lower number. 1 <= k <= size.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_top_k(trafo_context *context, const trafo_tensor *x, int64_t k, int32_t dim,
                                                     trafo_tensor **out_values, trafo_tensor **out_ids);
/* y_i = x_0 + .. + x_i along dim; int32 is allowed. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_cumsum(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                      trafo_tensor **out);
/* x at each place p of index, with the place along dim replaced by the index's element. The index is int32, has the rank of x
 * and is in no other dimension larger; the result has its shape. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_gather(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                      const trafo_tensor *index, trafo_tensor **out);
/* x with each element of src added at the place that trafo_op_gather reads for it; src has the shape of index. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_scatter_add(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                           const trafo_tensor *index, const trafo_tensor *src,
                                                           trafo_tensor **out);
/* trafo_op_scatter_add with the elements put there; of several for one place the last in row-major order stays. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_scatter(trafo_context *context, const trafo_tensor *x, int32_t dim,
                                                       const trafo_tensor *index, const trafo_tensor *src, trafo_tensor **out);
/* The mean of the rows of each packed sequence: x [T, ..] and cu_seqlens [B + 1] int32 to [B, ..], zeros for a sequence without
 * rows. Sequence b has the rows cu_seqlens[b] to cu_seqlens[b + 1] - 1. Sums are made in float32, of float64 in float64.
 * INVALID_ARGUMENT: cu_seqlens does not rise from 0 to T. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_segment_mean(trafo_context *context, const trafo_tensor *x,
                                                            const trafo_tensor *cu_seqlens, trafo_tensor **out);

/* ---- Ops: shapes ---- */

/* The same elements in another shape. One dimension may be -1: it is inferred. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_reshape(trafo_context *context, const trafo_tensor *x, const int64_t *shape,
                                                       int32_t rank, trafo_tensor **out);
/* Swaps two dimensions; a view. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_transpose(trafo_context *context, const trafo_tensor *x, int32_t dim0,
                                                         int32_t dim1, trafo_tensor **out);
/* Dimension i of the result is dimension dims[i] of x, each given once; a view. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_permute(trafo_context *context, const trafo_tensor *x, const int32_t *dims,
                                                       size_t count, trafo_tensor **out);
/* Repeats dimensions of size 1, and new ones in front, to shape; -1 keeps the size. A view. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_expand(trafo_context *context, const trafo_tensor *x, const int64_t *shape,
                                                      int32_t rank, trafo_tensor **out);
/* The elements of a range of one dimension, without its end; a view. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_slice(trafo_context *context, const trafo_tensor *x, int32_t dim, int64_t start,
                                                     int64_t stop, trafo_tensor **out);
/* The tensors one after the other along a dimension; all other dimensions must be equal. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_concat(trafo_context *context, const trafo_tensor *const *tensors, size_t count,
                                                      int32_t dim, trafo_tensor **out);

/* ---- Ops: products ---- */

/* [m,k] x [k,n], or batched [..,m,k] x [..,k,n], whose leading dimensions broadcast; a vector [k] is a row on the left and a
 * column on the right. transpose_a and transpose_b swap the last two dimensions of an input. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_matmul(trafo_context *context, const trafo_tensor *a, const trafo_tensor *b,
                                                      int32_t transpose_a, int32_t transpose_b, trafo_tensor **out);
/* x W^T + bias: x [.., in], weight [out, in], bias [out]. bias may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_linear(trafo_context *context, const trafo_tensor *x, const trafo_tensor *weight,
                                                      const trafo_tensor *bias, trafo_tensor **out);

/* ---- Ops: parts of transformers ---- */

/* dropout(scale * table[ids] + position_table[positions]): ids [T] int32, table [V,C] to [T,C]. options may be NULL.
 * since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_embedding(trafo_context *context, const trafo_tensor *ids,
                                                         const trafo_tensor *table, const trafo_embedding_options *options,
                                                         trafo_tensor **out);
/* Layer norm over the last dimension; gamma and beta are [C]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_layer_norm(trafo_context *context, const trafo_tensor *x,
                                                          const trafo_tensor *gamma, const trafo_tensor *beta, double epsilon,
                                                          trafo_tensor **out);
/* x / sqrt(mean(x^2) + epsilon) * gamma over the last dimension; gamma is [C]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_rms_norm(trafo_context *context, const trafo_tensor *x,
                                                        const trafo_tensor *gamma, double epsilon, trafo_tensor **out);
/* sum = residual + dropout(x) and normed = rms_norm(sum), in one pass. dropout may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_residual_rms_norm(
    trafo_context *context, const trafo_tensor *x, const trafo_tensor *residual, const trafo_tensor *gamma, double epsilon,
    const trafo_dropout *dropout, trafo_tensor **out_sum, trafo_tensor **out_normed);
/* Rotary position embedding: pairs (i, i + head_dim / 2) of a head are rotated by position * theta^(-2i / head_dim). positions
 * is [T] int32. With kv_heads 0, x is [T, heads * head_dim], and all heads are rotated. Else x is the packed projection of
 * queries, keys and values, [T, (heads + 2 kv_heads) * head_dim]: queries and keys are rotated, values are copied. The result
 * has the shape of x. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_rotary(trafo_context *context, const trafo_tensor *x,
                                                      const trafo_tensor *positions, int64_t heads, int64_t kv_heads,
                                                      int64_t head_dim, double theta, trafo_tensor **out);
/* silu(a) * b for x = [a, b], [.., 2F] to [.., F]. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_swiglu(trafo_context *context, const trafo_tensor *x, trafo_tensor **out);
/* softmax(scale * x) over the last dimension; x [batch, heads, queries, keys] or fewer dimensions; padding_mask [batch, keys]
 * int32, non-zero: the key is masked. causal: key j is masked for query i if j > i + keys - queries. A row whose keys are all
 * masked is zeros. padding_mask may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_softmax(trafo_context *context, const trafo_tensor *x, double scale,
                                                       int32_t causal, const trafo_tensor *padding_mask, trafo_tensor **out);
/* Scaled dot-product attention over packed sequences, to [Tq, heads * head_dim]. q [Tq, ..], k and v [Tk, ..]; one tensor may
 * serve as all three, at different columns. Query head h reads head h / (heads / kv_heads) of k and v. cu_seqlens_q and
 * cu_seqlens_k are [B+1] int32: the tokens of sequence b are rows cu_seqlens[b] to cu_seqlens[b+1] - 1. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_attention(
    trafo_context *context, const trafo_tensor *q, const trafo_tensor *k, const trafo_tensor *v,
    const trafo_tensor *cu_seqlens_q, const trafo_tensor *cu_seqlens_k, const trafo_attention_options *options,
    trafo_tensor **out);
/* dropout(activation(x + bias)) in one pass; bias is [C]. bias and dropout may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_bias_act_dropout(trafo_context *context, const trafo_tensor *x,
                                                                const trafo_tensor *bias, int32_t activation,
                                                                const trafo_dropout *dropout, trafo_tensor **out);
/* residual + dropout(x + bias) in one pass; bias is [C]. bias and dropout may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_bias_dropout_residual(trafo_context *context, const trafo_tensor *x,
                                                                     const trafo_tensor *bias, const trafo_tensor *residual,
                                                                     const trafo_dropout *dropout, trafo_tensor **out);
/* sum = residual + dropout(x + bias) and normed = layer_norm(sum), in one pass. bias and dropout may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_bias_dropout_residual_norm(
    trafo_context *context, const trafo_tensor *x, const trafo_tensor *bias, const trafo_tensor *residual,
    const trafo_tensor *gamma, const trafo_tensor *beta, double epsilon, const trafo_dropout *dropout, trafo_tensor **out_sum,
    trafo_tensor **out_normed);

/* ---- Ops: losses ---- */

/* Cross-entropy of logits [T,V] and labels [T] int32: the loss [1], or [T] without reduction, and nll, the same without
 * smoothing, which has no gradient. options and out_nll may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_cross_entropy(trafo_context *context, const trafo_tensor *logits,
                                                             const trafo_tensor *labels,
                                                             const trafo_cross_entropy_options *options,
                                                             trafo_tensor **out_loss, trafo_tensor **out_nll);
/* Cross-entropy of logits [T,V] and class probabilities [T,V] of one dtype, such as a teacher's: [1], or [T] without reduction.
 * The targets may want a gradient. label_smoothing e makes them (1 - e) targets + e / V; ignore_label has no meaning; a mean is
 * divided by the sum of the row weights, without them by T. options may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_soft_cross_entropy(trafo_context *context, const trafo_tensor *logits,
                                                                  const trafo_tensor *targets,
                                                                  const trafo_cross_entropy_options *options,
                                                                  trafo_tensor **out);
/* trafo_op_cross_entropy of x W^T + bias in chunks that never hold all logits. x [T,C], weight [V,C], bias [V]; the reduction
 * is sum or mean. chunk_bytes: logits held at a time, 0 for the default. bias, options and out_nll may be NULL. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_op_linear_cross_entropy(
    trafo_context *context, const trafo_tensor *x, const trafo_tensor *weight, const trafo_tensor *bias,
    const trafo_tensor *labels, const trafo_cross_entropy_options *options, int64_t chunk_bytes, trafo_tensor **out_loss,
    trafo_tensor **out_nll);

#endif /* TRAFO_GENERATED_OPS_H */
