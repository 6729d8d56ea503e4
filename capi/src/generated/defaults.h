// Written by scripts/generate_options.py from the tables in schema: change those.
// clang-format off
#pragma once

#include "capi/include/trafo.h"

namespace trafo::capi {

// The argument chooses the type alone.
trafo_context_options defaults(const trafo_context_options*);
trafo_embedding_options defaults(const trafo_embedding_options*);
trafo_attention_options defaults(const trafo_attention_options*);
trafo_cross_entropy_options defaults(const trafo_cross_entropy_options*);
trafo_adamw_options defaults(const trafo_adamw_options*);
trafo_tokenizer_options defaults(const trafo_tokenizer_options*);
trafo_corpus_options defaults(const trafo_corpus_options*);
trafo_group_options defaults(const trafo_group_options*);
trafo_quantize_options defaults(const trafo_quantize_options*);
trafo_prune_options defaults(const trafo_prune_options*);
trafo_sparsify_options defaults(const trafo_sparsify_options*);
trafo_factorize_options defaults(const trafo_factorize_options*);
trafo_generation_options defaults(const trafo_generation_options*);
trafo_model_config defaults(const trafo_model_config*);
trafo_trainer_options defaults(const trafo_trainer_options*);
trafo_translate_options defaults(const trafo_translate_options*);
trafo_evaluation_options defaults(const trafo_evaluation_options*);

}  // namespace trafo::capi
