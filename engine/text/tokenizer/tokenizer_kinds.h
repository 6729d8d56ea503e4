// The kinds of tokenizers.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

struct TokenizerKind {
  std::string_view name;  // ends with a NUL byte, as the next one
  std::string_view file;  // name of its file in the directory of a run or a model
  bool (*recognises)(std::string_view file_bytes);
  Tokenizer (*load)(std::string_view file_bytes, std::string_view label,
                    std::vector<CompanionFile> companions);
  std::span<const std::string_view> companions;  // names of files that may lie beside it
  void (*validate)(const TokenizerTrainOptions& options);
  bool learns;  // whether `train` reads the sentences
  // Null: vocabularies of the kind come with models, and validate() refuses all options.
  Tokenizer (*train)(std::span<const std::string_view> sentences,
                     const TokenizerTrainOptions& options);
};

std::span<const TokenizerKind> tokenizer_kinds();
const TokenizerKind& tokenizer_kind(std::string_view name);  // INVALID_ARGUMENT lists the names

// The vocabulary in the directory of a run or a model, of whichever kind. NOT_FOUND: there is none.
// INVALID_ARGUMENT: there are several.
std::filesystem::path vocabulary_file(const std::filesystem::path& directory);

}  // namespace trafo
