// Every op once, with values that can be computed by hand.
#include "capi_check.h"

static trafo_context* context;

static trafo_tensor* vector(int64_t count, const float* values) {
  return floats(context, values, 1, &count);
}
static trafo_tensor* matrix(int64_t rows, int64_t columns, const float* values) {
  const int64_t shape[] = {rows, columns};
  return floats(context, values, 2, shape);
}
#define VECTOR(count, ...) vector((count), (const float[]){__VA_ARGS__})
#define MATRIX(rows, columns, ...) matrix((rows), (columns), (const float[]){__VA_ARGS__})

static void test_elementwise(void) {
  trafo_tensor *a = VECTOR(3, 1, 4, 9), *b = VECTOR(1, 2), *out = NULL;
  OK(trafo_op_add(context, a, b, &out));
  VALUES(out, 3, 3, 6, 11);
  OK(trafo_op_subtract(context, a, b, &out));
  VALUES(out, 3, -1, 2, 7);
  OK(trafo_op_multiply(context, a, b, &out));
  VALUES(out, 3, 2, 8, 18);
  OK(trafo_op_divide(context, a, b, &out));
  VALUES(out, 3, 0.5f, 2, 4.5f);
  OK(trafo_op_scale(context, a, -0.5, &out));
  VALUES(out, 3, -0.5f, -2, -4.5f);
  OK(trafo_op_shift(context, a, -0.5, &out));
  VALUES(out, 3, 0.5f, 3.5f, 8.5f);
  OK(trafo_op_sqrt(context, a, &out));
  VALUES(out, 3, 1, 2, 3);
  OK(trafo_op_log(context, a, &out));
  VALUES(out, 3, 0, logf(4), logf(9));
  OK(trafo_op_exp(context, b, &out));
  VALUES(out, 1, expf(2));
  OK(trafo_op_tanh(context, b, &out));
  VALUES(out, 1, tanhf(2));
  OK(trafo_op_sigmoid(context, b, &out));
  VALUES(out, 1, 1 / (1 + expf(-2)));
  OK(trafo_op_sum(context, a, &out));
  VALUES(out, 1, 14);
  OK(trafo_op_mean(context, a, &out));
  VALUES(out, 1, 14.0f / 3);
  trafo_tensor* c = VECTOR(2, 1, 2);
  FAILS(trafo_op_add(context, a, c, &out), TRAFO_SHAPE_MISMATCH, "[2]");
  trafo_tensor* signs = VECTOR(2, -1, 2);
  OK(trafo_op_activation(context, signs, TRAFO_RELU, &out));
  VALUES(out, 2, 0, 2);
  OK(trafo_op_activation(context, signs, TRAFO_SILU, &out));
  VALUES(out, 2, -1 / (1 + expf(1)), 2 / (1 + expf(-2)));
  OK(trafo_op_activation(context, signs, TRAFO_GELU, &out));
  const float root = 0.7978845608f;
  VALUES(out, 2, -0.5f * (1 - tanhf(root * 1.044715f)), 1 + tanhf(root * (2 + 0.044715f * 8)));
  OK(trafo_op_activation(context, signs, TRAFO_GELU_ERF, &out));
  const float half = 0.7071067812f;
  VALUES(out, 2, -0.5f * (1 - erff(half)), 1 + erff(2 * half));
  FAILS(trafo_op_activation(context, signs, 4, &out), TRAFO_INVALID_ARGUMENT,
        "activation is unknown: 4");
  trafo_tensor_free(a);
  trafo_tensor_free(b);
  trafo_tensor_free(c);
  trafo_tensor_free(signs);
}

