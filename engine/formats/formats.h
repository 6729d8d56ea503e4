// One pair of functions for each format.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "engine/core/strings/json.h"
#include "engine/formats/expressible.h"
#include "engine/formats/host_model.h"
#include "engine/formats/interop.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo::interop {

struct Imported {
  HostModel host;
  std::optional<Tokenizer> tokenizer;
  std::string note;
};

// The vocabulary of an exported model. Without a tokenizer the directory has none, either.
struct ExportVocabulary {
  ExportVocabulary(const Tokenizer& text_tokenizer)  // NOLINT(google-explicit-constructor)
      : tokenizer(text_tokenizer), tokens(text_tokenizer.tokens()) {}
  ExportVocabulary(std::optional<Tokenizer> text_tokenizer, VocabularyTokens special_tokens)
      : tokenizer(std::move(text_tokenizer)), tokens(std::move(special_tokens)) {}

  std::optional<Tokenizer> tokenizer;
  VocabularyTokens tokens;
};

// `directory` exists and is empty.
void write_marian(const HostModel& host, const Tokenizer& tokenizer,
                  const std::filesystem::path& directory);
Imported read_marian(const std::filesystem::path& directory, const ReadTarget& target = {});

void write_pegasus(const HostModel& host, const Tokenizer& tokenizer,
                   const std::filesystem::path& directory);
Imported read_pegasus(const std::filesystem::path& directory, const ReadTarget& target = {});

void write_m2m100(const HostModel& host, const Tokenizer& tokenizer,
                  const std::filesystem::path& directory);
Imported read_m2m100(const std::filesystem::path& directory, const ReadTarget& target = {});

void write_bart(const HostModel& host, const Tokenizer& tokenizer,
                const std::filesystem::path& directory);
Imported read_bart(const std::filesystem::path& directory, const ReadTarget& target = {});

void write_mbart(const HostModel& host, const Tokenizer& tokenizer,
                 const std::filesystem::path& directory);
Imported read_mbart(const std::filesystem::path& directory, const ReadTarget& target = {});

void write_t5(const HostModel& host, const Tokenizer& tokenizer,
              const std::filesystem::path& directory);
Imported read_t5(const std::filesystem::path& directory, const ReadTarget& target = {});

void write_gpt2(const HostModel& host, const ExportVocabulary& vocabulary,
                const std::filesystem::path& directory);
Imported read_gpt2(const std::filesystem::path& directory, const ReadTarget& target = {});

// The class, head and names of labels are the model's.
void write_bert(const HostModel& host, const ExportVocabulary& vocabulary,
                const std::filesystem::path& directory);
Imported read_bert(const std::filesystem::path& directory, const ReadTarget& target = {});

void write_llama(const HostModel& host, const ExportVocabulary& vocabulary,
                 const std::filesystem::path& directory);
Imported read_llama(const std::filesystem::path& directory, const ReadTarget& target = {});

// `weights` is one of the types that the format has, here and below.
void write_ctranslate2(const HostModel& host, const Tokenizer& tokenizer, ExportWeights weights,
                       const std::filesystem::path& directory);
// These read the weights of a directory that was written of `host`, and make a model of the
// configuration that the files describe; that of ONNX is in the graphs and taken from `host`.
// CORRUPT_FILE names what is not as it was written.
HostModel read_back_ctranslate2(const HostModel& host, ExportWeights weights,
                                const std::filesystem::path& directory);

// One file, model.gguf, with weights and tokenizer.
void write_gguf(const HostModel& host, const ExportVocabulary& vocabulary, ExportWeights weights,
                const std::filesystem::path& directory);
HostModel read_back_gguf(const HostModel& host, const ExportVocabulary& vocabulary,
                         ExportWeights weights, const std::filesystem::path& directory);

void write_onnx(const HostModel& host, const ExportVocabulary& vocabulary, ExportWeights weights,
                const std::filesystem::path& directory);
HostModel read_back_onnx(const HostModel& host, ExportWeights weights,
                         const std::filesystem::path& directory);

// A directory for transformers and vLLM with the linear layers in int8 or int4.
void write_compressed_tensors(const HostModel& host, const ExportVocabulary& vocabulary,
                              ExportWeights weights, const std::filesystem::path& directory);
HostModel read_back_compressed_tensors(const HostModel& host, ExportWeights weights,
                                       const std::filesystem::path& directory);

// The models that each format can express. Writers are called with such models alone.
const Expressible& hf_marian_expressible();
const Expressible& hf_pegasus_expressible();
const Expressible& hf_m2m100_expressible();
const Expressible& hf_mbart_expressible();
const Expressible& hf_bart_expressible();
const Expressible& hf_t5_expressible();
const Expressible& hf_gpt2_expressible();
const Expressible& hf_llama_expressible();
const Expressible& hf_bert_expressible();
const Expressible& hf_compressed_expressible();
const Expressible& ctranslate2_expressible();
const Expressible& gguf_expressible();
const Expressible& onnx_expressible();

// The files of a transformers directory beside the weights: configurations and tokenizer. They do
// not ask whether the class of transformers can hold the model.
void write_marian_files(const ModelSpec& spec, const Tokenizer& tokenizer,
                        const std::filesystem::path& directory);
// The files of a vocabulary of the kind `marian`, of MarianTokenizer or M2M100Tokenizer, as they
// came.
void write_marian_vocabulary(const Tokenizer& tokenizer, const std::filesystem::path& directory);
void write_gpt2_files(const ModelSpec& spec, const ExportVocabulary& vocabulary,
                      const std::filesystem::path& directory);
// With a quantization_config in config.json unless it is null.
void write_llama_files(const ModelSpec& spec, const ExportVocabulary& vocabulary,
                       const std::filesystem::path& directory, const Json& quantization = nullptr);

}  // namespace trafo::interop
