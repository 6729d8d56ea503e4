#include "engine/text/tokenizer/tokenizer.h"

#include <fcntl.h>
#include <sentencepiece_processor.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "engine/core/open_error.h"
#include "engine/core/status.h"
#include "engine/core/system_file.h"
#include "engine/text/tokenizer/sentencepiece/library_reserve.h"
#include "engine/text/tokenizer/sentencepiece/sentencepiece.h"
#include "engine/text/tokenizer/sentencepiece/spm_model.h"

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

struct FileToRead {
  explicit FileToRead(const std::string& name) : fd(open_file(name.c_str(), O_RDONLY)) {
    if (fd < 0) fail_to_open(kTokenizerOrigin, name, errno);
  }
  ~FileToRead() { ::close(fd); }
  FileToRead(const FileToRead&) = delete;
  FileToRead& operator=(const FileToRead&) = delete;

  const int fd;
};

std::string read_file(const std::filesystem::path& file) {
  const std::string name = file.string();
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  require(!std::filesystem::is_directory(status), ErrorCode::invalid_argument, kTokenizerOrigin,
          name, ": is a directory");
  require(!std::filesystem::is_character_file(status) && !std::filesystem::is_block_file(status) &&
              !std::filesystem::is_socket(status),
          ErrorCode::invalid_argument, kTokenizerOrigin, name, ": is no regular file and no pipe");
  const auto check_size = [&](uint64_t bytes) {
    require(bytes <= limits::kTokenizerBytes, ErrorCode::corrupt_file, kTokenizerOrigin, name,
            ": not a usable SentencePiece model: it has more than ", limits::kTokenizerBytes,
            " bytes");
  };
  if (std::filesystem::is_regular_file(status))
    if (const auto size = std::filesystem::file_size(file, error); !error) check_size(size);
  const FileToRead stream(name);
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(stream.fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    require(count >= 0, ErrorCode::io, kTokenizerOrigin, name,
            ": cannot be read: ", std::strerror(errno));
    if (count == 0) break;
    bytes.append(buffer, static_cast<size_t>(count));
    check_size(bytes.size());
  }
  return bytes;
}

}  // namespace

struct Tokenizer::Model {
  std::string serialized;
  sentencepiece::SentencePieceProcessor processor;
  SpmSummary summary;
  int32_t vocab_size = 0;
  int32_t unk = -1, bos = -1, eos = -1, pad = -1;
  std::vector<int32_t> further_ends;
};

Tokenizer Tokenizer::from_bytes(std::string_view serialized, std::string_view name) {
  silence_sentencepiece();
  auto model = std::make_shared<Model>();
  model->serialized = serialized;
  model->summary = check_spm_model(model->serialized, name);
  std::string reason;
  const LibraryReserve reserve((size_t{1} << 20) + 16 * serialized.size());
  try {
    const auto status = model->processor.LoadFromSerializedProto(
        model->summary.has_self_test ? without_self_test(serialized, name) : model->serialized);
    if (!status.ok()) reason = status.error_message();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // the trie builder throws on keys it cannot take
    reason = error.what();
  }
  auto check = [name](bool condition, const auto&... why) {
    require(condition, ErrorCode::corrupt_file, kTokenizerOrigin, name,
            ": not a usable SentencePiece model: ", why...);
  };
  check(reason.empty(), reason);
  const auto& processor = model->processor;
  model->vocab_size = processor.GetPieceSize();
  model->unk = processor.unk_id();
  model->bos = processor.bos_id();
  model->eos = processor.eos_id();
  model->pad = processor.pad_id();
  const SpmSummary& summary = model->summary;
  if (!summary.start.empty()) model->bos = processor.PieceToId(summary.start);
  if (!summary.ends.empty()) model->eos = processor.PieceToId(summary.ends.front());
  for (size_t i = 1; i < summary.ends.size(); ++i)
    model->further_ends.push_back(processor.PieceToId(summary.ends[i]));
  auto in_range = [&](int32_t id) { return id >= 0 && id < model->vocab_size; };
  check(in_range(model->unk), "it has no unknown subword");
  check(in_range(model->eos), "it has no end-of-sentence subword");
  return Tokenizer(std::move(model));
}

