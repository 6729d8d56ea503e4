// Tensors of other libraries in, tensors for other libraries out: DLPack.
#include "capi_check.h"
#include "dlpack_layout.h"

typedef struct DLManagedTensorVersioned managed_tensor;

static int deleted;
static void count_deleted(managed_tensor* managed) {
  ++*(int*)managed->manager_ctx;
}

static managed_tensor make_managed(void* data, int32_t ndim, int64_t* shape, int64_t* strides) {
  const managed_tensor managed = {
      .major = 1,
      .manager_ctx = &deleted,
      .deleter = count_deleted,
      .data = data,
      .device_type = 1,
      .ndim = ndim,
      .code = 2,
      .bits = 32,
      .lanes = 1,
      .shape = shape,
      .strides = strides,
  };
  deleted = 0;
  return managed;
}

static trafo_tensor* take(trafo_context* context, managed_tensor* managed, int32_t copy) {
  trafo_tensor* tensor = NULL;
  OK(trafo_tensor_from_dlpack(context, managed, copy, &tensor));
  return tensor;
}

// Shared memory is the same memory, and its deleter runs once, after the last tensor on it.
static void test_sharing(trafo_context* context) {
  float values[] = {0, 1, 2, 3, 4, 5};
  int64_t shape[] = {2, 3};
  managed_tensor managed = make_managed(values, 2, shape, NULL);
  trafo_tensor* tensor = take(context, &managed, TRAFO_COPY_NEVER);
  trafo_tensor *other = NULL, *twice = NULL, *part = NULL;
  values[5] = 50;
  OK(trafo_op_scale(context, tensor, 2, &twice));
  VALUES(twice, 6, 0, 2, 4, 6, 8, 100);
  const float written[] = {9, 8, 7, 6, 5, 4};
  OK(trafo_tensor_write(tensor, written, sizeof written));
  CHECK(values[0] == 9 && values[5] == 4);
  OK(trafo_tensor_detach(tensor, &other));
  OK(trafo_op_slice(context, tensor, 0, 1, 2, &part));
  trafo_tensor_free(tensor);
  trafo_tensor_free(other);
  CHECK(deleted == 0);
  VALUES(part, 3, 6, 5, 4);
  CHECK(deleted == 1);

  // A gradient of it is Trafo's own memory; the tape keeps the memory until it is walked.
  managed = make_managed(values, 2, shape, NULL);
  trafo_tensor *square = NULL, *sum = NULL, *grad = NULL;
  tensor = take(context, &managed, TRAFO_COPY_IF_NEEDED);
  OK(trafo_tensor_set_requires_grad(tensor, 1));
  OK(trafo_op_multiply(context, tensor, tensor, &square));
  OK(trafo_op_sum(context, square, &sum));
  OK(trafo_backward(context, sum, NULL));
  OK(trafo_tensor_get_grad(tensor, &grad));
  VALUES(grad, 6, 18, 16, 14, 12, 10, 8);
  trafo_tensor_free(square);
  trafo_tensor_free(sum);
  CHECK(deleted == 0);
  trafo_tensor_free(tensor);
  CHECK(deleted == 1);

  // Strides of columns, an offset, a NULL deleter.
  int64_t strides[] = {1, 3}, columns[] = {2, 2};
  managed = make_managed(values, 2, columns, strides);
  managed.byte_offset = sizeof(float);
  managed.deleter = NULL;
  VALUES(take(context, &managed, TRAFO_COPY_NEVER), 4, 8, 5, 7, 4);
}

