/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_CROSS_ENTROPY_OPTIONS_H
#define TRAFO_GENERATED_CROSS_ENTROPY_OPTIONS_H

typedef struct trafo_cross_entropy_options {
  size_t struct_size;
  double label_smoothing; /* Mass spread over all classes. Default 0. */
  int32_t ignore_label; /* Rows with this label do not count. Default -100. */
  /* TRAFO_REDUCE_*. How rows are put together. The mean is divided by the sum of the weights that count. Default
   * TRAFO_REDUCE_MEAN. */
  int32_t reduction;
  /* [T], a weight for each row, of the logits' dtype (float32 for bfloat16). Without them all are 1. No gradient. Default NULL.
   * */
  const trafo_tensor *weights;
  /* [V], a weight for each class, of the same dtype. Without them all are 1. The term of class v in a row's loss is multiplied
   * by the weight of v, and a row counts with the weight of its label. No gradient. The linear cross-entropy takes them without
   * smoothing only. Default NULL. */
  const trafo_tensor *class_weights;
} trafo_cross_entropy_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_cross_entropy_options_init(trafo_cross_entropy_options *options,
                                                                       size_t struct_size);

#endif /* TRAFO_GENERATED_CROSS_ENTROPY_OPTIONS_H */
