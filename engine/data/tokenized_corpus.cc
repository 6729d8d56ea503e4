#include "engine/data/tokenized_corpus.h"

#include <algorithm>
#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/core/shuffle.h"
#include "engine/core/status.h"

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
  require_argument(options.max_length_ratio == 0 ||
                       (std::isfinite(options.max_length_ratio) && options.max_length_ratio >= 1),
                   kTokenizedCorpusOrigin, "max_length_ratio", " is ", options.max_length_ratio,
                   ", it must be 0 (any) or at least 1");
}

PairDrops& PairDrops::operator+=(const PairDrops& other) noexcept {
  empty += other.empty;
  too_long += other.too_long;
  ratio += other.ratio;
  identical += other.identical;
  return *this;
}

bool keep_pair(const TokenizedCorpusOptions& options, const PairSizes& sizes, bool identical,
               PairDrops& drops) {
  if ((!sizes.monolingual && sizes.source == 0) || sizes.target == 0) {
    ++drops.empty;
    return false;
  }
  const auto source_length = static_cast<int64_t>(sizes.source + sizes.end);
  const auto target_length = static_cast<int64_t>(sizes.target + sizes.end);
  const bool decoder_only = options.form == SequenceForm::decoder_only;
  const int64_t decoder_length = decoder_only ? source_length + target_length - 1 : target_length;
  const int64_t encoder_length = decoder_only ? 0 : source_length;
  if (decoder_length > std::min(options.max_length, options.batch_tokens) ||
      encoder_length > std::min<int64_t>(options.max_length, 2 * int64_t{options.batch_tokens})) {
    ++drops.too_long;
    return false;
  }
  if (sizes.monolingual) return true;
  const auto [shorter, longer] = std::minmax(sizes.source, sizes.target);
  if (options.max_length_ratio > 0 &&
      static_cast<double>(longer) > options.max_length_ratio * static_cast<double>(shorter)) {
    ++drops.ratio;
    return false;
  }
  if (options.drop_identical && identical) {
    ++drops.identical;
    return false;
  }
  return true;
}

TokenizedCorpus::TokenizedCorpus(const TextCorpus& corpus, const PairEncoding& encoding,
                                 const TokenizedCorpusOptions& options, int num_threads)
    : epochs_(corpus.epochs()), monolingual_(corpus.monolingual()) {
  check_options(options);
  options_ = options;
  report_ = corpus.report();
  // In chunks, so that most ids are never in memory twice.
  constexpr int64_t kBlock = 1 << 16;
  for (int64_t begin = 0; begin < corpus.size(); begin += kBlock) {
    const int64_t count = std::min(kBlock, corpus.size() - begin);
    const std::vector<EncodedPair> pairs = encode_pairs(
        corpus, encoding, count, [begin](int64_t i) { return begin + i; }, {}, num_threads);
    const auto end = corpus.has_ids() ? std::nullopt : std::optional(encoding.tokens.special.eos);
    for (const EncodedPair& pair : pairs) add(pair.source, pair.target, end, pair.identical);
  }
  finish();
  // The fingerprint of the text, so that a run can resume with ids in memory or made as needed.
  fingerprint_ = tokenized_fingerprint(corpus, encoding, options_.form);
}

