/* Another project's program in C11: adds two tensors with the installed library. */
#include <stdio.h>
#include <string.h>

#include <trafo.h>

static int failed(trafo_error* error) {
  if (error == NULL) return 0;
  fprintf(stderr, "%s: %s\n", trafo_error_origin(error), trafo_error_message(error));
  trafo_error_free(error);
  return 1;
}

int main(void) {
  const int64_t shape[] = {2};
  const float values[] = {1, 2};
  float sums[2] = {0, 0};
  trafo_context* context = NULL;
  trafo_tensor *a = NULL, *b = NULL;
  const int bad =
      trafo_abi_version() != TRAFO_ABI_VERSION || failed(trafo_context_new(NULL, &context)) ||
      failed(trafo_tensor_new(context, TRAFO_FLOAT32, shape, 1, values, sizeof values, &a)) ||
      failed(trafo_op_add(context, a, a, &b)) || failed(trafo_tensor_read(b, sums, sizeof sums)) ||
      sums[0] != 2 || sums[1] != 4;
  trafo_tensor_free(a);
  trafo_tensor_free(b);
  trafo_context_free(context);
  if (!bad) printf("trafo %s\n", trafo_version());
  return bad;
}
