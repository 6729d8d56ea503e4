// Written by scripts/generate_options.py from schema/enums.toml: change that.
// clang-format off
#pragma once

#include <cstdint>

#include "trafo.h"

namespace translate_train {

struct Choice {
  const char* name;
  int32_t value;
  const char* alias = "";
};

inline constexpr Choice kEncoderHeadChoices[] = {{"none", TRAFO_ENCODER_HEAD_NONE}, {"masked-lm", TRAFO_ENCODER_HEAD_MASKED_LM}, {"sequence", TRAFO_ENCODER_HEAD_SEQUENCE}, {"token", TRAFO_ENCODER_HEAD_TOKEN}};

inline constexpr Choice kPoolingChoices[] = {{"mean", TRAFO_POOLING_MEAN}, {"first", TRAFO_POOLING_FIRST}};

inline constexpr Choice kActivationChoices[] = {{"relu", TRAFO_RELU}, {"gelu", TRAFO_GELU}, {"swish", TRAFO_SILU, "silu"}, {"gelu-erf", TRAFO_GELU_ERF}};

inline constexpr Choice kExportFormatChoices[] = {{"hf-marian", TRAFO_EXPORT_HF_MARIAN}, {"hf-gpt2", TRAFO_EXPORT_HF_GPT2}, {"ctranslate2", TRAFO_EXPORT_CTRANSLATE2}, {"hf-llama", TRAFO_EXPORT_HF_LLAMA}, {"onnx", TRAFO_EXPORT_ONNX}, {"gguf", TRAFO_EXPORT_GGUF}, {"hf-compressed", TRAFO_EXPORT_HF_COMPRESSED}, {"hf-pegasus", TRAFO_EXPORT_HF_PEGASUS}, {"hf-m2m100", TRAFO_EXPORT_HF_M2M100}, {"hf-mbart", TRAFO_EXPORT_HF_MBART}, {"hf-bart", TRAFO_EXPORT_HF_BART}, {"hf-t5", TRAFO_EXPORT_HF_T5}, {"hf-bert", TRAFO_EXPORT_HF_BERT}};

inline constexpr Choice kExportWeightsChoices[] = {{"by-format", TRAFO_EXPORT_WEIGHTS_BY_FORMAT}, {"float32", TRAFO_EXPORT_WEIGHTS_FLOAT32, "f32"}, {"float16", TRAFO_EXPORT_WEIGHTS_FLOAT16, "f16"}, {"bfloat16", TRAFO_EXPORT_WEIGHTS_BFLOAT16, "bf16"}, {"int16", TRAFO_EXPORT_WEIGHTS_INT16}, {"int8", TRAFO_EXPORT_WEIGHTS_INT8}, {"q8_0", TRAFO_EXPORT_WEIGHTS_Q8_0}, {"q4_0", TRAFO_EXPORT_WEIGHTS_Q4_0}, {"int4", TRAFO_EXPORT_WEIGHTS_INT4}};

}  // namespace translate_train