TokenizedCorpus::TokenizedCorpus(std::span<const int32_t> source,
                                 std::span<const int64_t> source_offsets,
                                 std::span<const int32_t> target,
                                 std::span<const int64_t> target_offsets, int32_t vocab_size,
                                 int32_t eos_id, const TokenizedCorpusOptions& options) {
  check_options(options);
  options_ = options;
  check_offsets(source_offsets, source.size(), "source");
  check_offsets(target_offsets, target.size(), "target");
  require(source_offsets.size() == target_offsets.size(), ErrorCode::invalid_argument,
          kTokenizedCorpusOrigin, "the two sides differ in length: ", source_offsets.size() - 1,
          " source sentences, ", target_offsets.size() - 1, " target sentences");
  check_ids(source, vocab_size, "source");
  check_ids(target, vocab_size, "target");
  const int32_t eos[] = {eos_id};
  check_ids(eos, vocab_size, "end-of-sentence");
  const size_t pairs = source_offsets.size() - 1;
  report_.lines = static_cast<int64_t>(pairs);
  for (size_t i = 0; i < pairs; ++i) {
    auto part = [i](std::span<const int32_t> ids, std::span<const int64_t> offsets) {
      return ids.subspan(static_cast<size_t>(offsets[i]),
                         static_cast<size_t>(offsets[i + 1] - offsets[i]));
    };
    const auto source_part = part(source, source_offsets);
    const auto target_part = part(target, target_offsets);
    add(source_part, target_part, eos_id, std::ranges::equal(source_part, target_part));
  }
  finish();
  hash_ids();
  epochs_ = EpochMix({{static_cast<int64_t>(pairs), 1.0}});
}

void TokenizedCorpus::add(std::span<const int32_t> source, std::span<const int32_t> target,
                          std::optional<int32_t> end, bool identical) {
  // Indices have 32 bits.
  require(index_.size() < INT32_MAX, ErrorCode::unsupported, kTokenizedCorpusOrigin,
          "there are more than 2^31 - 1 pairs; leave them on disk");
  PairDrops drops;
  const auto pair = static_cast<int64_t>(index_.size());
  index_.push_back(-1);
  const bool kept =
      keep_pair(options_, {source.size(), target.size(), end ? size_t{1} : 0, monolingual_},
                identical, drops);
  report_.dropped_empty += drops.empty;
  report_.dropped_long += drops.too_long;
  report_.dropped_ratio += drops.ratio;
  report_.dropped_identical += drops.identical;
  if (!kept) return;
  auto append = [end](std::span<const int32_t> from, std::vector<int32_t>& ids,
                      std::vector<int64_t>& offsets) {
    ids.insert(ids.end(), from.begin(), from.end());
    if (end) ids.push_back(*end);
    offsets.push_back(static_cast<int64_t>(ids.size()));
  };
  append(source, source_ids_, source_offsets_);
  append(target, target_ids_, target_offsets_);
  index_.back() = static_cast<int32_t>(pair_.size());
  pair_.push_back(pair);
}

void TokenizedCorpus::finish() {
  report_.pairs = size();
  require(
      size() > 0, ErrorCode::invalid_argument, kTokenizedCorpusOrigin,
      "no sentence pair is left to train on: of ", report_.lines, " lines, ", report_.dropped_empty,
      " have an empty side and ", report_.dropped_long, " are longer than ", options_.max_length,
      " tokens or than a batch of ", options_.batch_tokens,
      report_.dropped_ratio > 0 ? concat("; ", report_.dropped_ratio, " differ too much in length")
                                : "",
      report_.dropped_identical > 0
          ? concat("; ", report_.dropped_identical, " have the same text on both sides")
          : "");
}

void TokenizedCorpus::hash_ids() {
  uint64_t hash = mix_bits(static_cast<uint64_t>(options_.form) + 1);
  auto take = [&hash](const auto& values) {
    for (const auto value : values) hash = mix_bits(hash ^ static_cast<uint64_t>(value)) + 1;
  };
  take(source_ids_);
  take(source_offsets_);
  take(target_ids_);
  take(target_offsets_);
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
    block.tokens.push_back(index < 0 ? PairTokens{} : PairTokens{source(index), target(index)});
  }
}

std::span<const int32_t> TokenizedCorpus::source(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  return std::span(source_ids_)
      .subspan(static_cast<size_t>(source_offsets_[i]),
               static_cast<size_t>(source_offsets_[i + 1] - source_offsets_[i]));
}

std::span<const int32_t> TokenizedCorpus::target(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  return std::span(target_ids_)
      .subspan(static_cast<size_t>(target_offsets_[i]),
               static_cast<size_t>(target_offsets_[i + 1] - target_offsets_[i]));
}

}  // namespace trafo