static void test_copying(trafo_context* context) {
  float values[] = {0, 1, 2, 3, 4, 5};
  int64_t shape[] = {2, 3}, backwards[] = {-3, 1}, repeated[] = {0, 1}, empty[] = {0, 3};
  managed_tensor managed = make_managed(values, 2, shape, NULL);
  trafo_tensor *tensor = take(context, &managed, TRAFO_COPY_ALWAYS), *none = NULL;
  CHECK(deleted == 1);
  values[0] = 7;
  VALUES(tensor, 6, 0, 1, 2, 3, 4, 5);
  values[0] = 0;

  managed = make_managed(values, 2, shape, NULL);
  managed.flags = 1;
  FAILS(trafo_tensor_from_dlpack(context, &managed, TRAFO_COPY_NEVER, &none), TRAFO_UNSUPPORTED,
        "read-only");
  CHECK(deleted == 0 && none == NULL);
  tensor = take(context, &managed, TRAFO_COPY_IF_NEEDED);
  CHECK(deleted == 1);
  VALUES(tensor, 6, 0, 1, 2, 3, 4, 5);

  managed = make_managed(values + 3, 2, shape, backwards);
  FAILS(trafo_tensor_from_dlpack(context, &managed, TRAFO_COPY_NEVER, &none), TRAFO_UNSUPPORTED,
        "negative");
  VALUES(take(context, &managed, TRAFO_COPY_IF_NEEDED), 6, 3, 4, 5, 0, 1, 2);
  managed = make_managed(values, 2, shape, repeated);
  FAILS(trafo_tensor_from_dlpack(context, &managed, TRAFO_COPY_NEVER, &none), TRAFO_UNSUPPORTED,
        "stride is 0");
  VALUES(take(context, &managed, TRAFO_COPY_IF_NEEDED), 6, 0, 1, 2, 0, 1, 2);
  int64_t overlapping[] = {1, 1};
  managed = make_managed(values, 2, shape, overlapping);
  FAILS(trafo_tensor_from_dlpack(context, &managed, TRAFO_COPY_NEVER, &none), TRAFO_UNSUPPORTED,
        "strides overlap");
  VALUES(take(context, &managed, TRAFO_COPY_IF_NEEDED), 6, 0, 1, 2, 1, 2, 3);

  char bytes[sizeof values + 1];
  memcpy(bytes + 1, values, sizeof values);
  managed = make_managed(bytes, 2, shape, NULL);
  managed.byte_offset = 1;
  if (((uintptr_t)(bytes + 1)) % sizeof(float) == 0)
    managed.byte_offset = 0;
  else
    FAILS(trafo_tensor_from_dlpack(context, &managed, TRAFO_COPY_NEVER, &none), TRAFO_UNSUPPORTED,
          "aligned");
  if (managed.byte_offset == 1)
    VALUES(take(context, &managed, TRAFO_COPY_IF_NEEDED), 6, 0, 1, 2, 3, 4, 5);

  // The stride of an axis of one element says nothing.
  int64_t row[] = {1, 6}, any[] = {INT64_MIN, 1};
  managed = make_managed(values, 2, row, any);
  VALUES(take(context, &managed, TRAFO_COPY_NEVER), 6, 0, 1, 2, 3, 4, 5);
  managed = make_managed(values, 2, row, any);
  VALUES(take(context, &managed, TRAFO_COPY_ALWAYS), 6, 0, 1, 2, 3, 4, 5);

  managed = make_managed(NULL, 2, empty, NULL);
  tensor = take(context, &managed, TRAFO_COPY_NEVER);
  CHECK(deleted == 1);
  OK(trafo_tensor_read(tensor, NULL, 0));
  trafo_tensor_free(tensor);
}