static void test_shapes(void) {
  trafo_tensor *x = MATRIX(2, 3, 1, 5, 3, 4, 2, 6), *out = NULL, *half = NULL;
  OK(trafo_op_sum_dim(context, x, -1, 0, &out));
  VALUES(out, 2, 9, 12);
  OK(trafo_op_mean_dim(context, x, 0, 1, &out));
  VALUES(out, 3, 2.5f, 3.5f, 4.5f);
  OK(trafo_op_max_dim(context, x, 1, 0, &out));
  VALUES(out, 2, 5, 6);
  OK(trafo_op_reshape(context, x, (const int64_t[]){3, -1}, 2, &out));
  VALUES(out, 6, 1, 5, 3, 4, 2, 6);
  FAILS(trafo_op_reshape(context, x, (const int64_t[]){4, 2}, 2, &out), TRAFO_SHAPE_MISMATCH, "");
  OK(trafo_op_transpose(context, x, 0, 1, &out));
  VALUES(out, 6, 1, 4, 5, 2, 3, 6);
  OK(trafo_op_slice(context, x, 1, 1, 3, &out));
  VALUES(out, 4, 5, 3, 2, 6);
  const trafo_tensor* parts[] = {x, x};
  OK(trafo_op_concat(context, parts, 2, 1, &out));
  VALUES(out, 12, 1, 5, 3, 1, 5, 3, 4, 2, 6, 4, 2, 6);
  OK(trafo_op_cast(context, x, TRAFO_BFLOAT16, &half));
  OK(trafo_op_cast(context, half, TRAFO_FLOAT32, &out));
  VALUES(out, 6, 1, 5, 3, 4, 2, 6);
  FAILS(trafo_op_add(context, half, half, &out), TRAFO_DTYPE_MISMATCH, "float32");
  OK(trafo_op_matmul(context, x, x, 0, 1, &out));
  VALUES(out, 4, 35, 32, 32, 56);
  FAILS(trafo_op_matmul(context, x, x, 0, 0, &out), TRAFO_SHAPE_MISMATCH, "");
  trafo_tensor* bias = VECTOR(2, 10, 20);
  OK(trafo_op_linear(context, x, x, bias, &out));
  VALUES(out, 4, 45, 52, 42, 76);
  trafo_tensor_free(bias);
  trafo_tensor_free(half);
  trafo_tensor_free(x);
}

// An int32 tensor as float32, so that VALUES can look at it; frees `x`.
static trafo_tensor* as_floats(trafo_tensor* x) {
  trafo_tensor* out = NULL;
  OK(trafo_op_cast(context, x, TRAFO_FLOAT32, &out));
  trafo_tensor_free(x);
  return out;
}

static trafo_tensor* integers(int64_t rows, int64_t columns, const int32_t* values) {
  const int64_t shape[] = {rows, columns};
  trafo_tensor* out = NULL;
  OK(trafo_tensor_new(context, TRAFO_INT32, shape, 2, values,
                      (size_t)(rows * columns) * sizeof *values, &out));
  return out;
}
#define INTEGERS(rows, columns, ...) integers((rows), (columns), (const int32_t[]){__VA_ARGS__})

static void test_pointwise(void) {
  trafo_tensor *x = VECTOR(3, -1, 0, 2), *y = VECTOR(3, 1, -1, 2), *out = NULL, *mask = NULL;
  OK(trafo_op_abs(context, x, &out));
  VALUES(out, 3, 1, 0, 2);
  OK(trafo_op_sin(context, x, &out));
  VALUES(out, 3, -sinf(1), 0, sinf(2));
  OK(trafo_op_cos(context, x, &out));
  VALUES(out, 3, cosf(1), 1, cosf(2));
  OK(trafo_op_erf(context, x, &out));
  VALUES(out, 3, -erff(1), 0, erff(2));
  OK(trafo_op_gelu_erf(context, x, &out));
  VALUES(out, 3, -0.15865525f, 0, 1.95449974f);
  OK(trafo_op_power(context, x, 3, &out));
  VALUES(out, 3, -1, 0, 8);
  OK(trafo_op_clamp(context, x, -0.5, 1, &out));
  VALUES(out, 3, -0.5f, 0, 1);
  FAILS(trafo_op_clamp(context, x, 1, -1, &out), TRAFO_INVALID_ARGUMENT, "1 and -1");
  OK(trafo_op_maximum(context, x, y, &out));
  VALUES(out, 3, 1, 0, 2);
  OK(trafo_op_minimum(context, x, y, &out));
  VALUES(out, 3, -1, -1, 2);
  OK(trafo_op_pow(context, y, x, &out));
  VALUES(out, 3, 1, 1, 4);
  OK(trafo_op_compare(context, x, y, TRAFO_GREATER_EQUAL, &mask));
  OK(trafo_op_where(context, mask, x, y, &out));
  VALUES(out, 3, 1, 0, 2);
  OK(trafo_op_masked_fill(context, x, mask, 9, &out));
  VALUES(out, 3, -1, 9, 9);
  VALUES(as_floats(mask), 3, 0, 1, 1);
  OK(trafo_op_compare_number(context, x, 0, TRAFO_NOT_EQUAL, &mask));
  VALUES(as_floats(mask), 3, 1, 0, 1);
  FAILS(trafo_op_compare_number(context, x, 0, 6, &out), TRAFO_INVALID_ARGUMENT,
        "comparison is unknown: 6");
  FAILS(trafo_op_where(context, x, x, y, &out), TRAFO_DTYPE_MISMATCH, "mask must be int32");
  trafo_tensor* square = MATRIX(2, 2, 1, 2, 3, 4);
  OK(trafo_op_tril(context, square, 0, &out));
  VALUES(out, 4, 1, 0, 3, 4);
  OK(trafo_op_triu(context, square, 1, &out));
  VALUES(out, 4, 0, 2, 0, 0);
  trafo_tensor_free(square);
  trafo_tensor_free(y);
  trafo_tensor_free(x);
}

