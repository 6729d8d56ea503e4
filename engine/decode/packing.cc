#include "engine/decode/packing.h"

#include "engine/ops/cast/cast.h"
#include "engine/runtime/context.h"

namespace trafo {
namespace {

// One side of a batch under construction.
struct Side {
  std::vector<int32_t> ids, positions, cu_seqlens{0};

  void add(int32_t id) {
    positions.push_back(static_cast<int32_t>(ids.size()) - cu_seqlens.back());
    ids.push_back(id);
  }
  void end_sentence() { cu_seqlens.push_back(static_cast<int32_t>(ids.size())); }
};

Tensor upload(Context& context, const std::vector<int32_t>& values) {
  return context.from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
}

void check(const Context& context, const ModelConfig& config, const char* ids_name,
           const char* positions_name, const Side& side) {
  validate_indices(context, ids_name, side.ids, config.vocabulary);
  validate_indices(context, positions_name, side.positions, config.max_positions);
}

void set_source(Context& context, const ModelConfig& config, Batch& batch, const Side& side) {
  check(context, config, "source_ids", "source_positions", side);
  batch.longest_source = longest_sentence(side.cu_seqlens);
  batch.source_ids = upload(context, side.ids);
  batch.source_positions = upload(context, side.positions);
  batch.source_cu_seqlens = upload(context, side.cu_seqlens);
}

}  // namespace

std::vector<double> to_doubles(Context& context, const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return context.values<double>(tensor);
  const Tensor wide =
      tensor.dtype() == DType::f32 ? tensor : ops::cast(context, tensor, DType::f32);
  const std::vector<float> narrow = context.values<float>(wide);
  return {narrow.begin(), narrow.end()};
}

Batch pack_sources(Context& context, const ModelConfig& config,
                   std::span<const std::vector<int32_t>* const> sources) {
  Batch batch;
  batch.sentences = static_cast<int64_t>(sources.size());
  batch.indices_validated = true;
  if (!config.has_encoder()) return batch;
  Side side;
  for (const std::vector<int32_t>* source : sources) {
    for (const int32_t id : *source) side.add(id);
    side.end_sentence();
  }
  set_source(context, config, batch, side);
  return batch;
}

Batch pack_pairs(Context& context, const ModelConfig& config, const SpecialTokens& tokens,
                 std::span<const SentencePair* const> pairs) {
  const bool stream = !config.has_encoder();
  Side source, target;
  std::vector<int32_t> labels;
  for (const SentencePair* pair : pairs) {
    if (stream) {
      for (const int32_t id : pair->source) target.add(id);
      labels.insert(labels.end(), pair->source.size() - 1, kNoLabel);
    } else {
      for (const int32_t id : pair->source) source.add(id);
      source.end_sentence();
      target.add(tokens.bos);
    }
    for (size_t i = 0; i + 1 < pair->target.size(); ++i) target.add(pair->target[i]);
    target.end_sentence();
    labels.insert(labels.end(), pair->target.begin(), pair->target.end());
  }
  Batch batch;
  batch.sentences = static_cast<int64_t>(pairs.size());
  if (!stream) set_source(context, config, batch, source);
  check(context, config, "target_in", "target_positions", target);
  validate_indices(context, "target_out", labels, config.vocabulary, kNoLabel);
  batch.indices_validated = true;
  batch.longest_target = longest_sentence(target.cu_seqlens);
  batch.target_in = upload(context, target.ids);
  batch.target_positions = upload(context, target.positions);
  batch.target_cu_seqlens = upload(context, target.cu_seqlens);
  batch.target_out = upload(context, labels);
  for (const int32_t label : labels) batch.label_count += label == kNoLabel ? 0 : 1;
  return batch;
}

}  // namespace trafo
