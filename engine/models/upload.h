// Packed batches from host memory to the device of a context.
#pragma once

#include <array>
#include <cstddef>

#include "engine/data/packed_batch.h"
#include "engine/models/batch.h"
#include "engine/models/batch_bucket.h"
#include "engine/models/spec.h"
#include "engine/runtime/context.h"

namespace trafo {

// SHAPE_MISMATCH if the lengths of the fields do not fit together. INVALID_ARGUMENT if boundaries
// are not boundaries, if a field is of a side that the model does not have, or, for an accelerator,
// if a value is not what its FieldCheck allows. On the CPU the ops check the values.
void validate_batch(const Context& context, const PackedBatchHost& host, const ModelSpec& spec);

// Where the fields of a batch lie in one block of memory. The block has the sizes of a bucket; a
// batch that is smaller is padded to it.
class BatchLayout {
 public:
  // `dtype` is the model's. The first `header` bytes of the block are the caller's.
  BatchLayout(const BatchBucket& bucket, DType dtype, size_t header = 0);

  const BatchBucket& bucket() const { return bucket_; }
  int64_t words() const { return words_; }  // size of the block, in words of 4 bytes

  // Writes a validated batch into a block in host memory and pads it. Weights are divided by
  // `divisor`.
  void write(const PackedBatchHost& host, void* block, double divisor = 1) const;
  // Writes what a dry run reads: sentences of as equal a length as possible. All else stays as it
  // is.
  void write_boundaries(void* block) const;
  // The batch in a block, a tensor of words() int32.
  Batch view(const Tensor& block) const;

 private:
  void* at(const BatchField& field, void* block) const;
  int64_t count(const BatchField& field) const;
  DType dtype(const BatchField& field) const;

  BatchBucket bucket_;
  DType stat_dtype_;
  std::array<size_t, kBatchFields.size()> offsets_{};  // in bytes
  int64_t words_;
};

// The sum of the weights: the number of labels if the batch has no weights.
double label_count(const PackedBatchHost& host);

// A batch for a dry run on the meta device.
Batch dry_run_batch(Context& meta, const BatchLayout& layout);
// A validated batch on the device, in one allocation.
Batch upload(Context& context, const PackedBatchHost& host, const BatchLayout& layout);
// validate_batch(), then upload, for a model of `dtype`. A batch whose weights are all 0 is
// allowed.
Batch upload(Context& context, const PackedBatchHost& host, const ModelSpec& spec, DType dtype);

// The form of the sequences that a model trains on.
SequenceForm sequence_form(const ModelSpec& spec);

}  // namespace trafo