static void test_along_dimensions(void) {
  trafo_tensor *x = MATRIX(2, 3, 1, 5, 3, 4, 2, 6), *out = NULL, *ids = NULL;
  OK(trafo_op_sum_dims(context, x, (const int32_t[]){1, 0}, 2, 1, &out));
  VALUES(out, 1, 21);
  OK(trafo_op_mean_dims(context, x, (const int32_t[]){-1}, 1, 0, &out));
  VALUES(out, 2, 3, 4);
  OK(trafo_op_max_dims(context, x, NULL, 0, 0, &out));
  VALUES(out, 1, 6);
  OK(trafo_op_min_dims(context, x, (const int32_t[]){0}, 1, 0, &out));
  VALUES(out, 3, 1, 2, 3);
  FAILS(trafo_op_sum_dims(context, x, (const int32_t[]){1, -1}, 2, 0, &out), TRAFO_INVALID_ARGUMENT,
        "given twice");
  OK(trafo_op_argmax(context, x, 1, 0, &ids));
  VALUES(as_floats(ids), 2, 1, 2);
  OK(trafo_op_argmin(context, x, 0, 1, &ids));
  VALUES(as_floats(ids), 3, 0, 1, 0);
  OK(trafo_op_top_k(context, x, 2, -1, &out, &ids));
  VALUES(out, 4, 5, 3, 6, 4);
  VALUES(as_floats(ids), 4, 1, 2, 2, 0);
  FAILS(trafo_op_top_k(context, x, 4, -1, &out, &ids), TRAFO_INVALID_ARGUMENT, "1 to 3");
  CHECK(out == NULL && ids == NULL);
  OK(trafo_op_cumsum(context, x, 1, &out));
  VALUES(out, 6, 1, 6, 9, 4, 6, 12);
  OK(trafo_op_permute(context, x, (const int32_t[]){1, 0}, 2, &out));
  VALUES(out, 6, 1, 4, 5, 2, 3, 6);
  OK(trafo_op_expand(context, x, (const int64_t[]){2, -1, 3}, 3, &out));
  VALUES(out, 12, 1, 5, 3, 4, 2, 6, 1, 5, 3, 4, 2, 6);
  trafo_tensor *index = INTEGERS(2, 2, 0, 2, 1, 1), *src = MATRIX(2, 2, 10, 20, 30, 40);
  OK(trafo_op_gather(context, x, 1, index, &out));
  VALUES(out, 4, 1, 3, 2, 2);
  OK(trafo_op_scatter_add(context, x, 1, index, src, &out));
  VALUES(out, 6, 11, 5, 23, 4, 72, 6);
  OK(trafo_op_scatter(context, x, 1, index, src, &out));
  VALUES(out, 6, 10, 5, 20, 4, 40, 6);
  FAILS(trafo_op_gather(context, x, 0, index, &out), TRAFO_INVALID_ARGUMENT, "is 2");
  trafo_tensor_free(src);
  trafo_tensor_free(index);
  trafo_tensor_free(x);
}

