// The C ABI from C11: harness, errors, handles, tensors and autodiff. The other c_api_*.c are the
// rest.
#define _XOPEN_SOURCE 700
#include "capi_check.h"

#include <ftw.h>
#include <unistd.h>

int checks_passed, checks_failed;

int check_ok(trafo_error* error, const char* call, const char* file, int line) {
  if (!error) {
    ++checks_passed;
    return 1;
  }
  ++checks_failed;
  printf("%s:%d: %s: %s: %s [%s]\n", file, line, call,
         trafo_error_code_name(trafo_error_code(error)), trafo_error_message(error),
         trafo_error_origin(error));
  trafo_error_free(error);
  return 0;
}

void check_fails(trafo_error* error, int32_t code, const char* text, const char* call,
                 const char* file, int line) {
  const int right = error && trafo_error_code(error) == code &&
                    strstr(trafo_error_message(error), text) &&
                    trafo_error_origin(error)[0] != '\0';
  if (right) {
    ++checks_passed;
  } else {
    ++checks_failed;
    printf("%s:%d: %s: expected %s \"%s\", got %s \"%s\" [%s]\n", file, line, call,
           trafo_error_code_name(code), text,
           error ? trafo_error_code_name(trafo_error_code(error)) : "success",
           trafo_error_message(error), trafo_error_origin(error));
  }
  trafo_error_free(error);
}

trafo_context* new_context(int32_t threads) {
  trafo_context_options options;
  trafo_context* context = NULL;
  OK(trafo_context_options_init(&options, sizeof options));
  options.threads = threads;
  OK(trafo_context_new(&options, &context));
  return context;
}

trafo_tensor* floats(trafo_context* context, const float* values, int32_t rank,
                     const int64_t* shape) {
  size_t count = 1;
  for (int32_t i = 0; i < rank; ++i) count *= (size_t)shape[i];
  trafo_tensor* tensor = NULL;
  OK(trafo_tensor_new(context, TRAFO_FLOAT32, shape, rank, values, count * sizeof *values,
                      &tensor));
  return tensor;
}

trafo_tensor* ints(trafo_context* context, const int32_t* values, int64_t count) {
  trafo_tensor* tensor = NULL;
  OK(trafo_tensor_new(context, TRAFO_INT32, &count, 1, values, (size_t)count * sizeof *values,
                      &tensor));
  return tensor;
}

void check_values(trafo_tensor* tensor, const float* expected, int64_t count, const char* file,
                  int line) {
  float* values = calloc((size_t)count + 1, sizeof *values);
  if (check_ok(trafo_tensor_read(tensor, values, (size_t)count * sizeof *values), "read", file,
               line)) {
    int64_t wrong = -1;
    for (int64_t i = count - 1; i >= 0; --i)
      if (!(fabsf(values[i] - expected[i]) <= 1e-5f)) wrong = i;
    if (wrong < 0) {
      ++checks_passed;
    } else {
      ++checks_failed;
      printf("%s:%d: element %d is %g, expected %g\n", file, line, (int)wrong, values[wrong],
             expected[wrong]);
    }
  }
  free(values);
  trafo_tensor_free(tensor);
}

trafo_string_view view(const char* text) {
  trafo_string_view result = {text, strlen(text)};
  return result;
}

static char directory[64];

const char* work_directory(void) {
  if (!directory[0]) {
    strcpy(directory, "/tmp/trafo-c-api-XXXXXX");
    CHECK(mkdtemp(directory) != NULL);
  }
  return directory;
}

const char* work_path(const char* name) {
  static char paths[8][160];
  static int next;
  char* path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", work_directory(), name);
  return path;
}

void write_file(const char* path, const void* data, size_t bytes) {
  FILE* file = fopen(path, "wb");
  CHECK(file && fwrite(data, 1, bytes, file) == bytes);
  if (file) fclose(file);
}

uint8_t* read_file(const char* path, size_t* bytes) {
  FILE* file = fopen(path, "rb");
  CHECK(file != NULL);
  *bytes = 0;
  if (!file) return calloc(1, 1);
  fseek(file, 0, SEEK_END);
  const long size = ftell(file);
  rewind(file);
  uint8_t* data = malloc((size_t)size + 1);
  *bytes = fread(data, 1, (size_t)size, file);
  fclose(file);
  return data;
}

