#include <algorithm>
#include <atomic>
#include <exception>

#include "engine/core/status.h"
#include "engine/text/batcher.h"
#include "engine/text/shuffle.h"

namespace trafo {
namespace {

constexpr std::string_view kOrigin = "tokenized_corpus";

void check_options(const TokenizedCorpusOptions& options) {
  require(options.max_length >= 2, ErrorCode::invalid_argument, kOrigin, "max_length is ",
          options.max_length, ", it must be at least 2 (a token and </s>)");
  require(options.batch_tokens >= 2 && options.batch_tokens <= (1 << 28),
          ErrorCode::invalid_argument, kOrigin, "batch_tokens is ", options.batch_tokens,
          ", it must lie between 2 and ", 1 << 28);
}

void check_offsets(std::span<const int64_t> offsets, size_t tokens, std::string_view side) {
  require(!offsets.empty() && offsets.front() == 0 &&
              offsets.back() == static_cast<int64_t>(tokens) &&
              std::is_sorted(offsets.begin(), offsets.end()),
          ErrorCode::invalid_argument, kOrigin, side,
          " offsets must start at 0, never decrease and end at the number of tokens, ", tokens);
}

void check_ids(std::span<const int32_t> ids, int32_t vocab_size, std::string_view side) {
  for (size_t i = 0; i < ids.size(); ++i)
    require(ids[i] >= 0 && ids[i] < vocab_size, ErrorCode::invalid_argument, kOrigin, side,
            " token ", i, " is ", ids[i], ", the vocabulary has ", vocab_size, " pieces");
}

// Encodes every sentence; the result does not depend on num_threads.
std::vector<std::vector<int32_t>> encode_all(const std::vector<std::string>& sentences,
                                             const Tokenizer& tokenizer, int num_threads) {
  std::vector<std::vector<int32_t>> ids(sentences.size());
  constexpr size_t kChunk = 256;
  const size_t chunks = (sentences.size() + kChunk - 1) / kChunk;
  const size_t workers = std::clamp<size_t>(static_cast<size_t>(std::max(num_threads, 1)), 1,
                                            std::max<size_t>(chunks, 1));
  std::atomic<size_t> next_chunk{0};
  std::vector<std::exception_ptr> errors(workers);
  auto work = [&](size_t worker) {
    try {
      for (size_t chunk; (chunk = next_chunk.fetch_add(1)) < chunks;)
        for (size_t i = chunk * kChunk; i < std::min(sentences.size(), (chunk + 1) * kChunk); ++i)
          tokenizer.encode(sentences[i], ids[i]);
    } catch (...) {
      errors[worker] = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  for (size_t worker = 1; worker < workers; ++worker) threads.emplace_back(work, worker);
  work(0);
  threads.clear();  // joins
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return ids;
}

}  // namespace

TokenizedCorpus::TokenizedCorpus(const ParallelCorpus& corpus, const Tokenizer& tokenizer,
                                 const TokenizedCorpusOptions& options, int num_threads)
    : options_(options) {
  check_options(options);
  report_ = corpus.report;
  const auto source = encode_all(corpus.source, tokenizer, num_threads);
  const auto target = encode_all(corpus.target, tokenizer, num_threads);
  for (size_t i = 0; i < source.size(); ++i)
    add(source[i], target[i], tokenizer.eos_id(), static_cast<int64_t>(i));
  finish();
}

TokenizedCorpus::TokenizedCorpus(std::span<const int32_t> source,
                                 std::span<const int64_t> source_offsets,
                                 std::span<const int32_t> target,
                                 std::span<const int64_t> target_offsets, int32_t vocab_size,
                                 int32_t eos_id, const TokenizedCorpusOptions& options)
    : options_(options) {
  check_options(options);
  check_offsets(source_offsets, source.size(), "source");
  check_offsets(target_offsets, target.size(), "target");
  require(source_offsets.size() == target_offsets.size(), ErrorCode::invalid_argument, kOrigin,
          "the two sides differ in length: ", source_offsets.size() - 1, " source sentences, ",
          target_offsets.size() - 1, " target sentences");
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
    add(part(source, source_offsets), part(target, target_offsets), eos_id,
        static_cast<int64_t>(i));
  }
  finish();
}

void TokenizedCorpus::add(std::span<const int32_t> source, std::span<const int32_t> target,
                          int32_t eos_id, int64_t pair) {
  if (source.empty() || target.empty()) {
    ++report_.dropped_empty;
    return;
  }
  const auto source_length = static_cast<int64_t>(source.size()) + 1;  // with </s>
  const auto target_length = static_cast<int64_t>(target.size()) + 1;
  const bool decoder_only = options_.form == SequenceForm::decoder_only;
  const int64_t decoder_length = decoder_only ? source_length + target_length - 1 : target_length;
  const int64_t encoder_length = decoder_only ? 0 : source_length;
  if (decoder_length > std::min(options_.max_length, options_.batch_tokens) ||
      encoder_length > std::min<int64_t>(options_.max_length, 2 * int64_t{options_.batch_tokens})) {
    ++report_.dropped_long;
    return;
  }
  auto append = [eos_id](std::span<const int32_t> from, std::vector<int32_t>& ids,
                         std::vector<int64_t>& offsets) {
    ids.insert(ids.end(), from.begin(), from.end());
    ids.push_back(eos_id);
    offsets.push_back(static_cast<int64_t>(ids.size()));
  };
  append(source, source_ids_, source_offsets_);
  append(target, target_ids_, target_offsets_);
  pair_.push_back(pair);
}

void TokenizedCorpus::finish() {
  report_.pairs = size();
  require(size() > 0, ErrorCode::invalid_argument, kOrigin,
          "no sentence pair is left to train on: of ", report_.lines, " lines, ",
          report_.dropped_empty, " have an empty side and ", report_.dropped_long,
          " are longer than max_length ", options_.max_length, " or batch_tokens ",
          options_.batch_tokens);
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
