// Ops of the program with their gradients, tensors copied from a file by name, and schedules
// outside a trainer.
#include "capi_check.h"

enum { kCount = 4 };

typedef struct Cube {
  int forwards, backwards, freed;
  int fails;          // 1: forward, 2: backward
  int gives_nothing;  // backward leaves the gradient NULL
  int wrong_shape;
  trafo_tensor* nested;  // backward tries to run another backward from here
} Cube;

// y = x^3 and z = 2 x, element by element, on the host.
static int32_t cube_forward(void* user_data, trafo_context* context,
                            const trafo_tensor* const* inputs, size_t input_count,
                            trafo_tensor** outputs, size_t output_count) {
  Cube* const cube = user_data;
  double x[kCount], y[kCount], z[kCount];
  const int64_t shape[] = {kCount};
  ++cube->forwards;
  CHECK(input_count == 1 && output_count == 2);
  if (cube->fails == 1) return 7;
  OK(trafo_tensor_read(inputs[0], x, sizeof x));
  for (int i = 0; i < kCount; ++i) {
    y[i] = x[i] * x[i] * x[i];
    z[i] = 2 * x[i];
  }
  OK(trafo_tensor_new(context, TRAFO_FLOAT64, shape, 1, y, sizeof y, &outputs[0]));
  OK(trafo_tensor_new(context, TRAFO_FLOAT64, shape, 1, z, sizeof z, &outputs[1]));
  return 0;
}

// The inputs, the outputs, the gradients of the outputs: dx = 3 x^2 dy + 2 dz.
static int32_t cube_backward(void* user_data, trafo_context* context,
                             const trafo_tensor* const* inputs, size_t input_count,
                             trafo_tensor** outputs, size_t output_count) {
  Cube* const cube = user_data;
  double values[5][kCount], dx[kCount];
  const int64_t shape[] = {cube->wrong_shape ? 2 : kCount};
  ++cube->backwards;
  CHECK(input_count == 5 && output_count == 1);
  if (cube->fails == 2) return 9;
  if (cube->nested) {
    trafo_tensor* recorded = NULL;
    int32_t before = 1;
    FAILS(trafo_backward(context, cube->nested, NULL), TRAFO_INVALID_ARGUMENT, "runs already");
    OK(trafo_context_set_recording(context, 1, &before));
    CHECK(before == 0);
    FAILS(trafo_op_multiply(context, cube->nested, cube->nested, &recorded), TRAFO_INVALID_ARGUMENT,
          "cannot be recorded");
    OK(trafo_context_set_recording(context, 0, NULL));
  }
  for (int i = 0; i < 5; ++i) OK(trafo_tensor_read(inputs[i], values[i], sizeof values[i]));
  for (int i = 0; i < kCount; ++i) {
    NEAR(values[1][i], values[0][i] * values[0][i] * values[0][i], 1e-12);
    dx[i] = 3 * values[0][i] * values[0][i] * values[3][i] + 2 * values[4][i];
  }
  if (cube->gives_nothing) return 0;
  OK(trafo_tensor_new(context, TRAFO_FLOAT64, shape, 1, dx, (size_t)shape[0] * sizeof *dx,
                      &outputs[0]));
  return 0;
}

static void cube_free(void* user_data) {
  ++((Cube*)user_data)->freed;
}

// Both outputs times each other.
static int32_t with_cube(void* user_data, trafo_context* context, const trafo_tensor* const* inputs,
                         size_t input_count, trafo_tensor** outputs, size_t output_count) {
  trafo_tensor* results[2] = {NULL, NULL};
  CHECK(output_count == 1);
  trafo_error* error = trafo_custom_op(context, cube_forward, cube_backward, user_data, NULL,
                                       inputs, input_count, results, 2);
  if (!error) error = trafo_op_multiply(context, results[0], results[1], &outputs[0]);
  trafo_tensor_free(results[0]);
  trafo_tensor_free(results[1]);
  const int32_t code = trafo_error_code(error);
  trafo_error_free(error);
  return code;
}

static trafo_tensor* sum_of(trafo_context* context, trafo_tensor* tensor) {
  trafo_tensor* sum = NULL;
  OK(trafo_op_sum(context, tensor, &sum));
  return sum;
}

static void check_gradient(trafo_tensor* x, double factor) {
  const double at[kCount] = {0.5, -1.25, 2, 0};
  double read[kCount];
  trafo_tensor* gradient = NULL;
  OK(trafo_tensor_get_grad(x, &gradient));
  CHECK(gradient != NULL);
  OK(trafo_tensor_read(gradient, read, sizeof read));
  for (int i = 0; i < kCount; ++i)
    NEAR(read[i], factor * 8 * at[i] * at[i] * at[i], 1e-12);  // of 2 x^4
  trafo_tensor_free(gradient);
  OK(trafo_tensor_zero_grad(x));
}

