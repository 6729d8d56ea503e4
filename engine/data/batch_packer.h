// Sentences to a packed batch.
#pragma once

#include <span>

#include "engine/data/packed_batch.h"

namespace trafo {

// Empties a batch, then adds pairs to it. Token ids end with eos; of encoder_decoder the decoder
// reads start_id and all but the last.
class BatchPacker {
 public:
  BatchPacker(PackedBatchHost& batch, SequenceForm form, int32_t start_id);
  void add(std::span<const int32_t> source, std::span<const int32_t> target, int64_t sentence);

 private:
  PackedBatchHost& batch_;
  bool decoder_only_;
  int32_t start_id_;
};

// A batch as rows of ids: row i is source[i * source_width ..] with source_lengths[i] ids, the rest
// of it is not read.
struct BatchRows {
  int64_t sentences = 0;
  const int32_t* source = nullptr;
  int64_t source_width = 0;
  const int32_t* source_lengths = nullptr;
  const int32_t* target = nullptr;
  int64_t target_width = 0;
  const int32_t* target_lengths = nullptr;
};

// What a batch of a program's own must fit.
struct BatchLimits {
  SequenceForm form;
  int32_t start_id;
  int64_t vocabulary, max_positions;
};

// INVALID_ARGUMENT naming the row and what is wrong with it.
void pack_rows(const BatchRows& rows, const BatchLimits& limits, PackedBatchHost& batch);

}  // namespace trafo
