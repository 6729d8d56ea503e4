/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_DEVICE_INFO_H
#define TRAFO_GENERATED_DEVICE_INFO_H

/* Description of a device. */
typedef struct trafo_device_info {
  size_t struct_size;
  int64_t memory_bytes; /* Total memory of the device; of the machine for the CPU. */
  int32_t compute_major; /* CUDA: the compute capability; 0 for the CPU. */
  int32_t compute_minor; /* Its second number. */
  char name[128]; /* "NVIDIA H200"; "CPU". */
  /* CPU: what multiplies int8 weights: "avx512-vnni", "avx-vnni", "avx2", "neon-dot", "neon" or "portable"; empty for a GPU. */
  char int8_kernel[32];
} trafo_device_info;

#endif /* TRAFO_GENERATED_DEVICE_INFO_H */
