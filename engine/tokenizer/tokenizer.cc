#include "engine/tokenizer/tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <mutex>
#include <unordered_map>

#include "engine/core/library_memory.h"
#include "engine/core/open_error.h"
#include "engine/core/shuffle.h"
#include "engine/core/status.h"
#include "engine/core/utf8.h"
#include "engine/tokenizer/spm_model.h"

namespace trafo {
namespace {

constexpr std::string_view kOrigin = "tokenizer";
constexpr int kSpecialPieces = 4;  // unk, bos, eos, pad
constexpr int kBytePieces = 256;

// What the library takes for a text: its lattice, and a message with every piece.
LibraryMemory memory_for(size_t text) {
  return LibraryMemory((size_t{32} << 10) + 320 * text);
}

// The library logs to standard error from level 0 on, and has no other public way to set the level
// than a training call, which reads its settings before it notices that there is nothing to train
// on. Level 3 leaves only fatal errors.
void silence_library() {
  static std::once_flag once;
  std::call_once(once, [] {
    const LibraryMemory memory = memory_for(0);
    sentencepiece::SentencePieceTrainer::Train(
        std::unordered_map<std::string, std::string>{{"minloglevel", "3"}})
        .IgnoreError();
  });
}

void check_text(std::string_view text, std::string_view what) {
  const size_t bad = find_invalid_utf8(text);
  require(bad == kValidUtf8, ErrorCode::invalid_argument, kOrigin, what, ": invalid UTF-8 at byte ",
          bad + 1);
  require(text.find('\0') == std::string_view::npos, ErrorCode::invalid_argument, kOrigin, what,
          ": NUL byte");
}

// Pieces and the text that a character map makes may not fit, which no look at the model shows.
void check_encoded(const sentencepiece::util::Status& status) {
  require(status.ok(), ErrorCode::corrupt_file, kOrigin,
          "the SentencePiece model cannot encode the text: ", status.error_message());
}

template <class Text>
class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(std::vector<Text> texts) : texts_(std::move(texts)) { load(); }
  bool done() const override { return index_ >= texts_.size(); }
  void Next() override {
    ++index_;
    load();
  }
  const std::string& value() const override { return current_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void load() {
    if (!done()) current_.assign(texts_[index_]);
  }
  std::vector<Text> texts_;
  size_t index_ = 0;
  std::string current_;
};

// Indices of a uniform sample, in order: reservoir sampling (algorithm R).
std::vector<std::string_view> sample(std::vector<std::string_view> sentences, int64_t limit,
                                     uint64_t seed) {
  if (sentences.size() <= static_cast<size_t>(limit)) return sentences;
  std::vector<std::string_view> result;
  for (const size_t index : sample_indices(sentences.size(), limit, seed))
    result.push_back(sentences[index]);
  return result;
}

// The number that follows `marker` in the library's message, or -1.
int64_t number_after(std::string_view message, std::string_view marker) {
  const size_t found = message.find(marker);
  if (found == std::string_view::npos) return -1;
  const char* begin = message.data() + found + marker.size();
  int64_t number = -1;
  if (std::from_chars(begin, message.data() + message.size(), number).ec != std::errc()) return -1;
  return number;
}

[[noreturn]] void fail_training(std::string_view message, const TokenizerTrainOptions& options) {
  const auto code = ErrorCode::invalid_argument;
  if (const int64_t fits = number_after(message, "value <= "); fits > 0)
    fail(code, kOrigin, "a vocabulary of ", options.vocab_size,
         " pieces is too large for this corpus: at most ", fits,
         " fit; ask for so many, give more text, or allow a smaller vocabulary");
  const std::string versus = concat(options.vocab_size, " vs ");
  if (const int64_t needed = number_after(message, versus); needed > 0)
    fail(code, kOrigin, "a vocabulary of ", options.vocab_size,
         " pieces is too small for this corpus: its characters alone need ", needed,
         "; ask for more, or lower character_coverage");
  if (message.find("sentences_.empty()") != std::string_view::npos)
    fail(code, kOrigin, "the corpus has no sentence of at most 4192 bytes to train on");
  fail(code, kOrigin, "SentencePiece cannot train on this corpus: ", message);
}

std::string format_coverage(double coverage) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, coverage).ptr;  // independent of locale
  return std::string(text, end);
}

