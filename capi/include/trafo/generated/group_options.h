/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_GROUP_OPTIONS_H
#define TRAFO_GENERATED_GROUP_OPTIONS_H

/* One rank of a group. */
typedef struct trafo_group_options {
  size_t struct_size;
  int32_t rank; /* 0 to size - 1. Default 0. */
  int32_t size; /* Number of ranks. With MPI, rank -1 and size 0 mean MPI_COMM_WORLD's. Default 1. */
  int32_t transport; /* TRAFO_TRANSPORT_*. The transport of the id. Default TRAFO_TRANSPORT_LOCAL. */
  int32_t reserved; /* 0 */
  double start_timeout_s; /* Seconds to wait until all ranks have joined. Default 300. */
  double timeout_s; /* Seconds that ranks wait for the slowest one in a call, saving included. Default 600. */
} trafo_group_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_group_options_init(trafo_group_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_GROUP_OPTIONS_H */
