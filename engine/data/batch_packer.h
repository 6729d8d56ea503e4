// Packs sentences into a batch.
#pragma once

#include <cstdint>
#include <span>

#include "engine/data/packed_batch.h"
#include "engine/text/tokenizer/special_tokens.h"

namespace trafo {

// Empties a batch, then adds sentences to it. The decoder of an encoder_decoder reads start_id and
// all ids of the target but the last. Of the form `labelled`, a target of one id is the label of
// the text, which stands at its first token; otherwise it has a label for each token.
class BatchPacker {
 public:
  BatchPacker(PackedBatchHost& batch, SequenceForm form, int32_t start_id);
  // `learned`: see PairTokens.
  void add(std::span<const int32_t> source, std::span<const int32_t> target, int64_t sentence,
           std::span<const uint8_t> learned = {});
  // A preference pair: two sentences, of the source with each answer.
  void add_answers(std::span<const int32_t> source, std::span<const int32_t> chosen,
                   std::span<const int32_t> rejected, int64_t pair);
  // A labelled answer: a pair of sentences, of the source with it and with an answer to another
  // prompt. Only the former has weights. It is the first one if it is desirable. The labels of the
  // source are ignored.
  void add_labelled(std::span<const int32_t> source, std::span<const int32_t> answer,
                    std::span<const int32_t> other, bool desirable, int64_t pair);
  // A text of the form `masked`, `front` and the tokens of which some are masked: mask_tokens().
  void add_masked(std::span<const int32_t> front, std::span<const int32_t> text, int64_t sentence,
                  const TokenMasking& masking, uint64_t seed, uint64_t epoch);
  // The tokens of an encoder's text without labels; `types` may be empty: all are 0.
  void add_text(std::span<const int32_t> text, std::span<const int32_t> types);
  // A sentence without a target, for decoding with an encoder_decoder.
  void add_source(std::span<const int32_t> source);

 private:
  void append_source(std::span<const int32_t> source);

  void append_labels(std::span<const int32_t> source, std::span<const int32_t> labels,
                     std::span<const uint8_t> learned);

  PackedBatchHost& batch_;
  SequenceForm form_;
  int32_t start_id_;
};

// A batch as matrices of ids. Row i of the source is source[i * source_width ..] and has
// source_lengths[i] ids; the rest of the row is not read.
struct BatchRows {
  int64_t sentences = 0;
  const int32_t* source = nullptr;
  int64_t source_width = 0;
  const int32_t* source_lengths = nullptr;
  const int32_t* target = nullptr;
  int64_t target_width = 0;
  const int32_t* target_lengths = nullptr;
};

// The limits of a batch that the caller supplies.
struct BatchLimits {
  SequenceForm form;
  SpecialTokens tokens;
  int64_t vocabulary, source_vocabulary, max_positions;
  TextFrame frame = {};
};

// The empty source of a decoder_only row is TextFrame::front(). INVALID_ARGUMENT names the row and
// the reason.
void pack_rows(const BatchRows& rows, const BatchLimits& limits, PackedBatchHost& batch);

}  // namespace trafo