std::string read_file(const std::filesystem::path& file) {
  const std::string name = file.string();
  std::error_code error;
  require(!std::filesystem::is_directory(file, error), ErrorCode::invalid_argument, kOrigin, name,
          ": is a directory");
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream.is_open()) fail_to_open(kOrigin, name, errno);
  std::string bytes;
  char buffer[1 << 16];
  do {
    stream.read(buffer, sizeof buffer);
    bytes.append(buffer, static_cast<size_t>(stream.gcount()));
    require(bytes.size() <= static_cast<size_t>(INT32_MAX), ErrorCode::corrupt_file, kOrigin, name,
            ": not a usable SentencePiece model: it is over 2 GiB");
  } while (stream.good());
  require(stream.eof(), ErrorCode::io, kOrigin, name, ": cannot be read: ", std::strerror(errno));
  return bytes;
}

}  // namespace

struct Tokenizer::Model {
  std::string serialized;
  sentencepiece::SentencePieceProcessor processor;
  SpmSummary summary;
  int32_t vocab_size = 0;
  int32_t unk = -1, bos = -1, eos = -1, pad = -1;
};

Tokenizer Tokenizer::from_bytes(std::string_view serialized, std::string_view name) {
  silence_library();
  auto model = std::make_shared<Model>();
  model->summary = check_spm_model(serialized, name);
  model->serialized = serialized;
  std::string reason;
  const LibraryMemory memory((size_t{1} << 20) + 16 * serialized.size());
  try {
    const auto status = model->processor.LoadFromSerializedProto(model->serialized);
    if (!status.ok()) reason = status.error_message();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // the trie builder throws on keys it cannot take
    reason = error.what();
  }
  auto check = [name](bool condition, const auto&... why) {
    require(condition, ErrorCode::corrupt_file, kOrigin, name,
            ": not a usable SentencePiece model: ", why...);
  };
  check(reason.empty(), reason);
  const auto& processor = model->processor;
  model->vocab_size = processor.GetPieceSize();
  model->unk = processor.unk_id();
  model->bos = processor.bos_id();
  model->eos = processor.eos_id();
  model->pad = processor.pad_id();
  auto in_range = [&](int32_t id) { return id >= 0 && id < model->vocab_size; };
  check(in_range(model->unk), "it has no unknown piece");
  check(in_range(model->eos), "it has no end-of-sentence piece");
  return Tokenizer(std::move(model));
}

Tokenizer Tokenizer::load(const std::filesystem::path& file) {
  return from_bytes(read_file(file), file.string());
}

void validate(const TokenizerTrainOptions& options) {
  const int least = kSpecialPieces + 1 + (options.byte_fallback ? kBytePieces : 0);
  require(options.vocab_size >= least && options.vocab_size <= limits::kVocabulary,
          ErrorCode::invalid_argument, kOrigin, "vocab_size is ", options.vocab_size,
          ", it must lie between ", least, " and ", limits::kVocabulary);
  require(options.character_coverage >= 0.98 && options.character_coverage <= 1.0,
          ErrorCode::invalid_argument, kOrigin, "character_coverage is ",
          options.character_coverage, ", it must lie between 0.98 and 1");
  require(options.max_sentences > 0, ErrorCode::invalid_argument, kOrigin, "max_sentences is ",
          options.max_sentences, ", it must be positive");
}

Tokenizer Tokenizer::train(std::span<const std::string_view> sentences,
                           const TokenizerTrainOptions& options) {
  silence_library();
  validate(options);
  require(!sentences.empty(), ErrorCode::invalid_argument, kOrigin, "the corpus is empty");
  for (size_t i = 0; i < sentences.size(); ++i)
    check_text(sentences[i], concat("training sentence ", i + 1));

  // The library's own sampling draws from a generator that lives as long as the thread: a second
  // training would differ.
  Sentences<std::string_view> iterator(
      sample({sentences.begin(), sentences.end()}, options.max_sentences, options.seed));
  const std::unordered_map<std::string, std::string> settings{
      {"minloglevel", "3"},
      {"model_type", options.model == TokenizerModel::bpe ? "bpe" : "unigram"},
      {"vocab_size", std::to_string(options.vocab_size)},
      {"character_coverage", format_coverage(options.character_coverage)},
      {"byte_fallback", options.byte_fallback ? "true" : "false"},
      {"hard_vocab_limit", options.hard_vocab_limit ? "true" : "false"},
      {"unk_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"pad_id", "3"},
      {"num_threads", "16"},  // part of the result: partial sums are added by thread
  };
  size_t text = 0;
  for (const std::string_view sentence : sentences) text += sentence.size();
  // Its suffix array and a million candidates.
  const LibraryMemory memory((size_t{16} << 20) + 128 * text);
  std::string serialized;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &serialized);
  if (!status.ok()) fail_training(status.error_message(), options);
  return from_bytes(serialized, "trained tokenizer");
}

