// Translator's vectors and labels of texts.
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/core/argument_error.h"
#include "engine/data/label_encoding.h"
#include "engine/decode/translator.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/segment_mean/segment_mean.h"
#include "engine/ops/unary/unary.h"

namespace trafo {
namespace {

constexpr TextFrame kBare{.begin = false, .end = false};

// The rows of `values` that begin the texts.
Tensor rows_of_firsts(Context& context, const Tensor& values, const Tensor& cu_seqlens) {
  const Tensor firsts = cu_seqlens.as_strided({cu_seqlens.dim(0) - 1}, {1}, cu_seqlens.offset());
  ops::EmbeddingOptions options;
  options.indices_validated = true;
  return ops::embedding(context, firsts, values, options);
}

}  // namespace

std::vector<std::vector<int32_t>> Translator::framed(
    std::span<const std::string_view> lines) const {
  std::vector<std::vector<int32_t>> rows;
  const TextFrame around = tokens().frame;
  for (size_t i = 0; i < lines.size(); ++i) {
    rows.push_back(encode(tokenizer(), lines[i], "", i + 1, around));
    if (rows.back().empty()) rows.back().push_back(around.front(tokens().special));
  }
  return rows;
}

// BERT reads `[CLS] a [SEP] b [SEP]`, with the type 1 after the first [SEP], and ModernBERT the
// same without types; RoBERTa reads `<s> a </s></s> b </s>`.
TypedRows Translator::framed_pairs(std::span<const std::string_view> first,
                                   std::span<const std::string_view> second) const {
  require(first.size() == second.size(), ErrorCode::invalid_argument, "classify", "there are ",
          first.size(), " first texts and ", second.size(), " second ones");
  const ModelSpec& spec = model_.spec();
  const SpecialTokens special = tokens().special;
  const bool one_end =
      spec.head.of_class == EncoderClass::bert || spec.head.of_class == EncoderClass::modernbert;
  TypedRows pairs;
  for (size_t i = 0; i < first.size(); ++i) {
    std::vector<int32_t>& row = pairs.rows.emplace_back();
    const auto add = [&](std::span<const int32_t> ids) {
      row.insert(row.end(), ids.begin(), ids.end());
    };
    if (special.bos >= 0) row.push_back(special.bos);
    add(encode(tokenizer(), first[i], "first text, ", i + 1, kBare));
    row.push_back(special.eos);
    const size_t before = row.size();
    if (!one_end) row.push_back(special.eos);
    add(encode(tokenizer(), second[i], "second text, ", i + 1, kBare));
    row.push_back(special.eos);
    if (spec.embedding.token_types < 2 || !one_end) continue;
    std::vector<int32_t>& types = pairs.types.emplace_back(before, 0);
    types.resize(row.size(), 1);
  }
  return pairs;
}

Batch Translator::packed_texts(const char* origin, std::span<const std::vector<int32_t>> rows,
                               std::span<const std::vector<int32_t>> types) const {
  const ModelSpec& spec = model_.spec();
  require(!rows.empty(), ErrorCode::invalid_argument, origin, "there are no lines");
  require(types.empty() || types.size() == rows.size(), ErrorCode::invalid_argument, origin,
          "there are ", rows.size(), " rows of ids and ", types.size(), " of token types");
  int64_t count = 0;
  std::vector<const std::vector<int32_t>*> members;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t length = std::ssize(rows[i]);
    const auto check = [&](bool condition, const auto&... why) {
      require(condition, ErrorCode::invalid_argument, origin, "line ", i + 1, " has ", why...);
    };
    check(length >= 1, "no tokens");
    check(length <= spec.max_positions, length, " tokens, the model takes at most ",
          spec.max_positions);
    for (const int32_t id : rows[i])
      check(id >= 0 && id < spec.source_vocabulary(), "token ", id, ", the vocabulary has 0 to ",
            spec.source_vocabulary() - 1);
    if (!types.empty()) {
      check(types[i].size() == rows[i].size(), length, " tokens and ", types[i].size(),
            " token types");
      for (const int32_t type : types[i])
        check(type >= 0 && type < spec.embedding.token_types, "token type ", type,
              ", the model has ", spec.embedding.token_types);
    }
    count += length;
    members.push_back(&rows[i]);
  }
  require(count <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument, origin,
          "the lines have ", count, " tokens, one call takes fewer than 2^31");
  return pack_texts(context_, spec, members, types);
}