static int remove_entry(const char* path, const struct stat* info, int type, struct FTW* where) {
  (void)info, (void)type, (void)where;
  return remove(path);
}

static void test_errors_and_handles(void) {
  CHECK(strcmp(trafo_version(), "0.1.0") == 0);
  CHECK(trafo_abi_version() == TRAFO_ABI_VERSION);
  CHECK(trafo_error_code(NULL) == TRAFO_OK);
  CHECK(strcmp(trafo_error_message(NULL), "") == 0 && strcmp(trafo_error_origin(NULL), "") == 0);
  CHECK(strcmp(trafo_error_code_name(TRAFO_SHAPE_MISMATCH), "SHAPE_MISMATCH") == 0);
  CHECK(strcmp(trafo_error_code_name(12345), "UNKNOWN") == 0);

  trafo_error* error = trafo_context_new(NULL, NULL);
  CHECK(trafo_error_code(error) == TRAFO_INVALID_ARGUMENT);
  CHECK(strcmp(trafo_error_origin(error), "trafo_context_new") == 0);
  CHECK(strstr(trafo_error_message(error), "out is NULL") != NULL);
  trafo_error_free(error);
  trafo_error_free(error);  // again: not live, so nothing happens
  CHECK(trafo_error_code(error) == TRAFO_INVALID_ARGUMENT);
  CHECK(strstr(trafo_error_message(error), "not live") != NULL);

  trafo_context *context = new_context(2), *other = new_context(1);
  const int64_t shape[] = {2};
  const float values[] = {1, 2};
  trafo_tensor *a = floats(context, values, 1, shape), *b = floats(other, values, 1, shape),
               *sum = a;
  FAILS(trafo_op_add(context, a, b, &sum), TRAFO_INVALID_ARGUMENT, "b belongs to another context");
  CHECK(sum == NULL);
  FAILS(trafo_op_add(context, a, NULL, &sum), TRAFO_INVALID_ARGUMENT, "b is NULL");
  FAILS(trafo_op_add(context, a, (trafo_tensor*)(void*)context, &sum), TRAFO_INVALID_ARGUMENT,
        "another kind");
  FAILS(trafo_op_add((trafo_context*)(void*)a, a, a, &sum), TRAFO_INVALID_ARGUMENT,
        "not a live trafo_context");
  trafo_tensor_free((trafo_tensor*)(void*)context);  // another kind: nothing happens
  trafo_tensor_free(b);
  trafo_tensor_free(b);
  trafo_tensor_free(NULL);
  FAILS(trafo_tensor_get_dtype(b, &(int32_t){0}), TRAFO_INVALID_ARGUMENT, "freed");

  // A context goes when its last object does.
  trafo_context_free(context);
  trafo_context_free(context);
  VALUES(a, 2, 1, 2);
  trafo_context_free(other);

  trafo_cancel* cancel = NULL;
  int32_t set = 7;
  OK(trafo_cancel_new(&cancel));
  OK(trafo_cancel_is_set(cancel, &set));
  CHECK(set == 0);
  OK(trafo_cancel_set(cancel));
  OK(trafo_cancel_is_set(cancel, &set));
  CHECK(set == 1);
  OK(trafo_cancel_reset(cancel));
  OK(trafo_cancel_is_set(cancel, &set));
  CHECK(set == 0);
  trafo_cancel_free(cancel);
  FAILS(trafo_cancel_set(cancel), TRAFO_INVALID_ARGUMENT, "freed");
  trafo_string_free(NULL);
  trafo_ids_free(NULL);
}

