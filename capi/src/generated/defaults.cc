// Written by scripts/generate_options.py from the tables in schema: change those.
// clang-format off
#include "capi/src/options.h"
#include "engine/compress/prune.h"
#include "engine/compress/sparsify.h"
#include "engine/data/text_corpus.h"
#include "engine/dist/communicator.h"
#include "engine/text/tokenizer/tokenizer_kinds.h"

using namespace trafo;
using namespace trafo::capi;

trafo_context_options trafo::capi::defaults(const trafo_context_options*) {
  trafo_context_options c{};
  c.struct_size = sizeof c;
  c.device = TRAFO_DEVICE_CPU;
  c.fused_kernels = 1;
  c.graphs = 1;
  c.matmul_precision = TRAFO_FLOAT32;
  c.background_share = 1.0;
  return c;
}

trafo_embedding_options trafo::capi::defaults(const trafo_embedding_options*) {
  trafo_embedding_options c{};
  c.struct_size = sizeof c;
  c.scale = 1.0;
  c.padding_id = -1;
  return c;
}

trafo_attention_options trafo::capi::defaults(const trafo_attention_options*) {
  trafo_attention_options c{};
  c.struct_size = sizeof c;
  c.heads = 1;
  return c;
}

trafo_cross_entropy_options trafo::capi::defaults(const trafo_cross_entropy_options*) {
  trafo_cross_entropy_options c{};
  c.struct_size = sizeof c;
  c.ignore_label = -100;
  c.reduction = TRAFO_REDUCE_MEAN;
  return c;
}

trafo_adamw_options trafo::capi::defaults(const trafo_adamw_options*) {
  trafo_adamw_options c{};
  c.struct_size = sizeof c;
  c.beta1 = 0.9;
  c.beta2 = 0.98;
  c.epsilon = 1e-09;
  return c;
}

trafo_tokenizer_options trafo::capi::defaults(const trafo_tokenizer_options*) {
  trafo_tokenizer_options c{};
  c.struct_size = sizeof c;
  c.vocabulary = 8000;
  c.character_coverage = 1.0;
  c.normalization = TRAFO_NORMALIZATION_NMT_NFKC;
  c.kind = {tokenizer_kinds().front().name.data(), tokenizer_kinds().front().name.size()};
  return c;
}

trafo_corpus_options trafo::capi::defaults(const trafo_corpus_options*) {
  trafo_corpus_options c{};
  c.struct_size = sizeof c;
  c.memory_bytes = LoadOptions{}.memory_bytes;
  c.document_end = -1;
  c.format = TRAFO_CORPUS_AUTO;
  return c;
}

trafo_group_options trafo::capi::defaults(const trafo_group_options*) {
  trafo_group_options c{};
  c.struct_size = sizeof c;
  c.size = 1;
  c.transport = TRAFO_TRANSPORT_LOCAL;
  c.start_timeout_s = GroupTimeouts{}.start;
  c.timeout_s = GroupTimeouts{}.wait;
  return c;
}

trafo_quantize_options trafo::capi::defaults(const trafo_quantize_options*) {
  trafo_quantize_options c{};
  c.struct_size = sizeof c;
  c.bits = 8;
  c.method = TRAFO_QUANTIZE_NEAREST;
  return c;
}

trafo_prune_options trafo::capi::defaults(const trafo_prune_options*) {
  trafo_prune_options c{};
  c.struct_size = sizeof c;
  c.encoder_ffn_share = PruneOptions{}.encoder_ffn_share;
  c.decoder_ffn_share = PruneOptions{}.decoder_ffn_share;
  c.encoder_head_share = PruneOptions{}.encoder_head_share;
  c.decoder_head_share = PruneOptions{}.decoder_head_share;
  return c;
}

trafo_sparsify_options trafo::capi::defaults(const trafo_sparsify_options*) {
  trafo_sparsify_options c{};
  c.struct_size = sizeof c;
  c.sparsity = SparsifyOptions{}.sparsity;
  c.score = TRAFO_PRUNE_MAGNITUDE;
  c.pattern = TRAFO_SPARSITY_UNSTRUCTURED;
  return c;
}

trafo_factorize_options trafo::capi::defaults(const trafo_factorize_options*) {
  trafo_factorize_options c{};
  c.struct_size = sizeof c;
  return c;
}

trafo_generation_options trafo::capi::defaults(const trafo_generation_options*) {
  trafo_generation_options c{};
  c.struct_size = sizeof c;
  return c;
}

// Made when the library is loaded: an engine's struct may have a list on the heap, and _init allocates nothing.
static const trafo_model_config kModelConfig = capi::to_c(ModelConfig{});
trafo_model_config trafo::capi::defaults(const trafo_model_config*) { return kModelConfig; }

// Made when the library is loaded: an engine's struct may have a list on the heap, and _init allocates nothing.
static const trafo_trainer_options kTrainerOptions = capi::to_c(TrainOptions{});
trafo_trainer_options trafo::capi::defaults(const trafo_trainer_options*) { return kTrainerOptions; }

// Made when the library is loaded: an engine's struct may have a list on the heap, and _init allocates nothing.
static const trafo_translate_options kTranslateOptions = capi::to_c(TranslateOptions{});
trafo_translate_options trafo::capi::defaults(const trafo_translate_options*) { return kTranslateOptions; }

// Made when the library is loaded: an engine's struct may have a list on the heap, and _init allocates nothing.
static const trafo_evaluation_options kEvaluationOptions = capi::to_c(EvaluationOptions{});
trafo_evaluation_options trafo::capi::defaults(const trafo_evaluation_options*) { return kEvaluationOptions; }

trafo_error* trafo_context_options_init(trafo_context_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_embedding_options_init(trafo_embedding_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_attention_options_init(trafo_attention_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_cross_entropy_options_init(trafo_cross_entropy_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_adamw_options_init(trafo_adamw_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_tokenizer_options_init(trafo_tokenizer_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_corpus_options_init(trafo_corpus_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_group_options_init(trafo_group_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_quantize_options_init(trafo_quantize_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_prune_options_init(trafo_prune_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_sparsify_options_init(trafo_sparsify_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_factorize_options_init(trafo_factorize_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_generation_options_init(trafo_generation_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_model_config_init(trafo_model_config* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_trainer_options_init(trafo_trainer_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_translate_options_init(trafo_translate_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}

trafo_error* trafo_evaluation_options_init(trafo_evaluation_options* options, size_t struct_size) {
  return api(__func__, [&](const Call& call) { init_options(call, options, struct_size, defaults(options)); });
}
