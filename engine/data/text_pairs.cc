#include "engine/data/text_pairs.h"

#include "engine/core/numeric/shuffle.h"
#include "engine/core/status.h"

namespace trafo {

TextPairs::TextPairs(TextCorpus corpus, PairEncoding encoding,
                     const TokenizedCorpusOptions& options, const SubwordSampling& sampling,
                     int num_threads)
    : corpus_(std::move(corpus)),
      encoding_(std::move(encoding)),
      epochs_(corpus_.epochs()),
      sampling_(sampling),
      num_threads_(num_threads) {
  check_options(options);
  require(!corpus_.has_chats() || (sampling.source_alpha == 0 && sampling.target_alpha == 0),
          ErrorCode::unsupported, "corpus", "subwords are not sampled in conversations");
  options_ = options;
  report_ = corpus_.report();
  form_ = corpus_.form();
  labelled_ = corpus_.labelled();
  fingerprint_ = tokenized_fingerprint(corpus_, encoding_, options_.form);
  if (encoding_.tokenizer) targets_ = encoding_.tokenizer->for_targets();
  if (sampling.source_alpha > 0) sampler_ = encoding_.tokenizer->sampler();
  if (sampling.target_alpha > 0) target_sampler_ = targets_->sampler();
}

void TextPairs::read(std::span<const uint32_t> draws, int64_t epoch, PairBlock& block,
                     const std::atomic<bool>* stop) const {
  const auto count = static_cast<int64_t>(draws.size());
  const auto pair_of = [&](int64_t i) {
    return epochs_.pair(epoch, int64_t{draws[static_cast<size_t>(i)]});
  };
  Encoder encoder;
  if (varies())
    encoder = [&](std::string_view text, int side, int64_t i, std::vector<int32_t>& ids) {
      const double alpha = side == 0 ? sampling_.source_alpha : sampling_.target_alpha;
      if (alpha == 0) {
        (side == 0 ? encoding_.tokenizer : targets_)->encode(text, ids);
        return;
      }
      // Each side of each draw has its own random stream, so the order of threads is
      // irrelevant.
      const uint64_t draw = draws[static_cast<size_t>(i)];
      const uint64_t base = side == 2 ? ~sampling_.seed : sampling_.seed;
      ShuffleRng rng(mix_bits(base + 2 * draw + static_cast<uint64_t>(side) + 1),
                     static_cast<uint64_t>(epoch));
      (side == 0 ? sampler_ : target_sampler_)->sample(text, alpha, rng, ids);
    };
  const auto encoded =
      encode_pairs(corpus_, encoding_, count, pair_of, encoder, num_threads_, stop);
  if (!encoded) return;

  size_t tokens = 0;
  for (const EncodedPair& pair : *encoded)
    tokens += pair.source.size() + pair.target.size() + pair.rejected.size() + 4;
  std::vector<int32_t>& ids = block.storage.emplace_back();
  ids.reserve(tokens);  // spans point into it, so it must not reallocate
  std::vector<uint8_t>* marks = nullptr;
  if (corpus_.has_chats() || encoding_.labels.of_tokens) {
    marks = &block.marks.emplace_back();
    marks->reserve(tokens);
  }
  const PairFrame frame = frame_of(corpus_, encoding_);
  const auto append = [&](const std::vector<int32_t>& from, std::optional<int32_t> end,
                          std::optional<int32_t> front = {}) {
    const size_t begin = ids.size();
    if (front) ids.push_back(*front);
    ids.insert(ids.end(), from.begin(), from.end());
    if (end) ids.push_back(*end);
    return std::span<const int32_t>(ids).subspan(begin);
  };
  for (int64_t i = 0; i < count; ++i) {
    const EncodedPair& pair = (*encoded)[static_cast<size_t>(i)];
    block.ids.push_back(pair_of(i));
    PairTokens& out = block.tokens.emplace_back();
    if (!keep_pair(options_, form_, pair.subwords(), pair.identical, block.dropped, frame,
                   labelled_))
      continue;
    const auto end_of = [&](const std::vector<int32_t>& answer) {
      return labelled_ && answer.empty() ? std::nullopt : frame.target_end;
    };
    out.source = append(pair.source, frame.source_end, frame.source_begin);
    out.target = append(pair.target, end_of(pair.target));
    if (preferences()) out.rejected = append(pair.rejected, end_of(pair.rejected));
    if (marks == nullptr) continue;
    const size_t begin = marks->size();
    marks->insert(marks->end(), pair.learned.begin(), pair.learned.end());
    out.learned = std::span<const uint8_t>(*marks).subspan(begin);
  }
}

}  // namespace trafo
