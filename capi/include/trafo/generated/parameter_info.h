/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_PARAMETER_INFO_H
#define TRAFO_GENERATED_PARAMETER_INFO_H

/* How a parameter of a model is trained. */
typedef struct trafo_parameter_info {
  size_t struct_size;
  const char *name; /* Its name in the file. Borrowed from the model. */
  const char *group; /* "matrices", "norms_and_biases", or a group that the model has declared. Borrowed from the model. */
  int64_t elements; /* Number of weights. */
  int32_t dtype; /* Type of the values: int8 of quantized weights. */
  int32_t trainable; /* 1: training changes it; otherwise it is frozen. */
  double lr_factor; /* Multiplied with the learning rate. */
  double weight_decay_factor; /* Multiplied with the weight decay. */
  int64_t rows; /* Rows of a matrix; 1: a vector. */
  int64_t columns; /* Elements of a row. */
  /* Bits of an element in files: 4 of an int4 matrix, whose dtype is int8, and 8 or 4 of a matrix in base_precision, whose
   * dtype is that of the computation. */
  int64_t bits;
  double signal_to_noise; /* Signal-to-noise ratio of a matrix after quantization, in dB; NaN: not known. */
} trafo_parameter_info;

#endif /* TRAFO_GENERATED_PARAMETER_INFO_H */