// A refused tensor stays the caller's: its deleter is not called.
static void test_refusals(trafo_context* context) {
  float values[] = {1, 2};
  int64_t shape[] = {2}, negative[] = {-1}, huge[] = {INT64_MAX, INT64_MAX}, steps[] = {INT64_MAX};
  const managed_tensor good = make_managed(values, 1, shape, NULL);
  trafo_tensor* out = NULL;
  managed_tensor bad;
#define REFUSED(code, text)                                                                 \
  do {                                                                                      \
    FAILS(trafo_tensor_from_dlpack(context, &bad, TRAFO_COPY_IF_NEEDED, &out), code, text); \
    CHECK(out == NULL && deleted == 0);                                                     \
  } while (0)
  bad = good, bad.major = 2;
  REFUSED(TRAFO_VERSION, "2.0");
  bad = good, bad.major = 0;
  REFUSED(TRAFO_VERSION, "0.0");
  bad = good, bad.code = 0, bad.bits = 64;
  REFUSED(TRAFO_UNSUPPORTED, "float32");
  bad = good, bad.lanes = 2;
  REFUSED(TRAFO_UNSUPPORTED, "lanes");
  bad = good, bad.device_type = 10;
  REFUSED(TRAFO_UNSUPPORTED, "device type 10");
  bad = good, bad.device_type = 2;
  REFUSED(TRAFO_UNSUPPORTED, "CUDA device 0");
  bad = good, bad.data = NULL;
  REFUSED(TRAFO_INVALID_ARGUMENT, "no data");
  bad = good, bad.ndim = 9;
  REFUSED(TRAFO_INVALID_ARGUMENT, "rank");
  bad = good, bad.ndim = -1;
  REFUSED(TRAFO_INVALID_ARGUMENT, "rank");
  bad = good, bad.shape = NULL;
  REFUSED(TRAFO_INVALID_ARGUMENT, "shape");
  bad = good, bad.shape = negative;
  REFUSED(TRAFO_SHAPE_MISMATCH, "negative");
  bad = good, bad.ndim = 2, bad.shape = huge;
  CHECK(trafo_error_code(NULL) == TRAFO_OK);
  trafo_error* error = trafo_tensor_from_dlpack(context, &bad, TRAFO_COPY_IF_NEEDED, &out);
  CHECK(error != NULL && out == NULL && deleted == 0);
  trafo_error_free(error);
  bad = good, bad.strides = steps;
  error = trafo_tensor_from_dlpack(context, &bad, TRAFO_COPY_IF_NEEDED, &out);
  CHECK(error != NULL && out == NULL && deleted == 0);
  trafo_error_free(error);
  // Steps whose sums are no numbers, where one of them alone is.
  int64_t square[] = {2, 2}, far[] = {INT64_MAX / 8, INT64_MAX / 8}, back[] = {1, INT64_MIN};
  bad = good, bad.ndim = 2, bad.shape = square, bad.strides = far;
  REFUSED(TRAFO_INVALID_ARGUMENT, "overflows");
  bad.strides = back;
  REFUSED(TRAFO_INVALID_ARGUMENT, "overflows");
  bad = good;
  FAILS(trafo_tensor_from_dlpack(context, &bad, 3, &out), TRAFO_INVALID_ARGUMENT, "COPY");
  FAILS(trafo_tensor_from_dlpack(context, NULL, 0, &out), TRAFO_INVALID_ARGUMENT, "managed");
#undef REFUSED
}

// A loan keeps the memory after tensor and context are gone, and both sides see what is written.
static void test_lending(void) {
  trafo_context* context = new_context(1);
  const int64_t shape[] = {2, 3};
  const float values[] = {0, 1, 2, 3, 4, 5};
  trafo_tensor *tensor = floats(context, values, 2, shape), *turned = NULL;
  managed_tensor *managed = NULL, *second = NULL;
  OK(trafo_op_transpose(context, tensor, 0, 1, &turned));
  OK(trafo_tensor_to_dlpack(turned, &managed));
  OK(trafo_tensor_to_dlpack(tensor, &second));
  CHECK(managed->major == 1 && managed->flags == 0 && managed->byte_offset == 0);
  CHECK(managed->device_type == 1 && managed->device_id == 0 && managed->ndim == 2);
  CHECK(managed->code == 2 && managed->bits == 32 && managed->lanes == 1);
  CHECK(managed->shape[0] == 3 && managed->shape[1] == 2);
  CHECK(managed->strides[0] == 1 && managed->strides[1] == 3);
  CHECK(managed->data == second->data);
  ((float*)second->data)[4] = 40;
  float seen[6];
  OK(trafo_tensor_read(turned, seen, sizeof seen));
  CHECK(seen[3] == 40);
  second->deleter(second);
  trafo_tensor_free(tensor);
  trafo_tensor_free(turned);
  trafo_context_free(context);
  CHECK(((float*)managed->data)[5] == 5);

  // Its own loan comes back as the same memory; the deleter of the loan is the last release.
  context = new_context(1);
  float* memory = managed->data;
  trafo_tensor* back = NULL;
  OK(trafo_tensor_from_dlpack(context, managed, TRAFO_COPY_NEVER, &back));
  memory[0] = -1;
  VALUES(back, 6, -1, 3, 1, 40, 2, 5);
  trafo_context_free(context);
}

