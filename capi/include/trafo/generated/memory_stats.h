/* Written by scripts/generate_options.py from schema/results.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_MEMORY_STATS_H
#define TRAFO_GENERATED_MEMORY_STATS_H

/* Memory of a context, in bytes. */
typedef struct trafo_memory_stats {
  int64_t allocated_bytes; /* In use now. */
  int64_t peak_bytes; /* Most in use since the context was made or its memory was trimmed. */
  int64_t reserved_bytes; /* Taken from the system, cached blocks included. */
} trafo_memory_stats;

#endif /* TRAFO_GENERATED_MEMORY_STATS_H */
