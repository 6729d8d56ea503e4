// Written by scripts/generate_options.py from schema/enums.toml: change that.
// clang-format off
#pragma once

#include "engine/core/enum_names.h"

namespace trafo {

// Models of other programs that can be written. Values are part of the C ABI.
enum class ExportFormat : int32_t {
  // MarianMTModel of transformers: a post-norm encoder-decoder with tied embeddings.
  hf_marian = 0,
  // GPT2LMHeadModel of transformers: a pre-norm decoder-lm.
  hf_gpt2 = 1,
  // CTranslate2: every architecture.
  ctranslate2 = 2,
  // LlamaForCausalLM of transformers: a pre-norm decoder-lm with RMS norm, rotary positions and
  // SwiGLU.
  hf_llama = 3,
  // ONNX graphs of opset 17 and their weights: every model.
  onnx = 4,
  // llama.cpp's file of such a model, model.gguf; a BPE vocabulary with byte fallback.
  gguf = 5,
  // compressed-tensors for transformers and vLLM: such a model in int8 or int4.
  hf_compressed = 6,
  // PegasusForConditionalGeneration of transformers: a pre-norm encoder-decoder with tied
  // embeddings.
  hf_pegasus = 7,
  // M2M100ForConditionalGeneration of transformers, M2M100 and NLLB-200: such a model with
  // fairseq_positions.
  hf_m2m100 = 8,
  // MBartForConditionalGeneration of transformers, mBART-50: such a model with learned_positions.
  hf_mbart = 9,
  // BartForConditionalGeneration of transformers: such a model with post-norm layers and
  // byte-level BPE.
  hf_bart = 10,
  // T5ForConditionalGeneration or MT5ForConditionalGeneration of transformers: a pre-norm
  // encoder-decoder with relative_buckets and RMS norm.
  hf_t5 = 11,
  // BertModel, RobertaModel, XLMRobertaModel and ModernBertModel of transformers, with the head
  // that the model has: an encoder.
  hf_bert = 12,
};
template <>
struct EnumNames<ExportFormat> {
  static constexpr std::array<const char*, 13> names{"hf-marian", "hf-gpt2", "ctranslate2", "hf-llama", "onnx", "gguf", "hf-compressed", "hf-pegasus", "hf-m2m100", "hf-mbart", "hf-bart", "hf-t5", "hf-bert"};
};

// How an export stores matrices. Values are part of the C ABI.
enum class ExportWeights : int32_t {
  // float16 in GGUF, int8 in compressed-tensors, float32 in the others.
  by_format = 0,
  // float32.
  float32 = 1,
  // float16: CTranslate2, GGUF.
  float16 = 2,
  // bfloat16: CTranslate2.
  bfloat16 = 3,
  // CTranslate2: one scale for a matrix.
  int16 = 4,
  // CTranslate2, ONNX (7 bits), compressed-tensors: a scale for each output.
  int8 = 5,
  // GGUF: 8 bits, a scale for each block of 32.
  q8_0 = 6,
  // GGUF: 4 bits, a scale for each block of 32.
  q4_0 = 7,
  // compressed-tensors: 4 bits, a scale for each 32 values of a row.
  int4 = 8,
};
template <>
struct EnumNames<ExportWeights> {
  static constexpr std::array<const char*, 9> names{"by-format", "float32", "float16", "bfloat16", "int16", "int8", "q8_0", "q4_0", "int4"};
};

}  // namespace trafo
