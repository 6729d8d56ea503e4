#include <sentencepiece_trainer.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

#include "engine/core/argument_error.h"
#include "engine/core/cancel.h"
#include "engine/core/limits.h"
#include "engine/core/numeric/shuffle.h"
#include "engine/core/progress.h"
#include "engine/core/status.h"
#include "engine/core/strings/utf8.h"
#include "engine/os/memory.h"
#include "engine/text/tokenizer/check_text.h"
#include "engine/text/tokenizer/sentencepiece/library_call.h"
#include "engine/text/tokenizer/sentencepiece/library_reserve.h"
#include "engine/text/tokenizer/sentencepiece/sentencepiece.h"
#include "engine/text/tokenizer/sentencepiece/sentencepiece_model.h"
#include "engine/text/tokenizer/sentencepiece/spm_fields.h"
#include "engine/text/tokenizer/sentencepiece/training_text.h"

namespace trafo {
namespace {

constexpr int kSpecialTokens = 4;  // unk, bos, eos, pad
constexpr int kByteTokens = 256;
constexpr int kLongestTrainedSubword = 16;  // characters, the library's default
constexpr const char* kEscapedSpaceText = "\u2581";
constexpr int kThreads = 16;  // part of the result: partial sums are added by thread

using Settings = std::unordered_map<std::string, std::string>;

// A training that owns all that it uses, so that it may go on after its caller has left.
class Training final : public sentencepiece::SentenceIterator {
 public:
  Training(std::vector<std::string_view> texts, Settings settings, const CancelToken* cancel)
      : settings_(std::move(settings)), texts_(std::move(texts)), cancel_(cancel) {
    load();
  }
  void run(size_t bytes) {
    const auto heaps = static_cast<size_t>((kThreads + 1) * os::thread_heap_bytes());
    const LibraryReserve reserve(heaps + bytes, LibraryReserve::For::started_threads_too);
    result_ = sentencepiece::SentencePieceTrainer::Train(settings_, this, &serialized_);
  }
  const sentencepiece::util::Status& result() const { return result_; }
  std::string& serialized() { return serialized_; }
  // Whether it ended because it saw that the token was set. Of a training that has ended.
  bool stopped() const { return stopped_; }
  // From here on neither the texts nor the token, which are the caller's, are looked at.
  bool has_read_texts() const { return read_.load(); }

  bool done() const override {
    if (!read_) {
      stopped_ = cancel_ != nullptr && cancel_->is_cancelled();
      read_ = stopped_ || index_ >= texts_.size();
    }
    return read_;
  }
  void Next() override {
    ++index_;
    load();
  }
  const std::string& value() const override { return current_; }
  sentencepiece::util::Status status() const override {
    if (!stopped_) return {};
    return {sentencepiece::util::StatusCode::kCancelled, "cancelled by the caller"};
  }

 private:
  void load() {
    if (index_ < texts_.size()) current_.assign(texts_[index_]);
  }

  const Settings settings_;
  const std::vector<std::string_view> texts_;
  const CancelToken* const cancel_;
  size_t index_ = 0;
  std::string current_;
  mutable std::atomic<bool> read_{false};
  mutable bool stopped_ = false;
  sentencepiece::util::Status result_;
  std::string serialized_;
};

const char* normalization_name(Normalization normalization) {
  return kNormalizationNames[static_cast<size_t>(normalization)];
}

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

[[noreturn]] void fail_without_sentences() {
  fail(ErrorCode::invalid_argument, kTokenizerOrigin,
       "the corpus has no sentence with more than spaces and control characters in it");
}

[[noreturn]] void fail_training(std::string_view message, const TokenizerTrainOptions& options) {
  const auto code = ErrorCode::invalid_argument;
  if (const int64_t fits = number_after(message, "value <= "); fits > 0)
    fail(code, kTokenizerOrigin, "a vocabulary of ", options.vocab_size,
         " subwords is too large for this corpus: at most ", fits,
         " fit; ask for so many, give more text, or allow a smaller vocabulary");
  const std::string versus = concat(options.vocab_size, " vs ");
  if (const int64_t needed = number_after(message, versus); needed > 0)
    fail(code, kTokenizerOrigin, "a vocabulary of ", options.vocab_size,
         " subwords is too small for this corpus: its characters alone need ", needed,
         "; ask for more, or lower character_coverage");
  if (message.find("sentences_.empty()") != std::string_view::npos) fail_without_sentences();
  fail(code, kTokenizerOrigin, "SentencePiece cannot train on this corpus: ", message);
}

// SentencePiece reads numbers with the global locale, which may have another decimal point. This
// text has none: 9995e-4.
std::string format_coverage(double coverage) {
  char text[32];
  const auto end =
      std::to_chars(text, text + sizeof text, coverage, std::chars_format::scientific).ptr;
  std::string digits(text, end);
  const size_t point = digits.find('.'), power = digits.find('e');
  if (point == std::string::npos) return digits;
  int exponent = 0;
  const char* sign = digits.data() + power + 1;
  std::from_chars(*sign == '+' ? sign + 1 : sign, digits.data() + digits.size(), exponent);
  const auto decimals = static_cast<int>(power - point - 1);
  return digits.substr(0, point) + digits.substr(point + 1, decimals) + "e" +
         std::to_string(exponent - decimals);
}

std::shared_ptr<Training> train_model(std::vector<std::string_view> sentences, Settings settings,
                                      size_t bytes, const CancelToken* cancel,
                                      WorkProgress* progress = nullptr) {
  auto training = std::make_shared<Training>(std::move(sentences), std::move(settings), cancel);
  run_library_call([training, bytes] { training->run(bytes); }, cancel,
                   [&] {
                     if (progress != nullptr) progress->add(0);
                     return training->has_read_texts();
                   });
  return training;
}

// Makes the static objects of the library. A training that its caller has left may use them until
// the end of the process is handled (run_library_call), so they must be older than that handler.
void make_static_objects() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const char* type : {"unigram", "bpe"})
      train_model({"the cat sat on the mat", "a cat on a mat"},
                  {{"minloglevel", "3"},
                   {"hard_vocab_limit", "false"},
                   {"model_type", type},
                   {"vocab_size", "20"}},
                  size_t{1} << 20, nullptr);
  });
}