// A loan that comes back into its context is the same memory to autodiff: what is written through
// one tensor is noticed by what the other has been given to.
static void test_loan_and_backward(trafo_context* context) {
  const int64_t shape[] = {2};
  const float values[] = {1, 2}, other[] = {3, 4};
  trafo_tensor *x = floats(context, values, 1, shape), *back = NULL, *square = NULL, *sum = NULL,
               *grad = NULL;
  managed_tensor* managed = NULL;
  OK(trafo_tensor_set_requires_grad(x, 1));
  OK(trafo_tensor_to_dlpack(x, &managed));
  float* memory = managed->data;
  OK(trafo_tensor_from_dlpack(context, managed, TRAFO_COPY_NEVER, &back));
  OK(trafo_op_multiply(context, x, x, &square));
  OK(trafo_op_sum(context, square, &sum));
  OK(trafo_tensor_write(back, other, sizeof other));
  FAILS(trafo_backward(context, sum, NULL), TRAFO_INVALID_ARGUMENT, "multiply needs a,");
  trafo_tensor_free(square);
  trafo_tensor_free(sum);

  // A write of another library is invisible until it is told of.
  OK(trafo_op_multiply(context, x, x, &square));
  OK(trafo_op_sum(context, square, &sum));
  memory[0] = 9;
  OK(trafo_tensor_mark_written(back));
  FAILS(trafo_backward(context, sum, NULL), TRAFO_INVALID_ARGUMENT, "multiply needs a,");
  trafo_tensor_free(square);
  trafo_tensor_free(sum);
  trafo_tensor_free(x);

  // The memory is alive as long as one of them.
  OK(trafo_op_multiply(context, back, back, &square));
  VALUES(square, 2, 81, 16);
  OK(trafo_tensor_get_grad(back, &grad));
  CHECK(grad == NULL);
  trafo_tensor_free(back);
}

// Lending and taking on a card, where there is one.
static void test_cuda(void) {
  int32_t count = 0;
  OK(trafo_device_count(TRAFO_DEVICE_CUDA, &count, NULL));
  if (count == 0) {
    const char* notes = getenv("TRAFO_SKIPS");  // tests/tools/skipped_tests.py
    FILE* file = notes ? fopen(notes, "a") : NULL;
    if (file) {
      fprintf(file, "DLPack on CUDA: there is no device\n");
      fclose(file);
    }
    return;
  }
  trafo_context_options options;
  trafo_context *context = NULL, *host = new_context(1);
  OK(trafo_context_options_init(&options, sizeof options));
  options.device = TRAFO_DEVICE_CUDA;
  OK(trafo_context_new(&options, &context));
  float values[] = {0, 1, 2, 3, 4, 5};
  int64_t shape[] = {2, 3};
  managed_tensor managed = make_managed(values, 2, shape, NULL), *lent = NULL;
  trafo_tensor *tensor = NULL, *turned = NULL, *same = NULL, *copy = NULL;
  FAILS(trafo_tensor_from_dlpack(context, &managed, TRAFO_COPY_NEVER, &tensor), TRAFO_UNSUPPORTED,
        "host's");
  tensor = take(context, &managed, TRAFO_COPY_IF_NEEDED);
  CHECK(deleted == 1);
  OK(trafo_op_transpose(context, tensor, 0, 1, &turned));
  OK(trafo_tensor_to_dlpack(turned, &lent));
  CHECK(lent->device_type == 2 && lent->device_id == 0 && lent->strides[1] == 3);
  FAILS(trafo_tensor_from_dlpack(host, lent, TRAFO_COPY_IF_NEEDED, &same), TRAFO_UNSUPPORTED,
        "CUDA device 0");
  OK(trafo_tensor_from_dlpack(context, lent, TRAFO_COPY_NEVER, &same));
  OK(trafo_tensor_to_dlpack(turned, &lent));
  OK(trafo_tensor_from_dlpack(context, lent, TRAFO_COPY_ALWAYS, &copy));
  const float written[] = {5, 4, 3, 2, 1, 0};
  OK(trafo_tensor_write(tensor, written, sizeof written));
  trafo_tensor_free(tensor);
  trafo_tensor_free(turned);
  VALUES(same, 6, 5, 2, 4, 1, 3, 0);
  VALUES(copy, 6, 0, 3, 1, 4, 2, 5);
  trafo_context_free(context);
  trafo_context_free(host);
}

void test_dlpack(void) {
  trafo_context* context = new_context(2);
  test_sharing(context);
  test_copying(context);
  test_refusals(context);
  test_loan_and_backward(context);
  trafo_context_free(context);
  test_lending();
  test_cuda();
}
