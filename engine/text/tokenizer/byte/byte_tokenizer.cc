#include "engine/text/tokenizer/byte/byte_tokenizer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/core/argument_error.h"
#include "engine/core/status.h"
#include "engine/core/strings/utf8.h"
#include "engine/text/tokenizer/check_text.h"

namespace trafo {
namespace {

constexpr int32_t kFirstByte = 3;
constexpr int32_t kByteVocabulary = kFirstByte + 256;
constexpr std::string_view kByteFile = "{\"tokenizer\": \"byte\"}\n";
constexpr std::string_view kPadStartsFile = "{\"tokenizer\": \"byte\", \"start\": \"<pad>\"}\n";
constexpr std::string_view kByteFileBegin = kByteFile.substr(0, kByteFile.size() - 2);

}  // namespace

ByteTokenizer::ByteTokenizer(bool pad_starts) : Model(pad_starts ? kPadStartsFile : kByteFile) {
  special_ = {.bos = -1, .eos = 1, .pad = kPad, .unk = 2};
  if (pad_starts) std::swap(special_.bos, special_.pad);
  tokens_ = {"<pad>", "</s>", "<unk>"};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    tokens_.push_back({'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'});
  }
}

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  ids.resize(text.size());
  std::transform(text.begin(), text.end(), ids.begin(),
                 [](char c) { return kFirstByte + static_cast<unsigned char>(c); });
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids)
    if (id >= kFirstByte) bytes += static_cast<char>(id - kFirstByte);
  std::string text;
  for (std::string_view left = bytes; !left.empty();) {
    const size_t valid = std::min(find_invalid_utf8(left), left.size());
    text += left.substr(0, valid);
    left.remove_prefix(std::min(valid + 1, left.size()));
  }
  return text;
}

int32_t ByteTokenizer::id(std::string_view token) const {
  const auto found = std::find(tokens_.begin(), tokens_.end(), token);
  return found == tokens_.end() ? special_.unk : static_cast<int32_t>(found - tokens_.begin());
}

std::string ByteTokenizer::token_bytes(int32_t id) const {
  return id < kFirstByte ? std::string() : std::string(1, static_cast<char>(id - kFirstByte));
}

bool ByteTokenizer::continues_character(int32_t id) const {
  return id >= kFirstByte && ((id - kFirstByte) & 0xc0) == 0x80;
}

bool is_byte_vocabulary(std::string_view file_bytes) {
  return file_bytes.starts_with(kByteFileBegin);
}

Tokenizer byte_vocabulary(bool pad_starts) {
  return Tokenizer(std::make_shared<ByteTokenizer>(pad_starts));
}

Tokenizer load_byte_vocabulary(std::string_view file_bytes, std::string_view label) {
  const bool pad_starts = file_bytes == kPadStartsFile;
  require(pad_starts || file_bytes == kByteFile, ErrorCode::corrupt_file, kTokenizerOrigin, label,
          ": a byte vocabulary has no more than {\"tokenizer\": \"byte\"} or {\"tokenizer\": "
          "\"byte\", \"start\": \"<pad>\"} and the end of the line");
  return byte_vocabulary(pad_starts);
}

void validate_byte_vocabulary(const TokenizerTrainOptions& options) {
  const TokenizerTrainOptions usual;
  const bool fits = options.vocab_size == kByteVocabulary ||
                    options.vocab_size == usual.vocab_size ||
                    (!options.hard_vocab_limit && options.vocab_size > kByteVocabulary);
  require_argument(fits, kTokenizerOrigin, "vocabulary", " is ", options.vocab_size,
                   ", a byte vocabulary has ", kByteVocabulary, " tokens");
  const auto refuse_unless = [](bool is_usual, const char* field) {
    require_argument(is_usual, kTokenizerOrigin, field, " is not for a byte vocabulary");
  };
  refuse_unless(options.model == usual.model, "bpe");
  refuse_unless(options.character_coverage == usual.character_coverage, "character_coverage");
  refuse_unless(!options.byte_fallback, "byte_fallback");
  refuse_unless(options.normalization == usual.normalization, "normalization");
  refuse_unless(options.user_symbols.empty(), "user_symbols");
}

Tokenizer make_byte_vocabulary(std::span<const std::string_view>, const TokenizerTrainOptions&) {
  return Tokenizer(std::make_shared<ByteTokenizer>());
}

}  // namespace trafo
