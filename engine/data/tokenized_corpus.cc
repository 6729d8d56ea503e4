#include "engine/data/tokenized_corpus.h"

#include <algorithm>
#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/core/numeric/shuffle.h"
#include "engine/core/progress.h"
#include "engine/core/status.h"
#include "engine/data/encode_pairs.h"
#include "engine/data/long_text.h"

namespace trafo {
namespace {

constexpr std::string_view kTokenizedCorpusOrigin = "tokenized_corpus";

void check_offsets(std::span<const int64_t> offsets, size_t tokens, std::string_view side) {
  require(!offsets.empty() && offsets.front() == 0 &&
              offsets.back() == static_cast<int64_t>(tokens) &&
              std::is_sorted(offsets.begin(), offsets.end()),
          ErrorCode::invalid_argument, kTokenizedCorpusOrigin, side,
          " offsets must start at 0, never decrease and end at the number of tokens, ", tokens);
}

void check_ids(std::span<const int32_t> ids, int32_t vocab_size, std::string_view side) {
  for (size_t i = 0; i < ids.size(); ++i)
    require(ids[i] >= 0 && ids[i] < vocab_size, ErrorCode::invalid_argument, kTokenizedCorpusOrigin,
            side, " token ", i, " is ", ids[i], ", the vocabulary has ", vocab_size, " tokens");
}

}  // namespace

void check_options(const TokenizedCorpusOptions& options) {
  require_argument(options.max_length >= 2, kTokenizedCorpusOrigin, "max_length", " is ",
                   options.max_length, ", it must be at least 2 (a token and </s>)");
  require_argument(options.batch_tokens >= 2 && options.batch_tokens <= (1 << 28),
                   kTokenizedCorpusOrigin, "batch_tokens", " is ", options.batch_tokens,
                   ", it must lie between 2 and ", 1 << 28);
  if (options.window_stride != 0) {
    require_argument(options.window_stride >= 1 && options.window_stride <= options.max_length,
                     kTokenizedCorpusOrigin, "window_stride", " is ", options.window_stride,
                     ", it must be 1 to max_length, ", options.max_length);
    require_argument(options.form == SequenceForm::decoder_only, kTokenizedCorpusOrigin,
                     "window_stride", " is of a decoder-lm alone");
    require_argument(options.batch_tokens >= options.max_length, kTokenizedCorpusOrigin,
                     "batch_tokens", " is ", options.batch_tokens,
                     ", a batch must hold a window of max_length, ", options.max_length);
  }
  require_argument(options.max_length_ratio == 0 ||
                       (std::isfinite(options.max_length_ratio) && options.max_length_ratio >= 1),
                   kTokenizedCorpusOrigin, "max_length_ratio", " is ", options.max_length_ratio,
                   ", it must be 0 (any) or at least 1");
}

int64_t stream_tokens(SequenceForm form, int64_t source, int64_t target) {
  switch (form) {
    case SequenceForm::encoder_decoder:
      return target;
    case SequenceForm::decoder_only:
      return source + target - 1;
    case SequenceForm::labelled:
      return source;
    case SequenceForm::masked:
      return source + target;
  }
  fail(ErrorCode::internal, kTokenizedCorpusOrigin, "the form is unknown");
}

PairDrops& PairDrops::operator+=(const PairDrops& other) noexcept {
  empty += other.empty;
  too_long += other.too_long;
  ratio += other.ratio;
  identical += other.identical;
  cut += other.cut;
  windows += other.windows;
  return *this;
}

bool keep_pair(const TokenizedCorpusOptions& options, CorpusForm form, const PairTokens& subwords,
               bool identical, PairDrops& drops, const PairFrame& frame, bool labelled) {
  const bool monolingual = form == CorpusForm::monolingual;
  const bool preferences = form == CorpusForm::preferences;
  const bool no_target = subwords.target.empty(), no_rejected = subwords.rejected.empty();
  if ((!monolingual && subwords.source.empty()) ||
      (labelled ? no_target && no_rejected : no_target || (preferences && no_rejected))) {
    ++drops.empty;
    return false;
  }
  const bool one_stream = options.form != SequenceForm::encoder_decoder;
  const auto length_of = [&](std::span<const int32_t> text) {
    return static_cast<int64_t>(text.size()) + frame.around_target();
  };
  const int64_t source = static_cast<int64_t>(subwords.source.size()) + frame.around_source();
  const auto decoded = [&](std::span<const int32_t> target) {
    return stream_tokens(options.form, source, length_of(target));
  };
  int64_t longest = decoded(subwords.target), all = longest, sources = one_stream ? 0 : source;
  if (preferences) {
    longest = std::max(longest, decoded(subwords.rejected));
    all += decoded(subwords.rejected);
    if (options.answers_apart) all = 2 * longest;
    sources *= 2;
  }
  if (const int64_t windows = windows_of(options, source, length_of(subwords.target));
      monolingual && windows > 1) {
    ++drops.cut;
    drops.windows += windows;
    return true;
  }
  if (longest > options.max_length || all > options.batch_tokens ||
      (!one_stream && source > options.max_length) || sources > 2 * int64_t{options.batch_tokens}) {
    ++drops.too_long;
    return false;
  }
  const auto [shorter, longer] = std::minmax({subwords.source.size(), subwords.target.size()});
  if (form == CorpusForm::parallel && options.form != SequenceForm::labelled &&
      options.max_length_ratio > 0 &&
      static_cast<double>(longer) > options.max_length_ratio * static_cast<double>(shorter)) {
    ++drops.ratio;
    return false;
  }
  if (!monolingual && !labelled && options.drop_identical && identical) {
    ++drops.identical;
    return false;
  }
  return true;
}

TokenizedCorpus::TokenizedCorpus(const TextCorpus& corpus, const PairEncoding& encoding,
                                 const TokenizedCorpusOptions& options, int num_threads,
                                 const CancelToken* cancel)
    : epochs_(corpus.epochs()) {
  check_options(options);
  options_ = options;
  form_ = corpus.form();
  labelled_ = corpus.labelled();
  report_ = corpus.report();
  // In chunks, so that most ids are never in memory twice.
  constexpr int64_t kBlock = 1 << 16;
  const PairFrame frame = frame_of(corpus, encoding);
  WorkProgress progress(Work::encode_text, corpus.size());
  for (int64_t begin = 0; begin < corpus.size(); begin += kBlock) {
    const int64_t count = std::min(kBlock, corpus.size() - begin);
    const auto pairs = encode_pairs(
        corpus, encoding, count, [begin](int64_t i) { return begin + i; }, {}, num_threads,
        cancel != nullptr ? &cancel->flag() : nullptr);
    require(pairs.has_value(), ErrorCode::cancelled, kTokenizedCorpusOrigin,
            "cancelled by the caller");
    for (const EncodedPair& pair : *pairs) add(pair.subwords(), frame, pair.identical);
    progress.add(count);
  }
  progress.finish();
  finish();
  // The fingerprint of the text, so that a run can resume with ids in memory or made as needed.
  fingerprint_ = tokenized_fingerprint(corpus, encoding, options_.form);
}

TokenizedCorpus::TokenizedCorpus(std::span<const int32_t> source,
                                 std::span<const int64_t> source_offsets,
                                 std::span<const int32_t> target,
                                 std::span<const int64_t> target_offsets, int32_t vocab_size,
                                 int32_t eos_id, const TokenizedCorpusOptions& options,
                                 std::span<const int32_t> rejected,
                                 std::span<const int64_t> rejected_offsets) {
  check_options(options);
  options_ = options;
  if (!rejected_offsets.empty()) form_ = CorpusForm::preferences;
  check_offsets(source_offsets, source.size(), "source");
  check_offsets(target_offsets, target.size(), "target");
  require(source_offsets.size() == target_offsets.size(), ErrorCode::invalid_argument,
          kTokenizedCorpusOrigin, sides_of(form_), " differ in length: ", source_offsets.size() - 1,
          " source sentences, ", target_offsets.size() - 1, " target sentences");
  if (preferences()) {
    check_offsets(rejected_offsets, rejected.size(), "rejected");
    require(rejected_offsets.size() == target_offsets.size(), ErrorCode::invalid_argument,
            kTokenizedCorpusOrigin, "there are ", target_offsets.size() - 1, " chosen answers and ",
            rejected_offsets.size() - 1, " rejected ones");
    check_ids(rejected, vocab_size, "rejected");
  }
  check_ids(source, vocab_size, "source");
  check_ids(target, vocab_size, "target");
  const int32_t eos[] = {eos_id};
  check_ids(eos, vocab_size, "end-of-sentence");
  const PairFrame ended{.source_begin = {}, .source_end = eos_id, .target_end = eos_id};
  const size_t pairs = source_offsets.size() - 1;
  report_.lines = static_cast<int64_t>(pairs);
  for (size_t i = 0; i < pairs; ++i) {
    auto part = [i](std::span<const int32_t> ids, std::span<const int64_t> offsets) {
      return ids.subspan(static_cast<size_t>(offsets[i]),
                         static_cast<size_t>(offsets[i + 1] - offsets[i]));
    };
    PairTokens pair{part(source, source_offsets), part(target, target_offsets)};
    if (preferences()) pair.rejected = part(rejected, rejected_offsets);
    add(pair, ended, std::ranges::equal(pair.target, preferences() ? pair.rejected : pair.source));
  }
  finish();
  hash_ids();
  epochs_ = EpochMix({{static_cast<int64_t>(pairs), 1.0}});
}

void TokenizedCorpus::Side::add(std::span<const int32_t> subwords, std::optional<int32_t> end,
                                std::optional<int32_t> begin) {
  if (begin) ids.push_back(*begin);
  ids.insert(ids.end(), subwords.begin(), subwords.end());
  if (end) ids.push_back(*end);
  offsets.push_back(static_cast<int64_t>(ids.size()));
}

std::span<const int32_t> TokenizedCorpus::Side::of(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  return std::span(ids).subspan(static_cast<size_t>(offsets[i]),
                                static_cast<size_t>(offsets[i + 1] - offsets[i]));
}

std::span<const uint8_t> TokenizedCorpus::learned(int64_t index) const {
  if (learned_.empty()) return {};
  const auto i = static_cast<size_t>(index);
  return std::span(learned_).subspan(static_cast<size_t>(target_.offsets[i]),
                                     target_.of(index).size());
}

int64_t PairTokens::labels() const noexcept {
  const auto all = std::ssize(target) + std::ssize(rejected);
  return learned.empty() ? all : std::count(learned.begin(), learned.end(), 1);
}

void TokenizedCorpus::add(const PairTokens& subwords, const PairFrame& frame, bool identical) {
  // Indices have 32 bits.
  require(index_.size() < INT32_MAX, ErrorCode::unsupported, kTokenizedCorpusOrigin,
          "there are more than 2^31 - 1 pairs; leave them on disk");
  PairDrops drops;
  const auto pair = static_cast<int64_t>(index_.size());
  index_.push_back(-1);
  const bool kept = keep_pair(options_, form_, subwords, identical, drops, frame, labelled_);
  report_.dropped_empty += drops.empty;
  report_.dropped_long += drops.too_long;
  report_.dropped_ratio += drops.ratio;
  report_.dropped_identical += drops.identical;
  report_.cut += drops.cut;
  report_.windows += drops.windows;
  if (!kept) return;
  source_.add(subwords.source, frame.source_end, frame.source_begin);
  const auto end_of = [&](std::span<const int32_t> answer) {
    return labelled_ && answer.empty() ? std::nullopt : frame.target_end;
  };
  target_.add(subwords.target, end_of(subwords.target));
  learned_.insert(learned_.end(), subwords.learned.begin(), subwords.learned.end());
  if (preferences()) rejected_.add(subwords.rejected, end_of(subwords.rejected));
  index_.back() = static_cast<int32_t>(pair_.size());
  pair_.push_back(pair);
}

void TokenizedCorpus::finish() {
  report_.pairs = size();
  require(
      size() > 0, ErrorCode::invalid_argument, kTokenizedCorpusOrigin,
      "no sentence pair is left to ", options_.purpose, ": of ", report_.lines, " lines, ",
      report_.dropped_empty, " have an empty side and ", report_.dropped_long, " are longer than ",
      options_.max_length, " tokens or than a batch of ", options_.batch_tokens,
      report_.dropped_ratio > 0 ? concat("; ", report_.dropped_ratio, " differ too much in length")
                                : "",
      report_.dropped_identical > 0
          ? concat("; ", report_.dropped_identical, " ", is_identical(preferences()))
          : "");
}

void TokenizedCorpus::hash_ids() {
  uint64_t hash = mix_bits(static_cast<uint64_t>(options_.form) + 1);
  auto take = [&hash](const auto& values) {
    for (const auto value : values) hash = mix_bits(hash ^ static_cast<uint64_t>(value)) + 1;
  };
  const auto take_side = [&](const Side& side) {
    take(side.ids);
    take(side.offsets);
  };
  take_side(source_);
  take_side(target_);
  if (preferences()) take_side(rejected_);
  fingerprint_ = hash;
}

void TokenizedCorpus::read(std::span<const uint32_t> draws, int64_t epoch, PairBlock& block,
                           const std::atomic<bool>*) const {
  block.ids.reserve(block.ids.size() + draws.size());
  block.tokens.reserve(block.tokens.size() + draws.size());
  for (const uint32_t draw : draws) {
    const int64_t pair = epochs_.pair(epoch, draw);
    const int32_t index = index_[static_cast<size_t>(pair)];
    block.ids.push_back(pair);
    block.tokens.push_back(
        index < 0 ? PairTokens{}
                  : PairTokens{source(index), target(index), rejected(index), learned(index)});
  }
}

}  // namespace trafo
