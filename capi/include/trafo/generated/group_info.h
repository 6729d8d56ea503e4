/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_GROUP_INFO_H
#define TRAFO_GENERATED_GROUP_INFO_H

typedef struct trafo_group_info {
  size_t struct_size;
  int32_t rank; /* The number of this rank, counted from 0. */
  int32_t size; /* The number of ranks. */
  int32_t transport; /* TRAFO_TRANSPORT_*. */
  int32_t reserved; /* 0 */
} trafo_group_info;

#endif /* TRAFO_GENERATED_GROUP_INFO_H */
