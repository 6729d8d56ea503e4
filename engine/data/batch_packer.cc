#include "engine/data/batch_packer.h"

#include <algorithm>

#include "engine/core/status.h"

namespace trafo {
namespace {

constexpr const char* kBatchPackerOrigin = "batch";

// Far above any real batch; products of two of them do not overflow.
constexpr int64_t kMostRows = int64_t{1} << 24, kMostIds = int64_t{1} << 28;

void append(std::span<const int32_t> from, std::vector<int32_t>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

// Appends the positions 0, 1, ... and the boundary of a sequence of `length` tokens.
void end_sequence(size_t length, std::vector<int32_t>& positions, std::vector<int32_t>& cu_seqlens,
                  int32_t& longest) {
  const auto tokens = static_cast<int32_t>(length);
  for (int32_t i = 0; i < tokens; ++i) positions.push_back(i);
  cu_seqlens.push_back(cu_seqlens.back() + tokens);
  longest = std::max(longest, tokens);
}

void check_matrix(const char* side, const int32_t* ids, int64_t width, const int32_t* lengths,
                  int64_t rows, int64_t least) {
  if (least == 0 && width == 0) return;  // no row has ids
  require(ids != nullptr && lengths != nullptr, ErrorCode::invalid_argument, kBatchPackerOrigin,
          "the ", side, " of the batch, or its lengths, is NULL");
  require(width >= 1 && width <= kMostIds / rows, ErrorCode::invalid_argument, kBatchPackerOrigin,
          "the ", side, " of the batch has ", rows, " rows of ", width, " ids: 1 to ",
          kMostIds / rows, " can be");
}

std::span<const int32_t> row_of(const char* side, const int32_t* ids, int64_t width,
                                const int32_t* lengths, int64_t row, int64_t vocabulary,
                                int64_t least) {
  const int64_t length = least == 0 && width == 0 ? 0 : lengths[row];
  require(length >= least && length <= width, ErrorCode::invalid_argument, kBatchPackerOrigin,
          "row ", row, " of the ", side, " has ", length, " ids, it must have ", least, " to ",
          width);
  const std::span<const int32_t> result(ids + row * width, static_cast<size_t>(length));
  for (const int32_t id : result)
    require(id >= 0 && id < vocabulary, ErrorCode::invalid_argument, kBatchPackerOrigin, "row ",
            row, " of the ", side, " has the id ", id, ", ids are 0 to ", vocabulary - 1);
  return result;
}

}  // namespace

BatchPacker::BatchPacker(PackedBatchHost& batch, SequenceForm form, int32_t start_id)
    : batch_(batch), form_(form), start_id_(start_id) {
  for_each_batch_field(batch, [](const BatchField&, auto& values) { values.clear(); });
  batch.sentence_ids.clear();
  batch.max_source_len = batch.max_target_len = 0;
  batch.label_count = 0;
  batch.elsewhere.reset();
  batch.target_cu_seqlens.push_back(0);
  if (form == SequenceForm::encoder_decoder) batch.source_cu_seqlens.push_back(0);
}

void BatchPacker::add(std::span<const int32_t> source, std::span<const int32_t> target,
                      int64_t sentence, std::span<const uint8_t> learned) {
  batch_.sentence_ids.push_back(sentence);
  size_t length = target.size();
  if (form_ == SequenceForm::labelled) {
    length = source.size();
    append(source, batch_.target_in);
    append_labels(source, target, learned);
  } else if (form_ == SequenceForm::decoder_only) {
    // Stream s1 .. sn </s> t1 .. tm </s>: read all but the last, predict all but the first; t1 is
    // predicted from the </s> between the two.
    length = source.size() + target.size() - 1;
    append(source, batch_.target_in);
    append(target.first(target.size() - 1), batch_.target_in);
    append(source.subspan(1), batch_.target_out);
    append(target, batch_.target_out);
    batch_.target_weights.insert(batch_.target_weights.end(), source.size() - 1, 0.0f);
    if (learned.empty())
      batch_.target_weights.insert(batch_.target_weights.end(), target.size(), 1.0f);
    else
      batch_.target_weights.insert(batch_.target_weights.end(), learned.begin(), learned.end());
  } else {
    append_source(source);
    batch_.target_in.push_back(start_id_);
    append(target.first(target.size() - 1), batch_.target_in);
    append(target, batch_.target_out);
  }
  end_sequence(length, batch_.target_positions, batch_.target_cu_seqlens, batch_.max_target_len);
  batch_.label_count += PairTokens{.source = {}, .target = target, .learned = learned}.labels();
}

void BatchPacker::add_answers(std::span<const int32_t> source, std::span<const int32_t> chosen,
                              std::span<const int32_t> rejected, int64_t pair) {
  for (const std::span<const int32_t> answer : {chosen, rejected}) {
    const auto sentence = static_cast<int32_t>(batch_.sentences());
    add(source, answer, pair);
    batch_.target_sentences.resize(batch_.target_in.size(), sentence);
  }
}

void BatchPacker::add_labelled(std::span<const int32_t> source, std::span<const int32_t> answer,
                               std::span<const int32_t> other, bool desirable, int64_t pair) {
  for (const bool own : {desirable, !desirable}) {
    const std::span<const int32_t> text = own ? answer : other;
    const auto sentence = static_cast<int32_t>(batch_.sentences());
    const size_t begin = batch_.target_out.size();
    add(source, text, pair);
    const size_t end = batch_.target_out.size();
    batch_.target_sentences.resize(end, sentence);
    batch_.target_weights.resize(end, 1.0f);  // those of an encoder_decoder
    std::fill(batch_.target_out.begin() + static_cast<std::ptrdiff_t>(begin),
              batch_.target_out.end() - std::ssize(text), kIgnoreLabel);
    if (own) continue;
    std::fill(batch_.target_weights.begin() + static_cast<std::ptrdiff_t>(begin),
              batch_.target_weights.end(), 0.0f);
    batch_.label_count -= std::ssize(text);
  }
}

void BatchPacker::append_labels(std::span<const int32_t> source, std::span<const int32_t> labels,
                                std::span<const uint8_t> learned) {
  append(labels, batch_.target_out);
  batch_.target_out.resize(batch_.target_in.size(), kIgnoreLabel);
  if (learned.empty())
    batch_.target_weights.insert(batch_.target_weights.end(), labels.size(), 1.0f);
  else
    batch_.target_weights.insert(batch_.target_weights.end(), learned.begin(), learned.end());
  require(labels.size() == 1 || labels.size() == source.size(), ErrorCode::invalid_argument,
          kBatchPackerOrigin, "a text of ", source.size(), " tokens has ", labels.size(),
          " labels, it has one or one for each token");
  batch_.target_weights.resize(batch_.target_in.size(), 0.0f);
}

void BatchPacker::add_masked(std::span<const int32_t> front, std::span<const int32_t> text,
                             int64_t sentence, const TokenMasking& masking, uint64_t seed,
                             uint64_t epoch) {
  for (const std::span<const int32_t> part : {front, text}) {
    append(part, batch_.target_in);
    append(part, batch_.target_out);
  }
  batch_.target_weights.resize(batch_.target_in.size(), 0.0f);
  const size_t first = batch_.target_in.size() - text.size();
  mask_tokens(masking, seed, epoch, std::span(batch_.target_in).subspan(first),
              std::span(batch_.target_weights).subspan(first));
  batch_.sentence_ids.push_back(sentence);
  end_sequence(front.size() + text.size(), batch_.target_positions, batch_.target_cu_seqlens,
               batch_.max_target_len);
  batch_.label_count += masked_count(masking, text);
}

void BatchPacker::add_text(std::span<const int32_t> text, std::span<const int32_t> types) {
  append(text, batch_.target_in);
  batch_.target_out.resize(batch_.target_in.size(), kIgnoreLabel);
  append(types, batch_.target_types);
  batch_.sentence_ids.push_back(0);
  end_sequence(text.size(), batch_.target_positions, batch_.target_cu_seqlens,
               batch_.max_target_len);
}

void BatchPacker::add_source(std::span<const int32_t> source) {
  append_source(source);
  batch_.target_cu_seqlens.push_back(batch_.target_cu_seqlens.back());
}

void BatchPacker::append_source(std::span<const int32_t> source) {
  append(source, batch_.source_ids);
  end_sequence(source.size(), batch_.source_positions, batch_.source_cu_seqlens,
               batch_.max_source_len);
}

void pack_rows(const BatchRows& rows, const BatchLimits& limits, PackedBatchHost& batch) {
  require(rows.sentences >= 1 && rows.sentences <= kMostRows, ErrorCode::invalid_argument,
          kBatchPackerOrigin, "the batch has ", rows.sentences, " sentences, it must have 1 to ",
          kMostRows);
  const bool decoder_only = limits.form == SequenceForm::decoder_only;
  require(decoder_only || limits.form == SequenceForm::encoder_decoder, ErrorCode::unsupported,
          kBatchPackerOrigin,
          "an encoder learns from a corpus: its batches have labels beside ids");
  const int64_t least = decoder_only ? 0 : 1;
  check_matrix("source", rows.source, rows.source_width, rows.source_lengths, rows.sentences,
               least);
  check_matrix("target", rows.target, rows.target_width, rows.target_lengths, rows.sentences, 1);
  BatchPacker packer(batch, limits.form, limits.tokens.start());
  const int32_t front = limits.frame.front(limits.tokens);
  for (int64_t i = 0; i < rows.sentences; ++i) {
    auto source = row_of("source", rows.source, rows.source_width, rows.source_lengths, i,
                         limits.source_vocabulary, least);
    if (source.empty()) source = {&front, 1};
    const auto target = row_of("target", rows.target, rows.target_width, rows.target_lengths, i,
                               limits.vocabulary, 1);
    const size_t longest =
        decoder_only ? source.size() + target.size() - 1 : std::max(source.size(), target.size());
    require(static_cast<int64_t>(longest) <= limits.max_positions, ErrorCode::invalid_argument,
            kBatchPackerOrigin, "row ", i, " has ", longest, " tokens, the model has ",
            limits.max_positions, " positions");
    packer.add(source, target, i);
  }
  batch.epoch = batch.index = 0;
  batch.last_in_epoch = false;
  batch.epoch_drops = {};
}

}  // namespace trafo
