// The sizes of a micro-batch. The shapes and the allocation sequence of a step depend on nothing
// else.
#pragma once

#include <compare>
#include <cstdint>

#include "engine/data/packed_batch.h"
#include "engine/models/spec.h"

namespace trafo {

// On an accelerator, batches are padded to one of a few dozen buckets, so that each bucket is
// planned and captured as a graph once. The padding tokens form extra sentences at the end, and
// their labels are ignored. Real tokens keep their index in the batch and so their dropout masks:
// padding changes no result.
struct BatchBucket {
  int64_t sentences = 0;
  int64_t source_tokens = 0, target_tokens = 0;
  int64_t longest_source = 0, longest_target = 0;
  uint32_t fields = 0;  // bit i: the batch has field i of kBatchFields
  bool first = true;    // micro-batch of its update: gradients are overwritten, not accumulated

  bool has(FieldId id) const { return (fields >> static_cast<uint32_t>(id) & 1) != 0; }
  void add(FieldId id) { fields |= uint32_t{1} << static_cast<uint32_t>(id); }
  int64_t tokens(BatchSide side) const {
    return side == BatchSide::source ? source_tokens : target_tokens;
  }
  int64_t longest(BatchSide side) const {
    return side == BatchSide::source ? longest_source : longest_target;
  }

  auto operator<=>(const BatchBucket&) const = default;
};

// The fields that a Batcher packs for a model, of preference pairs or others, as
// BatchBucket::fields. `weighted`: the pairs are of TokenizedCorpusOptions::answers_apart.
uint32_t packed_fields(const ModelSpec& spec, bool preferences = false, bool weighted = false);

// The sizes of a validated batch.
BatchBucket exact_bucket(const PackedBatchHost& batch, bool first);

// The bucket that a batch of these sizes is padded to. A side grows by at most a sixteenth or 15
// tokens, whichever is more.
BatchBucket padded_bucket(const BatchBucket& exact);

}  // namespace trafo