Tokenizer Tokenizer::train(std::span<const std::string> sentences,
                           const TokenizerTrainOptions& options) {
  const std::vector<std::string_view> views(sentences.begin(), sentences.end());
  return train(std::span<const std::string_view>(views), options);
}

const std::string& Tokenizer::serialized() const noexcept {
  return model_->serialized;
}

void Tokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  check_text(text, "text to encode");
  const LibraryMemory memory = memory_for(text.size());
  check_encoded(model_->processor.Encode(text, &ids));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  for (size_t i = 0; i < ids.size(); ++i)
    require(ids[i] >= 0 && ids[i] < model_->vocab_size, ErrorCode::invalid_argument, kOrigin,
            "token ", i, " is ", ids[i], ", the vocabulary has ", model_->vocab_size, " pieces");
  const LibraryMemory memory = memory_for(16 * ids.size());
  std::string text;
  const auto status = model_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  require(status.ok(), ErrorCode::corrupt_file, kOrigin,
          "the SentencePiece model cannot decode the pieces: ", status.error_message());
  return text;
}

std::vector<NormalizedRun> Tokenizer::normalize(std::string_view text) const {
  check_text(text, "text to normalize");
  const LibraryMemory memory = memory_for(text.size());
  sentencepiece::ImmutableSentencePieceText encoded;
  check_encoded(model_->processor.Encode(text, encoded.mutable_proto()));
  std::vector<NormalizedRun> runs;
  for (size_t i = 0; i < encoded.pieces_size(); ++i) {
    const auto piece = encoded.pieces(static_cast<int>(i));
    const auto id = static_cast<int32_t>(piece.id());
    const SpmPiece kind = type(id);
    if (kind == SpmPiece::user_defined || kind == SpmPiece::control) {
      runs.push_back({{}, id});
      continue;
    }
    if (runs.empty() || runs.back().id >= 0) runs.emplace_back();
    std::string& run = runs.back().text;
    int byte = 0;
    if (kind == SpmPiece::byte) {  // "<0xE2>"
      const char* digits = piece.piece().data() + 3;
      std::from_chars(digits, digits + 2, byte, 16);
      run += static_cast<char>(byte);
    } else {
      run += piece.piece();
    }
  }
  return runs;
}

SpmKind Tokenizer::kind() const noexcept {
  return model_->summary.kind;
}

SpmPiece Tokenizer::type(int32_t id) const {
  require(id >= 0 && id < model_->vocab_size, ErrorCode::invalid_argument, kOrigin, "token ", id,
          " is out of range, the vocabulary has ", model_->vocab_size, " pieces");
  return model_->summary.pieces[static_cast<size_t>(id)];
}

int32_t Tokenizer::vocab_size() const noexcept {
  return model_->vocab_size;
}

const std::string& Tokenizer::piece(int32_t id) const {
  require(id >= 0 && id < model_->vocab_size, ErrorCode::invalid_argument, kOrigin, "token ", id,
          " is out of range, the vocabulary has ", model_->vocab_size, " pieces");
  return model_->processor.IdToPiece(id);
}

float Tokenizer::score(int32_t id) const {
  require(id >= 0 && id < model_->vocab_size, ErrorCode::invalid_argument, kOrigin, "token ", id,
          " is out of range, the vocabulary has ", model_->vocab_size, " pieces");
  return model_->processor.GetScore(id);
}

int32_t Tokenizer::id(std::string_view piece) const {
  return model_->processor.PieceToId(piece);
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

}  // namespace trafo
