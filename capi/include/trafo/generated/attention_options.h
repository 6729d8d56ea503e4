/* Written by scripts/generate_options.py from schema/structs.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_ATTENTION_OPTIONS_H
#define TRAFO_GENERATED_ATTENTION_OPTIONS_H

typedef struct trafo_attention_options {
  size_t struct_size;
  int64_t heads; /* Heads of q. Default 1. */
  int64_t kv_heads; /* Heads of k and v, a divisor of heads (grouped-query attention); 0: as many as heads. Default 0. */
  int64_t head_dim; /* Columns of a head. It must be set. */
  int64_t q_column; /* First of heads * head_dim columns of q. Default 0. */
  int64_t k_column; /* First of kv_heads * head_dim columns of k. Default 0. */
  int64_t v_column; /* First of kv_heads * head_dim columns of v. Default 0. */
  double scale; /* Of the scores; 0: 1 / sqrt(head_dim). Default 0. */
  int32_t causal; /* 1: a query attends to no later key. Default 0. */
  int32_t reserved; /* 0 */
  trafo_dropout dropout; /* On probabilities. Default off. */
  /* [B, heads, queries, keys], of which each may be 1; queries and keys of the longest sequences. int32: what is not 0 is
   * masked. Of the dtype of q: added to the scaled scores; it gets a gradient, and -infinity masks. A query whose keys are all
   * masked gives zeros. With a mask the scores of all heads are stored: memory and time are as for a matmul and a softmax.
   * Default NULL. */
  const trafo_tensor *mask;
  /* With causal, keys that a query attends to at most: its last one and those before it (sliding window). Without, it attends
   * to the keys whose distance from that one is less, on both sides. 0: all. Default 0. */
  int64_t window;
} trafo_attention_options;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_attention_options_init(trafo_attention_options *options, size_t struct_size);

#endif /* TRAFO_GENERATED_ATTENTION_OPTIONS_H */
