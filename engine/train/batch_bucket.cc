#include "engine/train/batch_bucket.h"

#include <algorithm>
#include <bit>

#include "engine/models/batch.h"
#include "engine/ops/attention/attention.h"

namespace trafo {
namespace {

int64_t round_up(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

// Sixteen sizes for every doubling.
int64_t padded_tokens(int64_t tokens) {
  if (tokens == 0) return 0;
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens)));
  return round_up(tokens, std::max<int64_t>(16, below / 16));
}

// Sentences that `tokens` fill up, none longer than `longest`.
int64_t fillers(int64_t tokens, int64_t longest) {
  return tokens == 0 ? 0 : (tokens + longest - 1) / longest;
}

// `tokens` in so many sentences; sentence i ends at boundaries[i + 1].
void fill_side(int64_t sentences, int64_t tokens, std::vector<int32_t>& positions,
               std::vector<int32_t>& boundaries) {
  boundaries.push_back(0);
  for (int64_t s = 0; s < sentences; ++s) {
    const int64_t length = tokens * (s + 1) / sentences - tokens * s / sentences;
    for (int64_t i = 0; i < length; ++i) positions.push_back(static_cast<int32_t>(i));
    boundaries.push_back(static_cast<int32_t>(positions.size()));
  }
}

}  // namespace

BatchBucket exact_bucket(const PackedBatchHost& batch, const ModelConfig& config, bool first) {
  BatchBucket exact;
  exact.sentences = static_cast<int64_t>(batch.target_cu_seqlens.size()) - 1;
  exact.source_tokens = static_cast<int64_t>(batch.source_ids.size());
  exact.target_tokens = static_cast<int64_t>(batch.target_in.size());
  exact.with_source = config.architecture == Architecture::encoder_decoder;
  exact.longest_source = exact.with_source ? longest_sentence(batch.source_cu_seqlens) : 0;
  exact.longest_target = longest_sentence(batch.target_cu_seqlens);
  exact.weighted = !batch.target_weights.empty();
  exact.first = first;
  return exact;
}

BatchBucket padded_bucket(const BatchBucket& exact) {
  BatchBucket shape = exact;
  // By what attention's dropout elements do not change with.
  shape.longest_source = dropout_key_stride(exact.longest_source);
  shape.longest_target = dropout_key_stride(exact.longest_target);
  shape.source_tokens = padded_tokens(exact.source_tokens);
  shape.target_tokens = padded_tokens(exact.target_tokens);
  const int64_t more = std::max(fillers(shape.target_tokens - exact.target_tokens,
                                        std::max<int64_t>(1, shape.longest_target)),
                                fillers(shape.source_tokens - exact.source_tokens,
                                        std::max<int64_t>(1, shape.longest_source)));
  const auto below = static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, exact.sentences + more))));
  shape.sentences = round_up(exact.sentences + more, std::max<int64_t>(8, below / 8));
  return shape;
}

PackedBatchHost batch_of(const BatchBucket& shape) {
  PackedBatchHost batch;
  fill_side(shape.sentences, shape.target_tokens, batch.target_positions, batch.target_cu_seqlens);
  batch.target_in.resize(batch.target_positions.size());
  batch.target_out.resize(batch.target_positions.size());
  if (shape.weighted) batch.target_weights.assign(batch.target_positions.size(), 1.0f);
  if (!shape.with_source) return batch;
  fill_side(shape.sentences, shape.source_tokens, batch.source_positions, batch.source_cu_seqlens);
  batch.source_ids.resize(batch.source_positions.size());
  return batch;
}

}  // namespace trafo