static void test_own_tensors(void) {
  trafo_tensor *u = NULL, *n = NULL, *out = NULL, *loaded[2] = {NULL, NULL};
  const int64_t shape[] = {2, 3};
  OK(trafo_tensor_random(context, TRAFO_FLOAT32, shape, 2, TRAFO_UNIFORM, 2, 3, 7, &u));
  OK(trafo_op_clamp(context, u, 2, 3, &out));
  float drawn[6], clamped[6];
  OK(trafo_tensor_read(u, drawn, sizeof drawn));
  OK(trafo_tensor_read(out, clamped, sizeof clamped));
  CHECK(memcmp(drawn, clamped, sizeof drawn) == 0 && drawn[0] != drawn[1]);
  trafo_tensor_free(out);
  OK(trafo_tensor_random(context, TRAFO_FLOAT32, shape, 1, TRAFO_NORMAL, 5, 0, 7, &n));
  FAILS(trafo_tensor_random(context, TRAFO_FLOAT32, shape, 1, TRAFO_UNIFORM, 3, 2, 7, &out),
        TRAFO_INVALID_ARGUMENT, "3 and 2");
  FAILS(trafo_tensor_random(context, TRAFO_INT32, shape, 1, TRAFO_UNIFORM, 0, 2, 7, &out),
        TRAFO_DTYPE_MISMATCH, "int32");

  const char* path = work_path("own.safetensors");
  const trafo_string_view names[] = {view("n"), view("u")}, missing = view("w");
  const trafo_tensor* saved[] = {n, u};
  OK(trafo_tensors_save(context, path, strlen(path), names, saved, 2));
  OK(trafo_tensors_load(context, path, strlen(path), names, 2, loaded));
  VALUES(loaded[0], 2, 5, 5);
  check_values(loaded[1], drawn, 6, __FILE__, __LINE__);
  FAILS(trafo_tensors_load(context, path, strlen(path), &missing, 1, loaded), TRAFO_NOT_FOUND, "w");
  CHECK(loaded[0] == NULL);
  const trafo_string_view same[] = {view("n"), view("n")};
  FAILS(trafo_tensors_save(context, path, strlen(path), same, saved, 2), TRAFO_INVALID_ARGUMENT,
        "n");

  trafo_tensor *w[] = {VECTOR(1, 3), VECTOR(1, 4)}, *v[] = {VECTOR(1, 0), VECTOR(1, 0)};
  trafo_tensor *both = NULL, *loss = NULL;
  double norm = 0;
  for (int i = 0; i < 2; ++i) OK(trafo_tensor_set_requires_grad(w[i], 1));
  OK(trafo_clip_grad_norm(context, w, 2, 1, &norm));
  NEAR(norm, 0, 0);
  for (int i = 0; i < 2; ++i) {
    OK(trafo_op_scale(context, w[0], 3, &out));
    OK(trafo_op_scale(context, w[1], 4, &both));
    OK(trafo_op_add(context, out, both, &loss));
    OK(trafo_backward(context, loss, NULL));
    OK(trafo_clip_grad_norm(context, w, 2, 1, &norm));
    NEAR(norm, 5, 1e-6);
    OK(trafo_sgd_step(context, w, v, 2, 1, 0.5, 0));
    trafo_tensor_free(loss);
    trafo_tensor_free(both);
    trafo_tensor_free(out);
  }
  OK(trafo_tensor_clone(w[0], &out));
  VALUES(out, 1, 3 - 0.6f - 0.9f);
  OK(trafo_op_add(context, w[0], w[0], &loss));
  OK(trafo_backward(context, loss, NULL));
  OK(trafo_sgd_step(context, w, NULL, 2, 0.5, 0, 0.1)); /* 1.5 - 0.5 (2 + 0.1 1.5) */
  OK(trafo_tensor_clone(w[0], &out));
  VALUES(out, 1, 0.425f);
  trafo_tensor* wide = VECTOR(2, 0, 0);
  FAILS(trafo_sgd_step(context, w, &wide, 1, 0.1, 0.9, 0), TRAFO_SHAPE_MISMATCH, "velocity 0");
  FAILS(trafo_sgd_step(context, w, NULL, 2, 0.1, 0.9, 0), TRAFO_INVALID_ARGUMENT, "velocities");
  FAILS(trafo_sgd_step(context, &u, NULL, 1, 0.1, 0, 0), TRAFO_INVALID_ARGUMENT, "leaf");
  trafo_tensor_free(wide);
  trafo_tensor_free(loss);
  for (int i = 0; i < 2; ++i) {
    trafo_tensor_free(w[i]);
    trafo_tensor_free(v[i]);
  }
  trafo_tensor_free(u);
  trafo_tensor_free(n);
}