// The character map of a normal form. The library gives it away only inside of a model.
std::string library_map(Normalization normalization) {
  if (normalization == Normalization::identity) return {};
  const auto training =
      train_model({"a"},
                  {{"minloglevel", "3"},
                   {"hard_vocab_limit", "false"},
                   {"model_type", "char"},
                   {"normalization_rule_name", normalization_name(normalization)}},
                  size_t{1} << 20, nullptr);
  require(training->result().ok(), ErrorCode::internal, kTokenizerOrigin,
          training->result().error_message());
  return std::string(character_map_of(training->serialized(), "default tokenizer"));
}

// How texts are normalised before and after training.
struct Rules {
  std::string blob;  // empty: each character stands for itself
  CharacterMap map;

  Rules(Normalization normalization, bool keeps_non_joiner) : blob(library_map(normalization)) {
    if (keeps_non_joiner && !blob.empty())
      blob = without_entry(blob, "\u200c", "default tokenizer");
    if (!blob.empty()) map = CharacterMap(blob, "default tokenizer");
  }
};

const Rules& rules_of(Normalization normalization, bool keeps_non_joiner) {
  static std::mutex mutex;
  static std::map<std::pair<Normalization, bool>, Rules> known;
  const std::lock_guard lock(mutex);
  return known.try_emplace({normalization, keeps_non_joiner}, normalization, keeps_non_joiner)
      .first->second;
}

// A list in one setting of the library: comma-separated values.
std::string comma_separated(std::span<const std::string> texts) {
  std::string list;
  for (const std::string& text : texts) {
    list += list.empty() ? "\"" : ",\"";
    for (const char c : text) list.append(c == '"' ? 2 : 1, c);
    list += '"';
  }
  return list;
}

void check_user_symbols(std::span<const std::string> symbols) {
  constexpr std::string_view kTaken[] = {"<unk>", "<s>", "</s>", "<pad>"};
  std::set<std::string_view> seen;
  for (const std::string& symbol : symbols) {
    const auto check = [&](bool good, const char* why) {
      require_argument(good, kTokenizerOrigin, "user_symbols", ": '", symbol, "' ", why);
    };
    require_argument(!symbol.empty(), kTokenizerOrigin, "user_symbols", " has an empty symbol");
    check_text(symbol, "a user's symbol");
    check(symbol.size() <= static_cast<size_t>(limits::kSubwordBytes), "is over 1 KiB long");
    check(symbol.find_first_of(" \t\r\n") == std::string::npos &&
              symbol.find(kEscapedSpaceText) == std::string::npos,
          "has white space");
    check(std::find(std::begin(kTaken), std::end(kTaken), symbol) == std::end(kTaken) &&
              !symbol.starts_with("<0x"),
          "is a special token's or a byte's");
    check(seen.insert(symbol).second, "is given twice");
  }
}