static void test_tensors(trafo_context* context) {
  const int64_t shape[] = {2, 3};
  trafo_tensor *zeros = NULL,
               *tensor = floats(context, (const float[]){1, 2, 3, 4, 5, 6}, 2, shape), *copy = NULL;
  OK(trafo_tensor_new(context, TRAFO_FLOAT32, shape, 2, NULL, 0, &zeros));
  VALUES(zeros, 6, 0, 0, 0, 0, 0, 0);
  int64_t dims[8] = {0};
  int32_t rank = 0, dtype = -1;
  OK(trafo_tensor_get_shape(tensor, dims, 8, &rank));
  CHECK(rank == 2 && dims[0] == 2 && dims[1] == 3);
  dims[1] = 77;
  OK(trafo_tensor_get_shape(tensor, dims, 1, &rank));
  CHECK(rank == 2 && dims[1] == 77);
  OK(trafo_tensor_get_shape(tensor, NULL, 0, &rank));
  OK(trafo_tensor_get_dtype(tensor, &dtype));
  CHECK(dtype == TRAFO_FLOAT32);
  OK(trafo_tensor_clone(tensor, &copy));
  OK(trafo_tensor_write(tensor, (const float[]){9, 9, 9, 9, 9, 9}, 24));
  VALUES(copy, 6, 1, 2, 3, 4, 5, 6);
  FAILS(trafo_tensor_write(tensor, (const float[]){9}, 4), TRAFO_SHAPE_MISMATCH, "24 bytes, got 4");
  float none[1];
  FAILS(trafo_tensor_read(tensor, none, 4), TRAFO_SHAPE_MISMATCH, "24");
  VALUES(tensor, 6, 9, 9, 9, 9, 9, 9);

  trafo_memory_stats stats = {0, 0, 0};
  OK(trafo_context_memory_stats(context, &stats));
  CHECK(stats.peak_bytes >= stats.allocated_bytes && stats.peak_bytes > 0);
  OK(trafo_context_trim_memory(context));
  OK(trafo_context_set_threads(context, 3));
  FAILS(trafo_context_set_threads(context, 0), TRAFO_INVALID_ARGUMENT, "1 to 256");
  OK(trafo_context_set_background_share(context, 0.001));
  OK(trafo_context_set_background_share(context, 1));
  const double wrong[] = {0, -1, 1.5, NAN, INFINITY};
  for (int i = 0; i < 5; ++i)
    FAILS(trafo_context_set_background_share(context, wrong[i]), TRAFO_INVALID_ARGUMENT,
          "0.001 to 1");
}

static void test_memory_directory(void) {
  trafo_context_options options;
  trafo_context* context = NULL;
  OK(trafo_context_options_init(&options, sizeof options));
  options.memory_directory = (trafo_string_view){"/no/such/folder", 15};
  FAILS(trafo_context_new(&options, &context), TRAFO_NOT_FOUND, "/no/such/folder is no directory");
  options.memory_directory = (trafo_string_view){"/tmp", 4};
  OK(trafo_context_new(&options, &context));
  const int64_t shape[] = {5, 1 << 20};
  trafo_tensor* tensor = NULL;
  OK(trafo_tensor_random(context, TRAFO_FLOAT32, shape, 2, TRAFO_UNIFORM, 0, 1, 3, &tensor));
  trafo_tensor_free(tensor);
  trafo_context_free(context);
}

static void test_profiles(trafo_context* context) {
  const int64_t shape[] = {2};
  trafo_tensor *x = floats(context, (const float[]){1, 2}, 1, shape), *y = NULL;
  char *table = NULL, *again = NULL;
  FAILS(trafo_context_profile_write(context, "", 0, &table), TRAFO_INVALID_ARGUMENT, "no profile");
  OK(trafo_context_profile_start(context, 0));
  OK(trafo_op_exp(context, x, &y));
  const char* nowhere = "/no/such/folder/trace.json";
  FAILS(trafo_context_profile_write(context, nowhere, strlen(nowhere), &table), TRAFO_IO,
        "/no/such/folder");
  FAILS(trafo_context_profile_write(context, "a\0b", 3, &table), TRAFO_INVALID_ARGUMENT, "NUL");
  CHECK(table == NULL);
  OK(trafo_context_profile_write(context, NULL, 0, &table));
  CHECK(strstr(table, "exp ") != NULL);
  OK(trafo_context_profile_write(context, NULL, 0, &again));
  CHECK(strcmp(table, again) == 0);
  OK(trafo_context_profile_write(context, NULL, 0, NULL));
  trafo_string_free(table);
  trafo_string_free(again);
  trafo_tensor_free(x);
  trafo_tensor_free(y);
}

static int32_t square_sum(void* user_data, trafo_context* context,
                          const trafo_tensor* const* inputs, size_t input_count,
                          trafo_tensor** outputs, size_t output_count) {
  int* calls = user_data;
  ++*calls;
  trafo_tensor* squared = NULL;
  trafo_error* error = input_count == 1 && output_count == 1
                           ? trafo_op_multiply(context, inputs[0], inputs[0], &squared)
                           : trafo_cancel_new(NULL);
  if (!error) error = trafo_op_sum(context, squared, &outputs[0]);
  trafo_tensor_free(squared);
  const int32_t failed = error != NULL;
  trafo_error_free(error);
  return failed;
}