static void test_llama(void) {
  trafo_tensor *x = MATRIX(2, 2, 1, 1, -1, 1), *gamma = VECTOR(2, 1, 2), *at = NULL, *out = NULL;
  trafo_tensor* normed = NULL;
  const int32_t places[] = {0, 0};
  OK(trafo_tensor_new(context, TRAFO_INT32, (const int64_t[]){2}, 1, places, sizeof places, &at));
  OK(trafo_op_rms_norm(context, x, gamma, 1e-12, &out));
  VALUES(out, 4, 1, 2, -1, 2);
  OK(trafo_op_residual_rms_norm(context, x, x, gamma, 1e-12, NULL, &out, &normed));
  VALUES(out, 4, 2, 2, -2, 2);
  VALUES(normed, 4, 1, 2, -1, 2);
  OK(trafo_op_rotary(context, x, at, 1, 0, 2, 10000, &out)); /* nothing turns at position 0 */
  VALUES(out, 4, 1, 1, -1, 1);
  FAILS(trafo_op_rotary(context, x, at, 1, 0, 3, 10000, &out), TRAFO_INVALID_ARGUMENT, "head_dim");
  OK(trafo_op_swiglu(context, gamma, &out));
  VALUES(out, 1, 1.46211716f); /* 2 sigmoid(1) */
  FAILS(trafo_op_swiglu(context, at, &out), TRAFO_DTYPE_MISMATCH, "int32");
  trafo_tensor_free(at);
  trafo_tensor_free(gamma);
  trafo_tensor_free(x);
}

static void test_rows(void) {
  trafo_tensor *out = NULL, *normed = NULL, *x = MATRIX(2, 2, 1, 3, -1, 1);
  trafo_tensor *gamma = VECTOR(2, 1, 2), *beta = VECTOR(2, 0, 1), *bias = VECTOR(2, 1, -2);
  trafo_dropout off = {0, 0, 0, 0, 1}, half = {0.5f, 3, 4, 0, 5}, bad = {1.5f, 0, 0, 0, 0},
                reserved = {0.5f, 0, 0, 9, 0};
  OK(trafo_op_layer_norm(context, x, gamma, beta, 1e-12, &out));
  VALUES(out, 4, -1, 3, -1, 3);
  OK(trafo_op_bias_act_dropout(context, x, bias, TRAFO_RELU, &off, &out));
  VALUES(out, 4, 2, 1, 0, 0);
  OK(trafo_op_bias_dropout_residual(context, x, bias, x, NULL, &out));
  VALUES(out, 4, 3, 4, -1, 0);
  OK(trafo_op_bias_dropout_residual_norm(context, x, bias, x, gamma, beta, 1e-12, NULL, &out,
                                         &normed));
  VALUES(out, 4, 3, 4, -1, 0);
  VALUES(normed, 4, -1, 3, -1, 3);
  FAILS(trafo_op_bias_dropout_residual_norm(context, x, bias, x, gamma, bias, 1e-5, &bad, &out,
                                            &normed),
        TRAFO_INVALID_ARGUMENT, "1.5");
  CHECK(out == NULL && normed == NULL);
  FAILS(trafo_op_dropout(context, x, &reserved, &out), TRAFO_INVALID_ARGUMENT, "reserved");

  const int64_t many = 10000;
  float *ones = malloc((size_t)many * sizeof *ones), *first = malloc((size_t)many * sizeof *first);
  for (int64_t i = 0; i < many; ++i) ones[i] = 1;
  trafo_tensor *big = vector(many, ones), *again = NULL;
  OK(trafo_op_dropout(context, big, &half, &out));
  OK(trafo_op_dropout(context, big, &half, &again));
  OK(trafo_tensor_read(out, first, (size_t)many * sizeof *first));
  double kept = 0;
  for (int64_t i = 0; i < many; ++i) kept += first[i];
  NEAR(kept / (double)many, 1, 0.05);
  check_values(again, first, many, __FILE__, __LINE__);
  trafo_tensor_free(out);
  trafo_tensor_free(big);
  free(ones);
  free(first);

  OK(trafo_op_softmax(context, x, 1, 0, NULL, &out));
  const float low = 1 / (1 + expf(2));
  VALUES(out, 4, low, 1 - low, low, 1 - low);
  OK(trafo_op_softmax(context, x, 1, 1, NULL, &out));
  VALUES(out, 4, 1, 0, low, 1 - low);
  const int64_t four[] = {1, 1, 2, 2}, mask_shape[] = {1, 2};
  trafo_tensor *scores = NULL, *mask = NULL;
  OK(trafo_op_reshape(context, x, four, 4, &scores));
  OK(trafo_tensor_new(context, TRAFO_INT32, mask_shape, 2, (const int32_t[]){1, 1}, 8, &mask));
  OK(trafo_op_softmax(context, scores, 1, 0, mask, &out));
  VALUES(out, 4, 0, 0, 0, 0);
  trafo_tensor_free(scores);
  trafo_tensor_free(mask);
  trafo_tensor_free(x);
  trafo_tensor_free(gamma);
  trafo_tensor_free(beta);
  trafo_tensor_free(bias);
}

