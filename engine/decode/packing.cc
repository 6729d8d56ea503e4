#include "engine/decode/packing.h"

#include "engine/core/parallel_chunks.h"
#include "engine/data/batch_packer.h"
#include "engine/models/upload.h"
#include "engine/ops/cast/cast.h"
#include "engine/runtime/context.h"

namespace trafo {

std::vector<double> to_doubles(Context& context, const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return context.values<double>(tensor);
  const Tensor wide =
      tensor.dtype() == DType::f32 ? tensor : ops::cast(context, tensor, DType::f32);
  const std::vector<float> narrow = context.values<float>(wide);
  return {narrow.begin(), narrow.end()};
}

int threads_for_lines(const Context& context) {
  return context.backend().stream_device() != nullptr ? idle_host_threads() : 1;
}

Batch pack_sources(Context& context, const ModelSpec& spec,
                   std::span<const std::vector<int32_t>* const> sources) {
  if (!spec.has_encoder()) {
    Batch batch;
    batch.sentences = static_cast<int64_t>(sources.size());
    batch.indices_validated = true;
    return batch;
  }
  return pack_texts(context, spec, sources);
}

Batch pack_texts(Context& context, const ModelSpec& spec,
                 std::span<const std::vector<int32_t>* const> texts,
                 std::span<const std::vector<int32_t>> types) {
  PackedBatchHost host;
  BatchPacker packer(host, sequence_form(spec), 0);
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<int32_t>* text = texts[i];
    if (spec.has_encoder())
      packer.add_source(*text);
    else if (spec.architecture == Architecture::encoder)
      packer.add_text(*text, types.empty() ? std::span<const int32_t>() : types[i]);
    else  // a target of one token is only predicted, not read
      packer.add(*text, std::span(*text).last(1), 0);
  }
  return upload(context, host, spec, DType::f32);
}

Batch pack_pairs(Context& context, const ModelSpec& spec, const SpecialTokens& tokens,
                 std::span<const SentencePair* const> pairs) {
  PackedBatchHost host;
  BatchPacker packer(host, sequence_form(spec), tokens.start());
  for (const SentencePair* pair : pairs) packer.add(pair->source, pair->target, 0);
  for (size_t t = 0; t < host.target_weights.size(); ++t)
    if (host.target_weights[t] == 0) host.target_out[t] = kIgnoreLabel;
  host.target_weights.clear();
  Batch batch = upload(context, host, spec, DType::f32);
  batch.label_count = static_cast<double>(host.label_count);
  return batch;
}

}  // namespace trafo
