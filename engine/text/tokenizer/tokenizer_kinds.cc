#include "engine/text/tokenizer/tokenizer_kinds.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

#include "engine/core/argument_error.h"
#include "engine/core/limits.h"
#include "engine/core/status.h"
#include "engine/core/strings/quote.h"
#include "engine/text/tokenizer/byte/byte_tokenizer.h"
#include "engine/text/tokenizer/byte_bpe/byte_bpe_tokenizer.h"
#include "engine/text/tokenizer/byte_bpe/special_choice.h"
#include "engine/text/tokenizer/check_text.h"
#include "engine/text/tokenizer/marian/marian_file.h"
#include "engine/text/tokenizer/marian/marian_tokenizer.h"
#include "engine/text/tokenizer/sentencepiece/sentencepiece_model.h"
#include "engine/text/tokenizer/wordpiece/vocab_txt.h"
#include "engine/text/tokenizer/wordpiece/wordpiece_tokenizer.h"

namespace trafo {
namespace {

// A chat template says nothing about the vocabulary.
constexpr std::string_view kChatCompanions[] = {kChatTemplateFile};

// The loader of a kind that does not read its companions.
template <Tokenizer (*load)(std::string_view file_bytes, std::string_view label)>
Tokenizer load_alone(std::string_view file_bytes, std::string_view label,
                     std::vector<CompanionFile> companions) {
  Tokenizer tokenizer = load(file_bytes, label);
  for (CompanionFile& file : companions) tokenizer = tokenizer.with_companion(std::move(file));
  return tokenizer;
}

// A model of SentencePiece is recognised by its first byte, which a vocab.txt may have as well.
bool is_sentencepiece(std::string_view file_bytes) {
  return is_sentencepiece_file(file_bytes) && !is_vocab_txt(file_bytes);
}

constexpr std::string_view kTokenizerJson = "tokenizer.json";

constexpr TokenizerKind kTokenizerKinds[] = {
    {SentencePieceModel::kKind, "vocab.spm", is_sentencepiece, load_alone<load_sentencepiece>,
     kChatCompanions, validate_sentencepiece, true, train_sentencepiece},
    {ByteTokenizer::kKind, "vocab.byte", is_byte_vocabulary, load_alone<load_byte_vocabulary>,
     kChatCompanions, validate_byte_vocabulary, false, make_byte_vocabulary},
    // Before byte-level BPE, which is recognised by a key that may be a subword here.
    {MarianTokenizer::kKind,
     "vocab.marian",
     is_marian_file,
     load_alone<load_marian>,
     {},
     validate_marian,
     false,
     nullptr},
    // Two kinds have files of the same name, and one kind is read from two files: as a
    // tokenizer.json, which it writes, and from a vocab.txt.
    {WordPieceTokenizer::kKind, kTokenizerJson, is_wordpiece_file, load_wordpiece,
     kTokenizerCompanions, validate_wordpiece, false, nullptr},
    {WordPieceTokenizer::kKind, kVocabTxt, is_vocab_txt, load_vocab_txt, kTokenizerCompanions,
     validate_wordpiece, false, nullptr},
    {ByteBpeTokenizer::kKind, kTokenizerJson, is_byte_bpe_file, load_byte_bpe, kTokenizerCompanions,
     validate_byte_bpe, true, train_byte_bpe},
};

// `trained`: of the kinds that can be trained alone. Each value once, in the order of the rows.
std::string listed(std::string_view TokenizerKind::*member, bool trained = false) {
  std::vector<std::string_view> values;
  for (const TokenizerKind& kind : kTokenizerKinds) {
    if (trained && kind.train == nullptr) continue;
    if (std::find(values.begin(), values.end(), kind.*member) == values.end())
      values.push_back(kind.*member);
  }
  std::string names;
  for (const std::string_view value : values)
    names.append(names.empty() ? "" : value == values.back() ? " or " : ", ").append(value);
  return names;
}

}  // namespace

std::span<const TokenizerKind> tokenizer_kinds() {
  return kTokenizerKinds;
}

const TokenizerKind& tokenizer_kind(std::string_view name) {
  for (const TokenizerKind& kind : kTokenizerKinds)
    if (kind.name == name) return kind;
  refuse_argument(kTokenizerOrigin, "kind", " must be ", listed(&TokenizerKind::name, true),
                  ", got '", name.substr(0, 64), "'");
}

void validate(const TokenizerTrainOptions& options) {
  tokenizer_kind(options.kind).validate(options);
}

Tokenizer Tokenizer::train(std::span<const std::string_view> sentences,
                           const TokenizerTrainOptions& options) {
  validate(options);
  return tokenizer_kind(options.kind).train(sentences, options);
}

Tokenizer Tokenizer::from_bytes(std::string_view serialized, std::string_view name,
                                std::vector<CompanionFile> companions) {
  for (const TokenizerKind& kind : kTokenizerKinds)
    if (kind.recognises(serialized)) return kind.load(serialized, name, std::move(companions));
  fail(ErrorCode::corrupt_file, kTokenizerOrigin, name, ": not a vocabulary (",
       listed(&TokenizerKind::name), ")");
}

Tokenizer Tokenizer::with_tokens(std::span<const std::string> tokens, bool special) const {
  require_argument(!tokens.empty(), kTokenizerOrigin, "tokens", " has none");
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& token = tokens[i];
    check_text(token, "token");
    require_argument(!token.empty() && token.size() <= limits::kSubwordBytes, kTokenizerOrigin,
                     "tokens", ": ", quote(token.substr(0, 64)), " has ", token.size(),
                     " bytes, 1 to ", limits::kSubwordBytes, " are allowed");
    const std::span<const std::string> before = tokens.first(i);
    require_argument(std::ranges::find(before, token) == before.end(), kTokenizerOrigin, "tokens",
                     " has ", quote(token), " twice");
    require_argument(!model_->has_text(token), kTokenizerOrigin, "tokens", ": ", quote(token),
                     " is a token of the vocabulary already");
  }
  Tokenizer result =
      from_bytes(model_->with_tokens(tokens, special), file_name(), std::vector(companions()));
  const Tokenizer reader = result.parsing_special();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<int32_t> ids = reader.encode(tokens[i]);
    require_argument(std::ranges::find(ids, vocab_size() + static_cast<int32_t>(i)) != ids.end(),
                     kTokenizerOrigin, "tokens", ": ", quote(tokens[i]),
                     " is found in no text, not even in its own: the vocabulary changes it");
  }
  return result;
}

std::string_view Tokenizer::file_name() const noexcept {
  return tokenizer_kind(kind()).file;
}

std::filesystem::path vocabulary_file(const std::filesystem::path& directory) {
  std::filesystem::path found;
  std::string_view found_kind;
  for (const TokenizerKind& kind : kTokenizerKinds) {
    std::error_code error;
    // The same file, or one that the kind is read from where its own is missing.
    if (found.filename() == kind.file || found_kind == kind.name) continue;
    const std::filesystem::path path = directory / kind.file;
    if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) continue;
    require(found.empty(), ErrorCode::invalid_argument, kTokenizerOrigin, directory.string(),
            " has two vocabularies, ", found.filename().string(), " and ", kind.file,
            ": remove the one that is not the model's");
    found = path;
    found_kind = kind.name;
  }
  require(!found.empty(), ErrorCode::not_found, kTokenizerOrigin, directory.string(),
          ": there is no vocabulary (", listed(&TokenizerKind::file), ")");
  return found;
}

}  // namespace trafo
