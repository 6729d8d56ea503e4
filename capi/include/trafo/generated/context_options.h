/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_CONTEXT_OPTIONS_H
#define TRAFO_GENERATED_CONTEXT_OPTIONS_H

typedef struct trafo_context_options {
  size_t struct_size;
  int32_t device; /* TRAFO_DEVICE_*. The device that computes. Default TRAFO_DEVICE_CPU. */
  int32_t device_index; /* 0 for CPU and AUTO. Default 0. */
  int32_t threads; /* Host threads that compute, 1 to 256; 0: one a core. Does not change results. Default 0. */
  int32_t fused_kernels; /* 1: ops run fused kernels; otherwise every op runs its unfused reference. Default 1. */
  int32_t graphs; /* 1: training steps on CUDA are replayed as CUDA graphs. Does not change results. Default 1. */
  /* TRAFO_*. TRAFO_FLOAT32 or TRAFO_BFLOAT16: what GEMMs of float32 tensors multiply on the CPU, forward and backward. With
   * bfloat16, both operands are rounded to it. Products are exact; sums, results, weights and all else are float32. GEMMs with
   * few rows and translating stay float32. UNSUPPORTED: bfloat16 on CUDA, where models compute in bfloat16, and on a processor
   * without AVX512-BF16. Default TRAFO_FLOAT32. */
  int32_t matmul_precision;
  /* Below 1, calls on the context are in the background: while calls on other contexts of the process are in flight, they
   * compute this share of the time, at least 0.001. CPU only. Does not change results. Default 1. */
  double background_share;
  /* A directory for memory: tensors of at least 16 MiB lie in files without names there, which the system pages in and out. For
   * import, export and quantization of models that are larger than the machine's memory; all parameters are frozen at first.
   * Empty: none. CPU only. Does not change results. Default empty. */
  trafo_string_view memory_directory;
} trafo_context_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_context_options_init(trafo_context_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_CONTEXT_OPTIONS_H */
