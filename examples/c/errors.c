/* An error that the program expects: its code, the op that refused, and the message. */
#include "guide.h"

int main(void) {
  trafo_context* context = NULL;
  trafo_tensor *a = NULL, *b = NULL, *sum = NULL;
  const int64_t three[] = {3}, four[] = {4};
  must(trafo_context_new(NULL, &context));
  must(trafo_tensor_new(context, TRAFO_FLOAT32, three, 1, NULL, 0, &a)); /* zeros */
  must(trafo_tensor_new(context, TRAFO_FLOAT32, four, 1, NULL, 0, &b));
  trafo_error* error = trafo_op_add(context, a, b, &sum);
  if (trafo_error_code(error) != TRAFO_SHAPE_MISMATCH || sum != NULL) return 1;
  printf("%s in %s: %s\n", trafo_error_code_name(trafo_error_code(error)),
         trafo_error_origin(error), trafo_error_message(error));
  trafo_error_free(error);
  trafo_tensor_free(a);
  trafo_tensor_free(b);
  trafo_context_free(context);
  return 0;
}
