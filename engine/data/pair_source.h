// The source of a batcher: pairs of token sequences.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/data/corpus.h"
#include "engine/data/token_masking.h"

namespace trafo {

// encoder_decoder: the encoder reads `source </s>`; the decoder reads `start target` and predicts
// `target </s>`. decoder_only: one stream `source </s> target </s>` with a loss on the target and
// its final </s>; of monolingual text `</s> text </s>` with a loss on all but the first token. A
// preference pair is two such sequences: of the prompt with the chosen answer, and with the
// rejected one. A model with another TextFrame reads `[bos] source [</s>] target </s>`.
// labelled: an encoder reads the source in its TextFrame, and its head predicts the target: the
// label of the text or one for each token. masked: an encoder reads a text in its TextFrame, of
// which it predicts masked tokens.
enum class SequenceForm { encoder_decoder, decoder_only, labelled, masked };

struct TokenizedCorpusOptions {
  SequenceForm form = SequenceForm::encoder_decoder;
  // Tokens of the longest source and of the longest target, </s> counted (encoder_decoder), or of
  // the longest stream: source + target + 1 (decoder_only) or the text of an encoder. Longer pairs
  // are dropped and counted.
  int32_t max_length = 256;
  // Above 0, of monolingual text (decoder_only): longer texts become windows (long_text.h). It is
  // the number of tokens from the start of one to the start of the next, at most max_length.
  int32_t window_stride = 0;
  int32_t batch_tokens = 4096;  // pairs that no batch of this budget can hold are dropped as well
  // Pairs with a side that has more than so many times the tokens of the other are dropped; 0: off.
  // Only of parallel text.
  double max_length_ratio = 0;
  // Drops pairs whose sides are the same text; of preferences, both answers.
  bool drop_identical = false;
  // Of preference pairs: each answer is a row by itself, of two sentences: it and the answer of
  // another row to its prompt (Kto).
  bool answers_apart = false;
  TokenMasking masking = {};         // of the form `masked`
  const char* purpose = "train on";  // for an error: no pair is left to ...
};
// The tokens that the model reads of a source and a target; an encoder_decoder reads the target.
int64_t stream_tokens(SequenceForm form, int64_t source, int64_t target);
// Throws INVALID_ARGUMENT naming the field.
void check_options(const TokenizedCorpusOptions& options);

// Pairs that were dropped, or cut into windows, when they were tokenised.
struct PairDrops {
  int64_t empty = 0, too_long = 0, ratio = 0, identical = 0;
  int64_t cut = 0, windows = 0;  // texts that became windows, and their windows
  int64_t total() const noexcept { return empty + too_long + ratio + identical; }
  PairDrops& operator+=(const PairDrops& other) noexcept;
  bool operator==(const PairDrops&) const = default;
};

// The tokens of a pair with </s>. All are empty if the pair was dropped.
struct PairTokens {
  std::span<const int32_t> source, target;
  // Of a preference pair, whose target is the chosen answer. A labelled answer has one of both.
  std::span<const int32_t> rejected = {};
  // For each token of the target, 1 if the loss counts it. Empty: it counts all. Of conversations,
  // whose first token is the source and all others the target.
  std::span<const uint8_t> learned = {};

  int64_t labels() const noexcept;  // tokens that the loss counts, unless they are masked
};

// The special tokens around the sides of a pair.
struct PairFrame {
  std::optional<int32_t> source_begin, source_end, target_end;

  int64_t around_source() const { return source_begin.has_value() + source_end.has_value(); }
  int64_t around_target() const { return target_end.has_value(); }
};

// Whether a pair is kept that will have these tokens and the frame. If not, counts it in `drops`.
// `labelled`: it may lack one of two answers.
bool keep_pair(const TokenizedCorpusOptions& options, CorpusForm form, const PairTokens& subwords,
               bool identical, PairDrops& drops, const PairFrame& frame, bool labelled = false);

struct PairBlock {
  std::vector<int64_t> ids;  // numbers of the pairs, counted before any is dropped
  std::vector<PairTokens> tokens;
  // Memory of `tokens`, unless the source owns it.
  std::vector<std::vector<int32_t>> storage;
  std::vector<std::vector<uint8_t>> marks;
  // Pairs of this block. Those that are known from the start are in report() instead.
  PairDrops dropped;
};

// Immutable. Several threads may call read() at once.
class PairSource {
 public:
  virtual ~PairSource() = default;
  // The number of draws in an epoch, counted from 0. An epoch is a permutation of its draws.
  virtual int64_t draws(int64_t epoch) const = 0;
  // Appends these draws of an epoch, in their order, long texts uncut. The result depends only on
  // the source, the epoch and the draws. When `stop` (may be null) becomes true, the work is
  // abandoned.
  virtual void read(std::span<const uint32_t> draws, int64_t epoch, PairBlock& block,
                    const std::atomic<bool>* stop) const = 0;
  // Whether its pairs are there to train on. If not, they have the sizes of other ones.
  virtual bool has_pairs() const noexcept { return true; }
  // Whether read() takes so long that it should run ahead on other threads.
  virtual bool is_slow() const noexcept { return false; }
  // Whether its pairs are preference pairs.
  bool preferences() const noexcept { return form_ == CorpusForm::preferences; }
  // Whether these have one answer each.
  bool labelled() const noexcept { return labelled_; }
  // Whether the tokens of a pair differ from epoch to epoch.
  virtual bool varies() const noexcept { return false; }

  // report().pairs counts the pairs that are kept, as far as that is known before they are read.
  const CorpusReport& report() const noexcept { return report_; }
  const TokenizedCorpusOptions& options() const noexcept { return options_; }
  // Kept in checkpoints, to notice that the corpus has changed when a run resumes.
  uint64_t fingerprint() const noexcept { return fingerprint_; }

 protected:
  TokenizedCorpusOptions options_;
  CorpusReport report_;
  CorpusForm form_ = CorpusForm::parallel;
  bool labelled_ = false;
  uint64_t fingerprint_ = 0;
};

}  // namespace trafo