Tokenizer Tokenizer::load(const std::filesystem::path& file) {
  return from_bytes(read_file(file), file.string());
}

const std::string& Tokenizer::serialized() const noexcept {
  return model_->serialized;
}

void Tokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  check_text(text, "text to encode");
  check_growth(model_->summary.normalizer, text);
  const LibraryReserve reserve(needed_for(text.size()));
  check_encoded(model_->processor.Encode(text, &ids));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids);
  return ids;
}

std::vector<std::string> Tokenizer::encode_as_text(std::string_view text) const {
  check_text(text, "text to encode");
  check_growth(model_->summary.normalizer, text);
  const LibraryReserve reserve(needed_for(text.size()));
  std::vector<std::string> subwords;
  check_encoded(model_->processor.Encode(text, &subwords));
  return subwords;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  for (size_t i = 0; i < ids.size(); ++i)
    require(ids[i] >= 0 && ids[i] < model_->vocab_size, ErrorCode::invalid_argument,
            kTokenizerOrigin, "token ", i, " is ", ids[i], ", the vocabulary has ",
            model_->vocab_size, " tokens");
  if (const size_t longest = model_->summary.denormalizer.longest_text(); longest > 0) {
    size_t bytes = 0;
    for (const int32_t id : ids) bytes += std::max<size_t>(token(id).size(), kLongestSurface);
    require(bytes * longest <= limits::kDecodedBytes, ErrorCode::corrupt_file, kTokenizerOrigin,
            "the SentencePiece model could turn these ", ids.size(), " tokens into more than ",
            limits::kDecodedBytes, " bytes");
  }
  const LibraryReserve reserve(needed_for(16 * ids.size()));
  std::string text;
  const auto status = model_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  require(status.ok(), ErrorCode::corrupt_file, kTokenizerOrigin,
          "the SentencePiece model cannot decode the tokens: ", status.error_message());
  return text;
}

std::vector<NormalizedRun> Tokenizer::normalize(std::string_view text) const {
  check_text(text, "text to normalize");
  check_growth(model_->summary.normalizer, text);
  const LibraryReserve reserve(needed_for(text.size()));
  sentencepiece::ImmutableSentencePieceText encoded;
  check_encoded(model_->processor.Encode(text, encoded.mutable_proto()));
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

SpmKind Tokenizer::kind() const noexcept {
  return model_->summary.kind;
}

SubwordType Tokenizer::type(int32_t id) const {
  require(id >= 0 && id < model_->vocab_size, ErrorCode::invalid_argument, kTokenizerOrigin,
          "token ", id, " is out of range, the vocabulary has ", model_->vocab_size, " tokens");
  return model_->summary.subwords[static_cast<size_t>(id)];
}

int32_t Tokenizer::vocab_size() const noexcept {
  return model_->vocab_size;
}

const std::string& Tokenizer::token(int32_t id) const {
  require(id >= 0 && id < model_->vocab_size, ErrorCode::invalid_argument, kTokenizerOrigin,
          "token ", id, " is out of range, the vocabulary has ", model_->vocab_size, " tokens");
  return model_->processor.IdToPiece(id);
}

float Tokenizer::score(int32_t id) const {
  require(id >= 0 && id < model_->vocab_size, ErrorCode::invalid_argument, kTokenizerOrigin,
          "token ", id, " is out of range, the vocabulary has ", model_->vocab_size, " tokens");
  return model_->processor.GetScore(id);
}

int32_t Tokenizer::id(std::string_view subword) const {
  return model_->processor.PieceToId(subword);
}

int32_t Tokenizer::unk_id() const noexcept {
  return model_->unk;
}
int32_t Tokenizer::bos_id() const noexcept {
  return model_->bos;
}
int32_t Tokenizer::eos_id() const noexcept {
  return model_->eos;
}
int32_t Tokenizer::pad_id() const noexcept {
  return model_->pad;
}
const std::vector<int32_t>& Tokenizer::further_end_ids() const noexcept {
  return model_->further_ends;
}
bool Tokenizer::bos_is_subword() const noexcept {
  if (model_->bos < 0) return false;
  const SubwordType type = model_->summary.subwords[static_cast<size_t>(model_->bos)];
  return type == SubwordType::normal || type == SubwordType::user_defined;
}

}  // namespace trafo
