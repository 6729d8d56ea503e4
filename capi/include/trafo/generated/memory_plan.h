/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_MEMORY_PLAN_H
#define TRAFO_GENERATED_MEMORY_PLAN_H

/* Memory that training takes on a CUDA device, in bytes, known without training and without the device. */
typedef struct trafo_memory_plan {
  size_t struct_size;
  int64_t weights_bytes; /* Weights, with the float32 master weights of a bfloat16 model. */
  int64_t gradients_bytes; /* Gradients. */
  int64_t optimizer_bytes; /* The moments, and the EMA of the weights if ema_alpha is set. */
  int64_t activations_bytes; /* Activations and temporary memory of forward and backward. */
  int64_t total_bytes; /* Expected peak of the memory in use, the batch included. */
  int64_t batch_tokens; /* Target tokens of the batch: the given number, or the largest that fits. */
  int64_t limit_bytes; /* Memory that training may use; 0: unknown. */
  int64_t device_bytes; /* Total memory of the device; 0: the device was not asked. */
  int64_t free_bytes; /* Free memory of the device before training; 0: the device was not asked. */
  int64_t teacher_bytes; /* The weights of the teacher; 0 without one. */
} trafo_memory_plan;

#endif /* TRAFO_GENERATED_MEMORY_PLAN_H */