static void test_sequences(void) {
  trafo_tensor *out = NULL, *nll = NULL;
  trafo_tensor *ids = ints(context, (const int32_t[]){2, 0}, 2),
               *positions = ints(context, (const int32_t[]){0, 1}, 2);
  trafo_tensor *table = MATRIX(3, 2, 1, 2, 3, 4, 5, 6), *places = NULL,
               *wild = ints(context, (const int32_t[]){2, 3}, 2);
  OK(trafo_sinusoidal_positions(context, 2, 2, TRAFO_FLOAT32, &places));
  trafo_embedding_options embedding;
  OK(trafo_embedding_options_init(&embedding, sizeof embedding));
  embedding.scale = 2;
  embedding.positions = positions;
  embedding.position_table = places;
  OK(trafo_op_embedding(context, ids, table, &embedding, &out));
  VALUES(out, 4, 10, 13, 2 + sinf(1), 4 + cosf(1));
  FAILS(trafo_op_embedding(context, wild, table, NULL, &out), TRAFO_INVALID_ARGUMENT, "3");
  embedding.position_table = NULL;
  FAILS(trafo_op_embedding(context, ids, table, &embedding, &out), TRAFO_INVALID_ARGUMENT, "");
  embedding.positions = NULL;
  embedding.padding_id = 3;
  FAILS(trafo_op_embedding(context, ids, table, &embedding, &out), TRAFO_INVALID_ARGUMENT,
        "padding_id 3");
  // Token 0 of the ids has the id 2: its row gets no gradient.
  trafo_tensor *sum = NULL, *grad = NULL;
  embedding.padding_id = 2;
  OK(trafo_tensor_set_requires_grad(table, 1));
  OK(trafo_op_embedding(context, ids, table, &embedding, &out));
  OK(trafo_op_sum(context, out, &sum));
  OK(trafo_backward(context, sum, NULL));
  OK(trafo_tensor_get_grad(table, &grad));
  VALUES(grad, 6, 2, 2, 0, 0, 0, 0);
  VALUES(out, 4, 10, 12, 2, 4);
  VALUES(sum, 1, 28);
  OK(trafo_tensor_set_requires_grad(table, 0));

  // Two sequences of one row: each attends to itself alone.
  trafo_attention_options attention;
  trafo_tensor *q = MATRIX(2, 2, 1, 2, 3, 4),
               *offsets = ints(context, (const int32_t[]){0, 1, 2}, 3);
  OK(trafo_attention_options_init(&attention, sizeof attention));
  attention.head_dim = 2;
  OK(trafo_op_attention(context, q, q, q, offsets, offsets, &attention, &out));
  VALUES(out, 4, 1, 2, 3, 4);
  attention.head_dim = 3;
  FAILS(trafo_op_attention(context, q, q, q, offsets, offsets, &attention, &out),
        TRAFO_SHAPE_MISMATCH, "");
  attention.head_dim = 2;
  // The first row of the second sequence may not see its only key.
  trafo_tensor *mask = NULL, *flat = ints(context, (const int32_t[]){0, 1}, 2);
  OK(trafo_op_reshape(context, flat, (const int64_t[]){2, 1, 1, 1}, 4, &mask));
  attention.mask = mask;
  OK(trafo_op_attention(context, q, q, q, offsets, offsets, &attention, &out));
  VALUES(out, 4, 1, 2, 0, 0);
  attention.mask = flat;
  FAILS(trafo_op_attention(context, q, q, q, offsets, offsets, &attention, &out),
        TRAFO_SHAPE_MISMATCH, "the mask must be");
  attention.mask = NULL;
  trafo_tensor_free(flat);
  trafo_tensor_free(mask);
  trafo_tensor* torn = ints(context, (const int32_t[]){0, 2, 1}, 3);
  attention.head_dim = 2;
  FAILS(trafo_op_attention(context, q, q, q, torn, offsets, &attention, &out),
        TRAFO_INVALID_ARGUMENT, "cu_seqlens");

  // Grouped queries: both heads of q read the one head of k and v.
  trafo_tensor *grouped = MATRIX(2, 1, 5, 7), *grouped_out = NULL;
  attention.heads = 2;
  attention.kv_heads = 1;
  attention.head_dim = 1;
  OK(trafo_op_attention(context, q, grouped, grouped, offsets, offsets, &attention, &grouped_out));
  VALUES(grouped_out, 4, 5, 5, 7, 7);
  attention.kv_heads = 0;
  FAILS(
      trafo_op_attention(context, q, grouped, grouped, offsets, offsets, &attention, &grouped_out),
      TRAFO_SHAPE_MISMATCH, "");
  attention.heads = 3;
  attention.kv_heads = 2;
  FAILS(trafo_op_attention(context, q, q, q, offsets, offsets, &attention, &grouped_out),
        TRAFO_INVALID_ARGUMENT, "kv_heads");
  trafo_tensor_free(grouped);

  trafo_cross_entropy_options loss;
  trafo_tensor *logits = MATRIX(2, 2, 0, 0, 1, 1),
               *labels = ints(context, (const int32_t[]){1, -100}, 2);
  OK(trafo_cross_entropy_options_init(&loss, sizeof loss));
  loss.label_smoothing = 0.1;
  OK(trafo_op_cross_entropy(context, logits, labels, &loss, &out, &nll));
  VALUES(out, 1, logf(2));
  VALUES(nll, 1, logf(2));
  loss.reduction = TRAFO_REDUCE_NONE;
  OK(trafo_op_cross_entropy(context, logits, labels, &loss, &out, NULL));
  VALUES(out, 2, logf(2), 0);
  // The second class counts three times as much, and the row by the weight of its label.
  trafo_tensor *by_class = VECTOR(2, 1, 3), *uneven = MATRIX(2, 2, 0, logf(3), 0, 0),
               *soft = MATRIX(2, 2, 0, 1, 0.5f, 0.5f);
  loss.class_weights = by_class;
  OK(trafo_op_cross_entropy(context, uneven, labels, &loss, &out, NULL));
  VALUES(out, 2, 0.9f * 3 * logf(4.0f / 3) + 0.05f * (logf(4) + 3 * logf(4.0f / 3)), 0);
  loss.label_smoothing = 0;
  loss.reduction = TRAFO_REDUCE_MEAN;
  OK(trafo_op_cross_entropy(context, uneven, labels, &loss, &out, NULL));
  VALUES(out, 1, logf(4.0f / 3));
  OK(trafo_op_soft_cross_entropy(context, uneven, soft, &loss, &out));
  VALUES(out, 1, (3 * logf(4.0f / 3) + 2 * logf(2)) / 2);
  FAILS(trafo_op_soft_cross_entropy(context, uneven, by_class, &loss, &out), TRAFO_SHAPE_MISMATCH,
        "targets");
  loss.class_weights = labels;
  FAILS(trafo_op_cross_entropy(context, uneven, labels, &loss, &out, NULL), TRAFO_DTYPE_MISMATCH,
        "class weights");
  loss.class_weights = NULL;
  trafo_tensor_free(by_class);
  trafo_tensor_free(uneven);
  trafo_tensor_free(soft);
  loss.reduction = 9;
  FAILS(trafo_op_cross_entropy(context, logits, labels, &loss, &out, NULL), TRAFO_INVALID_ARGUMENT,
        "reduction is unknown: 9");
  FAILS(trafo_op_cross_entropy(context, logits, wild, NULL, &out, NULL), TRAFO_INVALID_ARGUMENT,
        "");
  trafo_tensor *x = MATRIX(2, 2, 0, 0, 0, 0), *weight = MATRIX(3, 2, 1, 2, 3, 4, 5, 6);
  OK(trafo_op_linear_cross_entropy(context, x, weight, NULL, labels, NULL, 0, &out, &nll));
  VALUES(out, 1, logf(3));
  VALUES(nll, 1, logf(3));
  trafo_tensor* const all[] = {ids,     positions, table,  places, wild, q,
                               offsets, torn,      logits, labels, x,    weight};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) trafo_tensor_free(all[i]);
}