static int32_t refuses(void* user_data, trafo_context* context, const trafo_tensor* const* inputs,
                       size_t input_count, trafo_tensor** outputs, size_t output_count) {
  (void)user_data, (void)context, (void)inputs, (void)input_count, (void)outputs,
      (void)output_count;
  return 42;
}

static int32_t makes_nothing(void* user_data, trafo_context* context,
                             const trafo_tensor* const* inputs, size_t input_count,
                             trafo_tensor** outputs, size_t output_count) {
  (void)user_data, (void)context, (void)inputs, (void)input_count, (void)outputs,
      (void)output_count;
  return 0;
}

// Uses its context against the rules: backward inside, a nested region, and frees what it only
// borrows.
static int32_t nested(void* user_data, trafo_context* context, const trafo_tensor* const* inputs,
                      size_t input_count, trafo_tensor** outputs, size_t output_count) {
  trafo_error* error = trafo_checkpoint(context, square_sum, user_data, NULL, inputs, input_count,
                                        outputs, output_count);
  const int32_t failed = error != NULL;
  trafo_error_free(error);
  if (!failed) {
    trafo_tensor_free((trafo_tensor*)(uintptr_t)inputs[0]);
    trafo_context_free(context);
  }
  return failed;
}

static int times_freed;
static void count_free(void* user_data) {
  (void)user_data;
  ++times_freed;
}