// Rounds the log-probabilities of a unigram model to multiples of 2^-10. Sums of them are exact in
// float32 up to 2^14, a text of a thousand subwords and more. Otherwise rounding would choose
// between segmentations of one score, such as "!! !" and "! !!", and programs that add in another
// precision or order would choose differently.
void round_scores(std::string& model) {
  constexpr std::string_view kName = "trained tokenizer";
  SpmFields fields(model, kName);
  for (SpmField subword; fields.next(subword);) {
    if (!subword.is(spm_field::kSubword, SpmField::bytes_of)) continue;
    SpmFields parts(subword.bytes, kName);
    for (SpmField part; parts.next(part);) {
      if (!part.is(spm_field::kSubwordScore, SpmField::fixed32)) continue;
      char* const stored = model.data() + (part.whole.data() - model.data()) +
                           static_cast<ptrdiff_t>(part.whole.size() - sizeof(float));
      float score = 0;
      std::memcpy(&score, stored, sizeof score);
      score = std::nearbyint(score * 1024) / 1024;
      std::memcpy(stored, &score, sizeof score);
    }
  }
}

}  // namespace

// The level can only be set through a training call. The call reads its settings before it notices
// that there is nothing to train on. Level 3 leaves only fatal errors.
void silence_sentencepiece() {
  static std::once_flag once;
  std::call_once(once, [] {
    const LibraryReserve reserve(size_t{32} << 10);
    sentencepiece::SentencePieceTrainer::Train(
        std::unordered_map<std::string, std::string>{{"minloglevel", "3"}})
        .IgnoreError();
  });
}

void validate_sentencepiece(const TokenizerTrainOptions& options) {
  check_user_symbols(options.user_symbols);
  const int64_t least = kSpecialTokens + 1 + (options.byte_fallback ? kByteTokens : 0) +
                        std::ssize(options.user_symbols);
  require_argument(options.vocab_size >= least && options.vocab_size <= limits::kVocabulary,
                   kTokenizerOrigin, "vocabulary", " is ", options.vocab_size,
                   ", it must lie between ", least, " and ", limits::kVocabulary);
  require_argument(options.character_coverage >= 0.98 && options.character_coverage <= 1.0,
                   kTokenizerOrigin, "character_coverage", " is ", options.character_coverage,
                   ", it must lie between 0.98 and 1");
  require_argument(options.max_sentences > 0, kTokenizerOrigin, "max_sentences", " is ",
                   options.max_sentences, ", it must be positive");
}

Tokenizer train_sentencepiece(std::span<const std::string_view> sentences,
                              const TokenizerTrainOptions& options) {
  silence_sentencepiece();
  require(!sentences.empty(), ErrorCode::invalid_argument, kTokenizerOrigin, "the corpus is empty");
  WorkProgress gathering(Work::gather_text, std::ssize(sentences));
  for (size_t i = 0; i < sentences.size(); ++i) {
    stop_if_cancelled(options.cancel, kTokenizerOrigin);
    check_text(sentences[i], concat("training sentence ", i + 1));
    gathering.add(1);
  }
  gathering.finish();

  // The library's own sampling draws from a generator that lives as long as the thread: a second
  // training would differ.
  const std::vector<std::string_view> sampled =
      sample({sentences.begin(), sentences.end()}, options.max_sentences, options.seed);
  wait_for_left_calls(options.cancel);
  if (options.cancel != nullptr) make_static_objects();
  const Rules& rules = rules_of(options.normalization, uses_non_joiner(sampled));
  TrainingText text = examine_training_text(sampled, rules.map, options.user_symbols);
  if (text.sentences.empty()) fail_without_sentences();
  Settings settings{
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
      {"num_threads", std::to_string(kThreads)},
      {"normalization_rule_name", normalization_name(options.normalization)},
  };
  if (!rules.blob.empty()) settings["precompiled_charsmap"] = rules.blob;
  if (!options.user_symbols.empty())
    settings["user_defined_symbols"] = comma_separated(options.user_symbols);
  // Special tokens are no characters, but count as such for the coverage: with enough of them no
  // character would be left, and the library ends the process. This one is in every sentence.
  if (text.has_special_token) settings["required_chars"] = kEscapedSpaceText;
  // The library counts characters, and what up to 16 of them occupy, in 32 bits unless it is told.
  if (text.characters > INT32_MAX || text.most_frequent > INT32_MAX / kLongestTrainedSubword)
    settings["train_extremely_large_corpus"] = "true";
  // Its suffix array and a million candidates.
  const size_t bytes = (size_t{16} << 20) + 128 * (text.bytes + text.sentences.size());
  WorkProgress learning(Work::learn_vocabulary);  // the library does not say how far it is
  const auto training =
      train_model(std::move(text.sentences), std::move(settings), bytes, options.cancel, &learning);
  require(!training->stopped(), ErrorCode::cancelled, kTokenizerOrigin, "cancelled by the caller");
  stop_if_cancelled(options.cancel, kTokenizerOrigin);
  learning.finish();
  if (!training->result().ok()) fail_training(training->result().error_message(), options);
  if (options.model == TokenizerModel::unigram) round_scores(training->serialized());
  return load_sentencepiece(training->serialized(), "trained tokenizer");
}

}  // namespace trafo