static void test_custom_op(void) {
  const double values[kCount] = {0.5, -1.25, 2, 0};
  const int64_t shape[] = {kCount};
  trafo_context* const context = new_context(1);
  trafo_tensor *x = NULL, *outputs[2], *root = NULL;
  trafo_gradcheck_result result;
  char* message = NULL;
  Cube cube = {0, 0, 0, 0, 0, 0, NULL};
  OK(trafo_tensor_new(context, TRAFO_FLOAT64, shape, 1, values, sizeof values, &x));
  const trafo_tensor* const inputs[] = {x};
  OK(trafo_gradcheck(context, with_cube, &cube, inputs, 1, 1, 1e-5, 1e-7, 1e-6, &result, &message));
  if (!result.ok) printf("%s\n", message);
  CHECK(result.ok && result.checked == kCount && cube.backwards == 1);
  trafo_string_free(message);

  OK(trafo_tensor_set_requires_grad(x, 1));
  trafo_tensor* product = NULL;
  for (int checkpointed = 0; checkpointed < 2; ++checkpointed) {
    const int before = cube.forwards;
    if (checkpointed)
      OK(trafo_checkpoint(context, with_cube, &cube, NULL, inputs, 1, &product, 1));
    else
      CHECK(with_cube(&cube, context, inputs, 1, &product, 1) == 0);
    root = sum_of(context, product);
    OK(trafo_backward(context, root, NULL));
    check_gradient(x, 1);
    CHECK(cube.forwards == before + 1 + checkpointed);
    trafo_tensor_free(root);
    trafo_tensor_free(product);
    product = NULL;
  }

  // The data are freed once: with the graph, where nothing is recorded, and when the call fails.
  OK(trafo_custom_op(context, cube_forward, cube_backward, &cube, cube_free, inputs, 1, outputs,
                     2));
  CHECK(cube.freed == 0);
  root = sum_of(context, outputs[1]);  // nothing uses the other one: its gradient is zeros
  OK(trafo_backward(context, root, NULL));
  CHECK(cube.freed == 1);
  trafo_tensor* gradient = NULL;
  double read[kCount];
  OK(trafo_tensor_get_grad(x, &gradient));
  OK(trafo_tensor_read(gradient, read, sizeof read));
  for (int i = 0; i < kCount; ++i) NEAR(read[i], 2, 0);
  trafo_tensor_free(gradient);
  OK(trafo_tensor_zero_grad(x));
  trafo_tensor_free(root);
  for (int i = 0; i < 2; ++i) trafo_tensor_free(outputs[i]);

  // In backward, no other backward runs and nothing is recorded.
  trafo_tensor* leaf = NULL;
  OK(trafo_tensor_new(context, TRAFO_FLOAT64, shape, 1, values, sizeof values, &leaf));
  OK(trafo_tensor_set_requires_grad(leaf, 1));
  cube.nested = sum_of(context, leaf);
  OK(trafo_custom_op(context, cube_forward, cube_backward, &cube, NULL, inputs, 1, outputs, 2));
  root = sum_of(context, outputs[1]);
  const int runs = cube.backwards;
  OK(trafo_backward(context, root, NULL));
  CHECK(cube.backwards == runs + 1);
  OK(trafo_tensor_get_grad(x, &gradient));
  OK(trafo_tensor_read(gradient, read, sizeof read));
  for (int i = 0; i < kCount; ++i) NEAR(read[i], 2, 0);
  trafo_tensor_free(gradient);
  OK(trafo_tensor_zero_grad(x));
  trafo_tensor_free(cube.nested);
  cube.nested = NULL;
  trafo_tensor_free(leaf);
  trafo_tensor_free(root);
  for (int i = 0; i < 2; ++i) trafo_tensor_free(outputs[i]);

  cube.fails = 1;
  FAILS(trafo_custom_op(context, cube_forward, cube_backward, &cube, cube_free, inputs, 1, outputs,
                        2),
        TRAFO_CANCELLED, "returned 7");
  CHECK(cube.freed == 2 && !outputs[0] && !outputs[1]);
  FAILS(trafo_custom_op(context, NULL, cube_backward, &cube, cube_free, inputs, 1, outputs, 2),
        TRAFO_INVALID_ARGUMENT, "forward is NULL");
  FAILS(trafo_custom_op(context, cube_forward, NULL, &cube, cube_free, inputs, 1, outputs, 2),
        TRAFO_INVALID_ARGUMENT, "backward is NULL");
  CHECK(cube.freed == 4);

  // An error of backward comes out of trafo_backward, and the context stays usable.
  for (int wrong = 0; wrong < 4; ++wrong) {
    cube.fails = wrong == 0 ? 2 : 0;
    cube.wrong_shape = wrong == 1;
    cube.gives_nothing = wrong == 2;
    OK(trafo_custom_op(context, cube_forward, cube_backward, &cube, cube_free, inputs, 1, outputs,
                       2));
    root = sum_of(context, outputs[0]);
    if (wrong == 0) FAILS(trafo_backward(context, root, NULL), TRAFO_CANCELLED, "returned 9");
    if (wrong == 1)
      FAILS(trafo_backward(context, root, NULL), TRAFO_SHAPE_MISMATCH,
            "gradient of input 0 is [2]");
    if (wrong == 2) {
      OK(trafo_backward(context, root, NULL));
      OK(trafo_tensor_get_grad(x, &gradient));
      CHECK(gradient == NULL);
    }
    if (wrong == 3) {  // the input is overwritten between the op and backward
      OK(trafo_tensor_write(x, values, sizeof values));
      FAILS(trafo_backward(context, root, NULL), TRAFO_INVALID_ARGUMENT, "an input");
    }
    CHECK(cube.freed == 5 + wrong);
    trafo_tensor_free(root);
    for (int i = 0; i < 2; ++i) trafo_tensor_free(outputs[i]);
  }
  trafo_tensor_free(x);
  trafo_context_free(context);
}