static void test_autodiff(trafo_context* context) {
  const int64_t shape[] = {3};
  const float start[] = {1, -2, 3};
  trafo_tensor *x = floats(context, start, 1, shape), *y = NULL, *grad = x;
  FAILS(trafo_backward(context, x, NULL), TRAFO_INVALID_ARGUMENT, "does not depend");
  OK(trafo_tensor_set_requires_grad(x, 1));
  OK(trafo_tensor_get_grad(x, &grad));
  CHECK(grad == NULL);
  OK(trafo_op_multiply(context, x, x, &y));
  FAILS(trafo_backward(context, y, NULL), TRAFO_SHAPE_MISMATCH, "needs an upstream gradient");
  FAILS(trafo_tensor_write(y, start, sizeof start), TRAFO_INVALID_ARGUMENT, "result of an op");
  trafo_tensor* upstream = floats(context, (const float[]){1, 1, 0.5f}, 1, shape);
  OK(trafo_backward(context, y, upstream));
  OK(trafo_tensor_get_grad(x, &grad));
  VALUES(grad, 3, 2, -4, 3);
  FAILS(trafo_backward(context, y, upstream), TRAFO_INVALID_ARGUMENT, "already run");
  OK(trafo_tensor_zero_grad(x));
  OK(trafo_tensor_get_grad(x, &grad));
  CHECK(grad == NULL);
  trafo_tensor_free(y);
  trafo_tensor_free(upstream);

  trafo_tensor* detached = NULL;
  int32_t previous = 0;
  OK(trafo_tensor_detach(x, &detached));
  OK(trafo_op_sum(context, detached, &y));
  FAILS(trafo_backward(context, y, NULL), TRAFO_INVALID_ARGUMENT, "does not depend");
  trafo_tensor_free(y);
  trafo_tensor_free(detached);
  OK(trafo_context_set_recording(context, 0, &previous));
  CHECK(previous == 1);
  OK(trafo_op_sum(context, x, &y));
  FAILS(trafo_backward(context, y, NULL), TRAFO_INVALID_ARGUMENT, "does not depend");
  OK(trafo_context_set_recording(context, 1, NULL));
  trafo_tensor_free(y);

  int calls = 0;
  const trafo_tensor* inputs[] = {x};
  OK(trafo_checkpoint(context, square_sum, &calls, count_free, inputs, 1, &y, 1));
  CHECK(calls == 1 && times_freed == 0);
  OK(trafo_backward(context, y, NULL));
  CHECK(calls == 2);
  trafo_tensor_free(y);
  CHECK(times_freed == 1);
  OK(trafo_tensor_get_grad(x, &grad));
  VALUES(grad, 3, 2, -4, 6);
  OK(trafo_tensor_zero_grad(x));
  OK(trafo_checkpoint(context, nested, &calls, NULL, inputs, 1, &y, 1));
  OK(trafo_backward(context, y, NULL));
  trafo_tensor_free(y);
  OK(trafo_tensor_get_grad(x, &grad));
  VALUES(grad, 3, 2, -4, 6);

  FAILS(trafo_checkpoint(context, refuses, NULL, count_free, inputs, 1, &y, 1), TRAFO_CANCELLED,
        "42");
  CHECK(times_freed == 2 && y == NULL);
  FAILS(trafo_checkpoint(context, makes_nothing, NULL, count_free, inputs, 1, &y, 1),
        TRAFO_INVALID_ARGUMENT, "output");
  FAILS(trafo_checkpoint(context, NULL, NULL, count_free, inputs, 1, &y, 1), TRAFO_INVALID_ARGUMENT,
        "region is NULL");
  FAILS(trafo_checkpoint(NULL, square_sum, NULL, count_free, inputs, 1, &y, 1),
        TRAFO_INVALID_ARGUMENT, "context");
  CHECK(times_freed == 5);

  trafo_tensor* wide = NULL;
  trafo_gradcheck_result result;
  char* message = NULL;
  OK(trafo_op_cast(context, x, TRAFO_FLOAT64, &wide));
  const trafo_tensor* doubles[] = {wide};
  OK(trafo_gradcheck(context, square_sum, &calls, doubles, 1, 1, 1e-6, 1e-5, 1e-3, &result,
                     &message));
  CHECK(result.ok && result.checked == 3 && message && message[0] == '\0');
  trafo_string_free(message);
  FAILS(trafo_gradcheck(context, refuses, NULL, doubles, 1, 1, 1e-6, 1e-5, 1e-3, &result, &message),
        TRAFO_CANCELLED, "42");
  CHECK(message == NULL && result.checked == 0);
  trafo_tensor_free(wide);

  // 200 steps of AdamW on |x|^2.
  trafo_adamw_options options;
  trafo_adamw *optimizer = NULL, *second = NULL;
  OK(trafo_adamw_options_init(&options, sizeof options));
  options.clip_norm = 1;
  trafo_tensor* twice[] = {x, x};
  FAILS(trafo_adamw_new(context, twice, 2, &options, &optimizer), TRAFO_INVALID_ARGUMENT, "twice");
  OK(trafo_adamw_new(context, &x, 1, &options, &optimizer));
  double norm = 0;
  for (int i = 0; i < 200; ++i) {
    OK(trafo_checkpoint(context, square_sum, &calls, NULL, inputs, 1, &y, 1));
    OK(trafo_backward(context, y, NULL));
    OK(trafo_adamw_step(optimizer, 0.05, &norm));
    trafo_tensor_free(y);
  }
  float end[3];
  OK(trafo_tensor_read(x, end, sizeof end));
  CHECK(fabsf(end[0]) < 0.1f && fabsf(end[1]) < 0.1f && fabsf(end[2]) < 0.1f);
  OK(trafo_tensor_set_requires_grad(x, 0));
  OK(trafo_adamw_step(optimizer, 0.05, &norm));
  FAILS(trafo_adamw_step(optimizer, -1, NULL), TRAFO_INVALID_ARGUMENT, "learning_rate");
  FAILS(trafo_adamw_new(context, &x, 1, NULL, &second), TRAFO_INVALID_ARGUMENT, "leaf");
  trafo_tensor_free(x);
  trafo_adamw_free(optimizer);
}

int main(void) {
  test_errors_and_handles();
  trafo_context* context = new_context(2);
  test_tensors(context);
  test_profiles(context);
  test_memory_directory();
  test_autodiff(context);
  trafo_context_free(context);
  test_handles();
  test_ops();
  test_adamw();
  test_options();
  test_training();
  test_bad_input();
  test_dlpack();
  test_callbacks();
  test_edges();
  test_freezing();
  test_states_and_logits();
  test_ids();
  test_generation();
  test_cancelling();
  test_progress();
  test_own_networks();
  test_groups();
  test_fields();
  nftw(work_directory(), remove_entry, 8, FTW_DEPTH | FTW_PHYS);
  printf("%d passed, %d failed\n", checks_passed, checks_failed);
  return checks_failed != 0;
}
