#include "engine/text/tokenizer/sentencepiece/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <new>

#include "engine/core/argument_error.h"
#include "engine/core/limits.h"
#include "engine/core/status.h"
#include "engine/core/strings/quote.h"
#include "engine/text/tokenizer/character_length.h"
#include "engine/text/tokenizer/check_text.h"
#include "engine/text/tokenizer/sentencepiece/library_reserve.h"
#include "engine/text/tokenizer/sentencepiece/sentencepiece.h"
#include "engine/text/tokenizer/sentencepiece/spm_fields.h"
#include "engine/text/tokenizer/sentencepiece/subword_sampler.h"

namespace trafo {
namespace {

// Bytes that a token may be decoded to, where they are not the bytes of the token.
constexpr size_t kLongestSurface = limits::kSubwordBytes;

// Memory that the library allocates for a text: its lattice, and a message with every subword.
size_t needed_for(size_t text) {
  return (size_t{32} << 10) + 320 * text;
}

// The size of what a character map makes of a text shows only with the text.
void check_growth(const CharacterMap& map, std::string_view text) {
  if (text.size() * map.longest_text() <= limits::kNormalizedFree) return;
  const size_t allowed = std::max(
      limits::kNormalizedFree,
      std::min(limits::kNormalizedGrowth * text.size(), text.size() + limits::kNormalizedExtra));
  const size_t bytes = map.normalized_bytes(text);
  require(bytes <= allowed, ErrorCode::corrupt_file, kTokenizerOrigin,
          "the SentencePiece model turns a text of ", text.size(), " bytes into ", bytes,
          ", the limit is ", allowed);
}

// Subwords and the text that a character map makes may not fit, which no look at the model shows.
void check_encoded(const sentencepiece::util::Status& status) {
  require(status.ok(), ErrorCode::corrupt_file, kTokenizerOrigin,
          "the SentencePiece model cannot encode the text: ", status.error_message());
}

void check_decoded(const sentencepiece::util::Status& status) {
  require(status.ok(), ErrorCode::corrupt_file, kTokenizerOrigin,
          "the SentencePiece model cannot decode the tokens: ", status.error_message());
}

// By a denormalizer, which may make `bytes` of the tokens.
void check_decoded(size_t bytes, size_t tokens) {
  require(bytes <= limits::kDecodedBytes, ErrorCode::corrupt_file, kTokenizerOrigin,
          "the SentencePiece model could turn these ", tokens, " tokens into more than ",
          limits::kDecodedBytes, " bytes");
}

}  // namespace

SentencePieceModel::SentencePieceModel(std::string_view serialized, std::string_view label)
    : Model(serialized) {
  silence_sentencepiece();
  summary_ = check_spm_model(serialized_, label);
  std::string reason;
  const LibraryReserve reserve((size_t{1} << 20) + 16 * serialized.size());
  processor_ = std::make_unique<sentencepiece::SentencePieceProcessor>();
  try {
    const auto status = processor_->LoadFromSerializedProto(
        summary_.has_self_test ? without_self_test(serialized, label) : serialized_);
    if (!status.ok()) reason = status.error_message();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // the trie builder throws on keys it cannot take
    reason = error.what();
  }
  auto check = [label](bool condition, const auto&... why) {
    require(condition, ErrorCode::corrupt_file, kTokenizerOrigin, label,
            ": not a usable SentencePiece model: ", why...);
  };
  check(reason.empty(), reason);
  const auto& processor = *processor_;
  special_ = {.bos = processor.bos_id(),
              .eos = processor.eos_id(),
              .pad = processor.pad_id(),
              .unk = processor.unk_id()};
  if (!summary_.start.empty()) special_.bos = processor.PieceToId(summary_.start);
  if (!summary_.ends.empty()) special_.eos = processor.PieceToId(summary_.ends.front());
  for (size_t i = 1; i < summary_.ends.size(); ++i)
    further_ends_.push_back(processor.PieceToId(summary_.ends[i]));
  auto in_range = [&](int32_t id) { return id >= 0 && id < vocab_size(); };
  check(in_range(special_.unk), "it has no unknown subword");
  check(in_range(special_.eos), "it has no end-of-sentence subword");
}

SentencePieceModel::~SentencePieceModel() = default;

std::string SentencePieceModel::with_tokens(std::span<const std::string> tokens,
                                            bool special) const {
  std::string file = serialized();
  for (const std::string& token : tokens) {
    require_argument(token.find_first_of(" \t\n\v\f\r") == std::string::npos &&
                         token.find("\u2581") == std::string::npos,
                     kTokenizerOrigin, "tokens", ": ", quote(token),
                     " has white space or U+2581, which SentencePiece puts in its place");
    WireWriter subword, field;
    subword.bytes(spm_field::kSubwordText, token);
    subword.real(spm_field::kSubwordScore, 0);
    subword.integer(
        spm_field::kSubwordType,
        static_cast<int64_t>(special ? SubwordType::control : SubwordType::user_defined));
    field.bytes(spm_field::kSubword, subword.message());
    file += field.message();  // subwords may be anywhere in the file
  }
  return file;
}

bool is_sentencepiece_file(std::string_view file_bytes) {
  return !file_bytes.starts_with('{');  // no field of a model begins so
}

Tokenizer load_sentencepiece(std::string_view file_bytes, std::string_view label) {
  return Tokenizer(std::make_shared<SentencePieceModel>(file_bytes, label));
}

void SentencePieceModel::encode(std::string_view text, std::vector<int32_t>& ids) const {
  check_growth(summary_.normalizer, text);
  const LibraryReserve reserve(needed_for(text.size()));
  check_encoded(processor_->Encode(text, &ids));
}

std::vector<std::string> SentencePieceModel::encode_as_text(std::string_view text) const {
  check_text(text, "text to encode");
  check_growth(summary_.normalizer, text);
  const LibraryReserve reserve(needed_for(text.size()));
  std::vector<std::string> subwords;
  check_encoded(processor_->Encode(text, &subwords));
  return subwords;
}

std::string SentencePieceModel::decode(std::span<const int32_t> ids) const {
  if (const size_t longest = summary_.denormalizer.longest_text(); longest > 0) {
    size_t bytes = 0;
    for (const int32_t id : ids) bytes += std::max<size_t>(token(id).size(), kLongestSurface);
    check_decoded(bytes * longest, ids.size());
  }
  const LibraryReserve reserve(needed_for(16 * ids.size()));
  std::string text;
  check_decoded(processor_->Decode(std::vector<int>(ids.begin(), ids.end()), &text));
  return text;
}

std::string SentencePieceModel::token_bytes(int32_t id) const {
  if (summary_.denormalizer.longest_text() > 0) return Model::token_bytes(id);
  const std::string& name = token(id);
  switch (type(id)) {
    case SubwordType::byte: {  // "<0x41>"
      uint8_t byte = 0;
      std::from_chars(name.data() + 3, name.data() + 5, byte, 16);
      return std::string(1, static_cast<char>(byte));
    }
    case SubwordType::normal:
    case SubwordType::user_defined: {
      std::string bytes;
      for (size_t at = 0; at < name.size();) {
        constexpr std::string_view kSpaceInName = "\u2581";
        const bool is_space = std::string_view(name).substr(at).starts_with(kSpaceInName);
        bytes += is_space ? ' ' : name[at];
        at += is_space ? kSpaceInName.size() : 1;
      }
      return bytes;
    }
    default:
      return {};
  }
}

// The library shows each byte of a character that is not complete as U+FFFD.
size_t SentencePieceModel::open_tail(std::span<const int32_t> ids) const {
  size_t first = ids.size();
  while (first > 0 && type(ids[first - 1]) == SubwordType::byte) --first;
  std::string bytes;
  for (size_t i = first; i < ids.size(); ++i) {
    const std::string& name = token(ids[i]);  // "<0x41>"
    uint8_t byte = 0;
    std::from_chars(name.data() + 3, name.data() + 5, byte, 16);
    bytes += static_cast<char>(byte);
  }
  for (size_t at = 0; at < bytes.size();) {
    const int length = character_length(bytes, at);
    if (length == 0) return bytes.size() - at;
    at += static_cast<size_t>(std::max(length, 1));
  }
  return 0;
}

std::string SentencePieceModel::decode_names(const std::vector<std::string>& names) const {
  size_t bytes = 0, longest = 0;
  for (const std::string& name : names) {
    bytes += name.size();
    longest += std::max(name.size(), kLongestSurface);
  }
  check_decoded(longest * summary_.denormalizer.longest_text(), names.size());
  const LibraryReserve reserve(needed_for(bytes + 16 * names.size()));
  std::string text;
  check_decoded(processor_->Decode(names, &text));
  return text;
}

std::vector<NormalizedRun> SentencePieceModel::normalize(std::string_view text) const {
  check_text(text, "text to normalize");
  check_growth(summary_.normalizer, text);
  const LibraryReserve reserve(needed_for(text.size()));
  sentencepiece::ImmutableSentencePieceText encoded;
  check_encoded(processor_->Encode(text, encoded.mutable_proto()));
  std::vector<NormalizedRun> runs;
  for (size_t i = 0; i < encoded.pieces_size(); ++i) {
    const auto subword = encoded.pieces(static_cast<int>(i));
    const auto id = static_cast<int32_t>(subword.id());
    const SubwordType kind = type(id);
    if (kind == SubwordType::user_defined || kind == SubwordType::control) {
      runs.push_back({{}, id});
      continue;
    }
    if (runs.empty() || runs.back().id >= 0) runs.emplace_back();
    std::string& run = runs.back().text;
    int byte = 0;
    if (kind == SubwordType::byte) {  // "<0xE2>"
      const char* digits = subword.piece().data() + 3;
      std::from_chars(digits, digits + 2, byte, 16);
      run += static_cast<char>(byte);
    } else {
      run += subword.piece();
    }
  }
  return runs;
}

SubwordType SentencePieceModel::type(int32_t id) const {
  check_id(id);
  return summary_.subwords[static_cast<size_t>(id)];
}

float SentencePieceModel::score(int32_t id) const {
  check_id(id);
  return processor_->GetScore(id);
}

int32_t SentencePieceModel::vocab_size() const noexcept {
  return static_cast<int32_t>(summary_.subwords.size());
}

const std::string& SentencePieceModel::token(int32_t id) const {
  return processor_->IdToPiece(id);
}

int32_t SentencePieceModel::id(std::string_view token) const {
  return processor_->PieceToId(token);
}

// A byte token from <0x80> to <0xBF>: in UTF-8 never the first byte of a character.
bool SentencePieceModel::continues_character(int32_t id) const {
  return type(id) == SubwordType::byte && token(id) >= "<0x80>" && token(id) <= "<0xBF>";
}

bool SentencePieceModel::bos_is_subword() const noexcept {
  if (special_.bos < 0) return false;
  const SubwordType type = summary_.subwords[static_cast<size_t>(special_.bos)];
  return type == SubwordType::normal || type == SubwordType::user_defined;
}

std::vector<NamedToken> SentencePieceModel::special_names() const {
  std::vector<NamedToken> names;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const SubwordType type = summary_.subwords[static_cast<size_t>(id)];
    if (type != SubwordType::control && type != SubwordType::user_defined) continue;
    const bool is_special = type == SubwordType::control;
    names.push_back(
        {.name = token(id), .id = id, .stays_in_text = !is_special, .is_special = is_special});
  }
  return names;
}

std::shared_ptr<const Tokenizer::Model> SentencePieceModel::after_special() const {
  if (!summary_.dummy_prefix) return nullptr;
  return std::make_shared<SentencePieceModel>(without_dummy_prefix(serialized_), "tokenizer");
}

bool SentencePieceModel::begins_anew(std::string_view text) const {
  return summary_.removes_spaces && text.starts_with(' ');
}

std::unique_ptr<const SubwordSampler> SentencePieceModel::sampler() const {
  return std::make_unique<SentencePieceSampler>(*this);
}

}  // namespace trafo