const Tensor& Translator::text_bounds(const Batch& batch) const {
  return model_.spec().has_encoder() ? batch.source_cu_seqlens : batch.target_cu_seqlens;
}

Tensor Translator::embed(std::span<const std::string_view> lines, Pooling pooling,
                         bool normalize) const {
  return embed_ids(framed(lines), pooling, normalize);
}

Tensor Translator::embed_ids(std::span<const std::vector<int32_t>> rows, Pooling pooling,
                             bool normalize) const {
  constexpr const char* kOrigin = "embed";
  constexpr double kLeastNorm = 1e-12;
  require_argument(is_known(pooling), kOrigin, "pooling",
                   " is unknown: ", static_cast<int32_t>(pooling));
  const Batch batch = packed_texts(kOrigin, rows);
  Tensor states = model_.states(context_, batch);
  if (states.dtype() == DType::bf16) states = ops::cast(context_, states, DType::f32);
  const Tensor& bounds = text_bounds(batch);
  const Tensor vectors = pooling == Pooling::mean ? ops::segment_mean(context_, states, bounds)
                                                  : rows_of_firsts(context_, states, bounds);
  if (!normalize) return vectors;
  const Tensor squares = ops::sum(context_, ops::multiply(context_, vectors, vectors), 1, true);
  const Tensor norms = ops::clamp(context_, ops::sqrt(context_, squares), kLeastNorm,
                                  std::numeric_limits<double>::infinity());
  return ops::divide(context_, vectors, norms);
}

PackedLabels Translator::classify_words(std::span<const std::string_view> lines) const {
  const VocabularyTokens around = tokens();
  std::vector<std::vector<int32_t>> rows;
  std::vector<int32_t> firsts, bounds{0};  // the tokens that begin words, in the batch
  int32_t before = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<int32_t>& row = rows.emplace_back();
    std::vector<uint8_t> begins;
    try {
      encode_words(tokenizer(), lines[i], row, begins);
    } catch (const Error& error) {
      fail(error.code(), error.origin(), "line ", i + 1, ": ", error.message());
    }
    if (around.frame.begin) row.insert(row.begin(), around.special.bos);
    if (around.frame.end || row.empty()) row.push_back(around.special.eos);
    const int32_t shift = before + (around.frame.begin ? 1 : 0);
    for (size_t k = 0; k < begins.size(); ++k)
      if (begins[k] != 0) firsts.push_back(shift + static_cast<int32_t>(k));
    bounds.push_back(static_cast<int32_t>(firsts.size()));
    before += static_cast<int32_t>(row.size());
  }
  require(!firsts.empty(), ErrorCode::invalid_argument, "classify", "the lines have no words");
  const Tensor logits = classify_ids(rows).logits;
  const auto upload = [&](const std::vector<int32_t>& values) {
    return context_.from_values<int32_t>(values, {std::ssize(values)});
  };
  ops::EmbeddingOptions options;
  options.indices_validated = true;
  return {ops::embedding(context_, upload(firsts), logits, options), upload(bounds)};
}

PackedLabels Translator::classify(std::span<const std::string_view> lines,
                                  std::span<const std::string_view> second) const {
  if (model_.spec().head.kind == EncoderHead::token) {
    require(second.empty(), ErrorCode::unsupported, "classify",
            "a head for tokens reads one text, not a pair");
    return classify_words(lines);
  }
  if (second.empty()) return classify_ids(framed(lines));
  const TypedRows pairs = framed_pairs(lines, second);
  return classify_ids(pairs.rows, pairs.types);
}

PackedLabels Translator::classify_ids(std::span<const std::vector<int32_t>> rows,
                                      std::span<const std::vector<int32_t>> types) const {
  constexpr const char* kOrigin = "classify";
  const ModelSpec& spec = model_.spec();
  require(spec.architecture == Architecture::encoder && model_.has_output(), ErrorCode::unsupported,
          kOrigin, "the model is no encoder with a head: it gives no labels");
  const Batch batch = packed_texts(kOrigin, rows, types);
  const Tensor logits = model_.logits(context_, batch);
  if (spec.head.kind != EncoderHead::sequence) return {logits, batch.target_cu_seqlens};
  std::vector<int32_t> bounds(rows.size() + 1);
  std::iota(bounds.begin(), bounds.end(), 0);
  return {rows_of_firsts(context_, logits, batch.target_cu_seqlens),
          context_.from_values<int32_t>(bounds, {std::ssize(bounds)})};
}

}  // namespace trafo