// A tensor that backward needs is overwritten first: the error names the op. Values that are not
// needed may be overwritten.
static void test_saved_values(void) {
  trafo_tensor *x = VECTOR(2, 1, 2), *w = VECTOR(2, 3, 4), *alias = NULL, *product = NULL,
               *loss = NULL, *grad = NULL;
  const float other[] = {5, 6};
  OK(trafo_tensor_set_requires_grad(w, 1));
#define LOSS()                                      \
  do {                                              \
    OK(trafo_op_multiply(context, w, x, &product)); \
    OK(trafo_op_sum(context, product, &loss));      \
    trafo_tensor_free(product);                     \
  } while (0)
#define REFUSED(name)                                                  \
  do {                                                                 \
    FAILS(trafo_backward(context, loss, NULL), TRAFO_INVALID_ARGUMENT, \
          "multiply needs " name ",");                                 \
    trafo_tensor_free(loss);                                           \
  } while (0)
  LOSS();
  OK(trafo_tensor_write(x, other, sizeof other));
  REFUSED("b");
  LOSS();
  OK(trafo_tensor_detach(x, &alias));
  OK(trafo_tensor_write(alias, other, sizeof other));
  REFUSED("b");
  LOSS();
  OK(trafo_tensor_mark_written(x));
  REFUSED("b");
  LOSS();
  OK(trafo_tensor_write(w, other, sizeof other));  // x is a constant: w's values are not needed
  OK(trafo_backward(context, loss, NULL));
  trafo_tensor_free(loss);
  OK(trafo_tensor_get_grad(w, &grad));
  VALUES(grad, 2, 5, 6);

  trafo_adamw* optimizer = NULL;
  OK(trafo_tensor_set_requires_grad(x, 1));
  OK(trafo_adamw_new(context, &w, 1, NULL, &optimizer));
  LOSS();
  OK(trafo_backward(context, loss, NULL));
  trafo_tensor_free(loss);
  LOSS();
  OK(trafo_adamw_step(optimizer, 0.1, NULL));
  REFUSED("a");
  LOSS();
  OK(trafo_backward(context, loss, NULL));
  trafo_tensor_free(loss);
#undef LOSS
#undef REFUSED
  trafo_adamw_free(optimizer);
  trafo_tensor_free(alias);
  trafo_tensor_free(x);
  trafo_tensor_free(w);
}

void test_ops(void) {
  context = new_context(2);
  test_elementwise();
  test_shapes();
  test_pointwise();
  test_along_dimensions();
  test_own_tensors();
  test_llama();
  test_rows();
  test_sequences();
  test_saved_values();
  trafo_context_free(context);
}
