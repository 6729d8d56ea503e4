/* A custom network: two layers learn exclusive or. Its last input column is always 1, in place of a
 * bias. */
#include "guide.h"

static trafo_tensor* parameter(trafo_context* context, int64_t rows, int64_t columns,
                               uint32_t seed) {
  const int64_t shape[] = {rows, columns};
  float values[64];
  for (int64_t i = 0; i < rows * columns; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / (1 << 23) - 1; /* -1 to 1 */
  }
  trafo_tensor* tensor = NULL;
  must(trafo_tensor_new(context, TRAFO_FLOAT32, shape, 2, values,
                        (size_t)(rows * columns) * sizeof(float), &tensor));
  must(trafo_tensor_set_requires_grad(tensor, 1));
  return tensor;
}

int main(void) {
  trafo_context* context = NULL;
  must(trafo_context_new(NULL, &context));
  const int64_t inputs_shape[] = {4, 3}, labels_shape[] = {4};
  const float inputs_values[] = {0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1};
  const int32_t labels_values[] = {0, 1, 1, 0};
  trafo_tensor *inputs = NULL, *labels = NULL;
  must(trafo_tensor_new(context, TRAFO_FLOAT32, inputs_shape, 2, inputs_values,
                        sizeof inputs_values, &inputs));
  must(trafo_tensor_new(context, TRAFO_INT32, labels_shape, 1, labels_values, sizeof labels_values,
                        &labels));

  trafo_tensor* parameters[] = {parameter(context, 16, 3, 1), parameter(context, 2, 16, 2)};
  trafo_adamw* optimizer = NULL;
  must(trafo_adamw_new(context, parameters, 2, NULL, &optimizer));

  float loss_value = 0;
  for (int step = 0; step < 200; ++step) {
    trafo_tensor *product = NULL, *hidden = NULL, *logits = NULL, *loss = NULL;
    must(trafo_op_linear(context, inputs, parameters[0], NULL, &product));
    must(trafo_op_tanh(context, product, &hidden));
    must(trafo_op_linear(context, hidden, parameters[1], NULL, &logits));
    must(trafo_op_cross_entropy(context, logits, labels, NULL, &loss, NULL));
    must(trafo_tensor_read(loss, &loss_value, sizeof loss_value));
    must(trafo_backward(context, loss, NULL));
    must(trafo_adamw_step(optimizer, 0.05, NULL)); /* sets the gradients to zero */
    trafo_tensor_free(product);
    trafo_tensor_free(hidden);
    trafo_tensor_free(logits);
    trafo_tensor_free(loss);
  }
  printf("loss %g\n", loss_value);

  trafo_adamw_free(optimizer);
  trafo_tensor_free(parameters[0]);
  trafo_tensor_free(parameters[1]);
  trafo_tensor_free(inputs);
  trafo_tensor_free(labels);
  trafo_context_free(context);
  return loss_value < 0.01f ? 0 : 1;
}