static void test_named_tensors(void) {
  const float values[3][2] = {{1, 2}, {3, 4}, {5, 6}};
  const int64_t shape[] = {2};
  const trafo_string_view names[] = {{"b.weight", 8}, {"a.bias", 6}, {"c", 1}};
  trafo_context* const context = new_context(1);
  trafo_tensor *saved[3], *own[2], *result = NULL;
  const trafo_tensor* lent[3];
  char* list = NULL;
  size_t length = 0;
  float read[2];
  for (int i = 0; i < 3; ++i) lent[i] = saved[i] = floats(context, values[i], 1, shape);
  const char* const path = work_path("named.safetensors");
  OK(trafo_tensors_save(context, path, strlen(path), names, lent, 3));
  OK(trafo_tensors_list(path, strlen(path), &list, &length));
  CHECK(length == 18 && memcmp(list, "a.bias\0b.weight\0c\0", 18) == 0);
  trafo_string_free(list);
  FAILS(trafo_tensors_list("/nonexistent", 12, &list, &length), TRAFO_NOT_FOUND, "/nonexistent");
  CHECK(list == NULL && length == 0);

  const float zeros[4] = {0, 0, 0, 0};
  const int64_t longer[] = {4};
  for (int i = 0; i < 2; ++i) own[i] = floats(context, zeros, 1, shape);
  OK(trafo_tensor_set_requires_grad(own[0], 1));
  OK(trafo_tensors_read(context, path, strlen(path), names, own, 2));
  for (int i = 0; i < 2; ++i) {
    OK(trafo_tensor_read(own[i], read, sizeof read));
    CHECK(read[0] == values[i][0] && read[1] == values[i][1]);
    OK(trafo_tensor_write(own[i], zeros, sizeof read));
  }
  // One that does not fit changes none.
  const trafo_string_view absent[] = {names[0], {"d", 1}};
  trafo_tensor* const wider = floats(context, zeros, 1, longer);
  trafo_tensor* const misfit[] = {own[0], wider};
  FAILS(trafo_tensors_read(context, path, strlen(path), absent, own, 2), TRAFO_NOT_FOUND, "d");
  FAILS(trafo_tensors_read(context, path, strlen(path), names, misfit, 2), TRAFO_SHAPE_MISMATCH,
        "a.bias is [2] float32");
  OK(trafo_op_add(context, own[0], own[1], &result));
  trafo_tensor* const computed[] = {result};
  FAILS(trafo_tensors_read(context, path, strlen(path), names, computed, 1), TRAFO_INVALID_ARGUMENT,
        "result of an op");
  OK(trafo_tensor_read(own[0], read, sizeof read));
  CHECK(read[0] == 0 && read[1] == 0);
  for (int i = 0; i < 3; ++i) trafo_tensor_free(saved[i]);
  for (int i = 0; i < 2; ++i) trafo_tensor_free(own[i]);
  trafo_tensor_free(wider);
  trafo_tensor_free(result);
  trafo_context_free(context);
}

static void test_schedules(void) {
  trafo_trainer_options options;
  double rate = -1;
  OK(trafo_trainer_options_init(&options, sizeof options));
  options.schedule = TRAFO_SCHEDULE_LINEAR;
  options.learning_rate = 0.5;
  options.warmup = 10;
  options.schedule_updates = 50;
  const double expected[][2] = {{1, 0.05}, {10, 0.5}, {30, 0.25}, {50, 0}, {90, 0}};
  for (int i = 0; i < 5; ++i) {
    OK(trafo_scheduled_rate(&options, 1, (int64_t)expected[i][0], &rate));
    NEAR(rate, expected[i][1], 1e-15);
  }
  options.schedule = TRAFO_SCHEDULE_NOAM;
  OK(trafo_scheduled_rate(&options, 64, 10, &rate));
  NEAR(rate, 0.5 / 8 / sqrt(10), 1e-15);
  FAILS(trafo_scheduled_rate(&options, 0, 1, &rate), TRAFO_INVALID_ARGUMENT, "width");
  FAILS(trafo_scheduled_rate(&options, 1, 0, &rate), TRAFO_INVALID_ARGUMENT, "update");
  CHECK(rate == 0);
  options.schedule = TRAFO_SCHEDULE_LINEAR;
  options.schedule_updates = 5;
  FAILS(trafo_scheduled_rate(&options, 1, 1, &rate), TRAFO_INVALID_ARGUMENT, "warmup of 10");
}

void test_own_networks(void) {
  test_custom_op();
  test_named_tensors();
  test_schedules();
}
