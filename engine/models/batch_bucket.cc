#include "engine/models/batch_bucket.h"

#include <algorithm>
#include <bit>

#include "engine/models/batch.h"
#include "engine/ops/attention/attention.h"

namespace trafo {
namespace {

static_assert(kBatchFields.size() <= 32, "BatchBucket::fields has 32 bits");

int64_t round_up(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

// Sixteen sizes for every doubling.
int64_t padded_tokens(int64_t tokens) {
  if (tokens == 0) return 0;
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens)));
  return round_up(tokens, std::max<int64_t>(16, below / 16));
}

// Sentences that `tokens` of padding form, none longer than `longest`.
int64_t padding_sentences(int64_t tokens, int64_t longest) {
  return tokens == 0 ? 0 : (tokens + longest - 1) / longest;
}

}  // namespace

uint32_t packed_fields(const ModelSpec& spec, bool preferences, bool weighted) {
  BatchBucket bucket;
  for (const BatchField& field : kBatchFields)
    if (!field.if_absent && (field.side == BatchSide::target || spec.has_encoder()))
      bucket.add(field.id);
  // In the one stream of a decoder_lm the labels of the source do not count.
  if (!spec.has_encoder() || weighted) bucket.add(FieldId::target_weights);
  if (preferences) bucket.add(FieldId::target_sentences);
  return bucket.fields;
}

BatchBucket exact_bucket(const PackedBatchHost& batch, bool first) {
  BatchBucket exact;
  exact.sentences = static_cast<int64_t>(batch.target_cu_seqlens.size()) - 1;
  exact.source_tokens = static_cast<int64_t>(batch.source_ids.size());
  exact.target_tokens = static_cast<int64_t>(batch.target_in.size());
  exact.longest_source = longest_sentence(batch.source_cu_seqlens);
  exact.longest_target = longest_sentence(batch.target_cu_seqlens);
  const bool with_source = !batch.source_cu_seqlens.empty();
  for_each_batch_field(batch, [&](const BatchField& field, const auto& values) {
    const bool on_side = field.side == BatchSide::target || with_source;
    if (on_side && !(field.if_absent && values.empty())) exact.add(field.id);
  });
  exact.first = first;
  return exact;
}

BatchBucket padded_bucket(const BatchBucket& exact) {
  BatchBucket padded = exact;
  // Attention's dropout masks depend on the longest length only through this stride.
  padded.longest_source = dropout_key_stride(exact.longest_source);
  padded.longest_target = dropout_key_stride(exact.longest_target);
  padded.source_tokens = padded_tokens(exact.source_tokens);
  padded.target_tokens = padded_tokens(exact.target_tokens);
  const int64_t more = std::max(padding_sentences(padded.target_tokens - exact.target_tokens,
                                                  std::max<int64_t>(1, padded.longest_target)),
                                padding_sentences(padded.source_tokens - exact.source_tokens,
                                                  std::max<int64_t>(1, padded.longest_source)));
  const auto below = static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, exact.sentences + more))));
  padded.sentences = round_up(exact.sentences + more, std::max<int64_t>(8, below / 8));
  return padded;
}

}  // namespace trafo
