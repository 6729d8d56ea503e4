// The file of an optimizer: training goes on from it with the same bits; what does not fit changes
// nothing.
#include "capi_check.h"

enum { kRows = 3, kColumns = 4, kElements = kRows * kColumns };

// Two matrices and their optimizer.
typedef struct Network {
  trafo_tensor* parameters[2];
  trafo_adamw* optimizer;
} Network;

static Network new_network(trafo_context* context, int64_t columns, int32_t count) {
  Network n = {{NULL, NULL}, NULL};
  const int64_t shape[] = {kRows, columns};
  float values[2 * kElements];
  for (int i = 0; i < 2 * kElements; ++i) values[i] = sinf((float)(i + 1));
  for (int i = 0; i < count; ++i) {
    n.parameters[i] = floats(context, values + i, 2, shape);
    OK(trafo_tensor_set_requires_grad(n.parameters[i], 1));
  }
  OK(trafo_adamw_new(context, n.parameters, (size_t)count, NULL, &n.optimizer));
  return n;
}

static void free_network(Network* n) {
  trafo_adamw_free(n->optimizer);
  trafo_tensor_free(n->parameters[0]);
  trafo_tensor_free(n->parameters[1]);
}

// One update of |a|^2 b.
static void update(trafo_context* context, Network* n) {
  trafo_tensor *square = NULL, *product = NULL, *sum = NULL;
  OK(trafo_op_multiply(context, n->parameters[0], n->parameters[0], &square));
  OK(trafo_op_multiply(context, square, n->parameters[1], &product));
  OK(trafo_op_sum(context, product, &sum));
  OK(trafo_backward(context, sum, NULL));
  OK(trafo_adamw_step(n->optimizer, 0.03, NULL));
  trafo_tensor_free(square);
  trafo_tensor_free(product);
  trafo_tensor_free(sum);
}

static int equal(const Network* a, const Network* b) {
  float left[kElements], right[kElements];
  for (int i = 0; i < 2; ++i) {
    OK(trafo_tensor_read(a->parameters[i], left, sizeof left));
    OK(trafo_tensor_read(b->parameters[i], right, sizeof right));
    if (memcmp(left, right, sizeof left) != 0) return 0;
  }
  return 1;
}

// The load fails, and the parameters have the values they had.
static void refused(Network* n, const char* path, int32_t code, const char* text) {
  float before[kRows * 5], after[kRows * 5];
  size_t bytes = 0;
  int64_t shape[2];
  int32_t rank = 0;
  OK(trafo_tensor_get_shape(n->parameters[0], shape, 2, &rank));
  bytes = (size_t)(shape[0] * shape[1]) * sizeof(float);
  OK(trafo_tensor_read(n->parameters[0], before, bytes));
  FAILS(trafo_adamw_load(n->optimizer, path, strlen(path)), code, text);
  OK(trafo_tensor_read(n->parameters[0], after, bytes));
  CHECK(memcmp(before, after, bytes) == 0);
}

void test_adamw(void) {
  trafo_context* context = new_context(1);
  const char* path = work_path("adamw.safetensors");
  Network whole = new_network(context, kColumns, 2), later = new_network(context, kColumns, 2);
  for (int i = 0; i < 3; ++i) update(context, &whole);
  OK(trafo_adamw_save(whole.optimizer, path, strlen(path)));
  CHECK(!equal(&whole, &later));
  update(context, &later);  // what is not in the file is forgotten
  OK(trafo_adamw_load(later.optimizer, path, strlen(path)));
  CHECK(equal(&whole, &later));
  for (int i = 0; i < 4; ++i) {
    update(context, &whole);
    update(context, &later);
    CHECK(equal(&whole, &later));
  }

  // Another number of parameters, another shape, no file, a damaged one, a file of something else.
  Network single = new_network(context, kColumns, 1), wide = new_network(context, 5, 2);
  refused(&single, path, TRAFO_SHAPE_MISMATCH, "is of 2 parameters, the optimizer has 1");
  refused(&wide, path, TRAFO_SHAPE_MISMATCH, "parameter.0 is [3, 4] float32");
  refused(&later, work_path("none.safetensors"), TRAFO_NOT_FOUND, "none.safetensors");
  size_t bytes = 0;
  uint8_t* data = read_file(path, &bytes);
  for (size_t at = 0; at < bytes; at += 1 + bytes / 16) {
    const char* damaged = work_path("adamw-damaged");
    data[at] ^= 0x40;
    write_file(damaged, data, bytes);
    data[at] ^= 0x40;
    refused(&later, damaged, TRAFO_CORRUPT_FILE, "");
  }
  const char* torn = work_path("adamw-torn");
  write_file(torn, data, bytes - 1);
  refused(&later, torn, TRAFO_CORRUPT_FILE, "");
  free(data);
  FAILS(trafo_adamw_save(later.optimizer, "no/such/folder/file", 19), TRAFO_IO, "");
  FAILS(trafo_adamw_load(NULL, path, strlen(path)), TRAFO_INVALID_ARGUMENT, "optimizer");
  update(context, &whole);
  update(context, &later);
  CHECK(equal(&whole, &later));

  free_network(&whole);
  free_network(&later);
  free_network(&single);
  free_network(&wide);
  trafo_context_free(context);
}
