// A packed batch in host memory, and the list of fields that every form of a batch is made from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "engine/data/pair_source.h"

namespace trafo {

// A label that takes no part in the loss.
inline constexpr int32_t kIgnoreLabel = -100;

enum class BatchSide : uint8_t { source, target };
enum class FieldExtent : uint8_t { tokens, boundaries };
enum class FieldCheck : uint8_t {
  token_id,  // 0 to vocabulary - 1
  position,  // 0 to max_positions - 1
  label,     // a row of the output matrix, or kIgnoreLabel
  boundary,  // starts at 0, never decreases, ends at the number of tokens of its side
  weight,    // not negative, not NaN
  token_type,
  none,
};

enum class FieldId : uint8_t {
#define BATCH_FIELD(name, ...) name,
#include "engine/data/batch_fields.def"
#undef BATCH_FIELD
};

// The columns of batch_fields.def.
struct BatchField {
  FieldId id;
  const char* name;
  bool is_float;
  BatchSide side;
  FieldExtent extent;
  FieldCheck check;
  double padding;
  std::optional<double> if_absent;
};

inline constexpr std::nullopt_t kRequired = std::nullopt;

inline constexpr auto kBatchFields = std::to_array<BatchField>({
#define BATCH_FIELD(name, element, side, extent, check, padding, if_absent) \
  {FieldId::name,                                                           \
   #name,                                                                   \
   std::is_same_v<element, float>,                                          \
   BatchSide::side,                                                         \
   FieldExtent::extent,                                                     \
   FieldCheck::check,                                                       \
   padding,                                                                 \
   if_absent},
#include "engine/data/batch_fields.def"
#undef BATCH_FIELD
});

// Counts of a batch.
struct BatchCounts {
  int64_t sentences = 0;
  int64_t source_tokens = 0, target_tokens = 0;  // read by the encoder and by the decoder
};

// n sentences, packed without padding. A decoder_only batch leaves the source fields empty and has
// the whole stream, source and target, in target_in.
struct PackedBatchHost {
#define BATCH_FIELD(name, element, ...) std::vector<element> name;
#include "engine/data/batch_fields.def"
#undef BATCH_FIELD
  std::vector<int64_t> sentence_ids;  // [n]: numbers of the pairs in the corpus
  int32_t max_source_len = 0;
  int32_t max_target_len = 0;
  int64_t label_count = 0;  // predictions that count: the sum of the weights
  int64_t epoch = 0;        // counted from 0
  int64_t index = 0;        // of the batch in its epoch
  bool last_in_epoch = false;
  // Another rank computes the batch: it has no fields here, only these counts and label_count.
  std::optional<BatchCounts> elsewhere;
  PairDrops epoch_drops;  // last_in_epoch: of the whole epoch, found when its pairs were read

  int64_t sentences() const noexcept {
    return static_cast<int64_t>(sentence_ids.size());
  }
  BatchCounts counts() const noexcept {
    if (elsewhere) return *elsewhere;
    return {static_cast<int64_t>(target_cu_seqlens.size()) - 1,
            static_cast<int64_t>(source_ids.size()), static_cast<int64_t>(target_in.size())};
  }
};

// visit(field, values) for each field of a host batch; values is its std::vector.
template <class HostBatch, class Visit>
void for_each_batch_field(HostBatch& batch, Visit&& visit) {
#define BATCH_FIELD(name, ...) visit(kBatchFields[static_cast<size_t>(FieldId::name)], batch.name);
#include "engine/data/batch_fields.def"
#undef BATCH_FIELD
}

}  // namespace trafo
