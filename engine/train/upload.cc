#include "engine/train/upload.h"

#include <numeric>

#include "engine/ops/cross_entropy/cross_entropy.h"

namespace trafo {
namespace {

constexpr const char* kOrigin = "batch";

Tensor to_device(Context& context, const std::vector<int32_t>& values) {
  return context.from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
}

void check_length(const char* name, size_t length, size_t expected) {
  require(length == expected, ErrorCode::shape_mismatch, kOrigin, name, " has ", length,
          " elements, ", expected, " are needed");
}

// Boundaries must start at 0, never decrease and end at the number of tokens: kernels index by them
// unchecked.
void check_boundaries(const char* name, const std::vector<int32_t>& boundaries, size_t sentences,
                      size_t tokens) {
  check_length(name, boundaries.size(), sentences + 1);
  bool valid = boundaries.front() == 0 && boundaries.back() == static_cast<int64_t>(tokens);
  for (size_t i = 0; i < sentences; ++i) valid = valid && boundaries[i] <= boundaries[i + 1];
  require(valid, ErrorCode::invalid_argument, kOrigin, name,
          " must start at 0, never decrease and end at the number of tokens, ", tokens);
}

// What the loss checks itself on the CPU; see validate_indices.
void check_weights(const Context& context, const std::vector<float>& weights) {
  if (context.device().kind == DeviceKind::cpu) return;
  for (size_t t = 0; t < weights.size(); ++t)
    require(weights[t] >= 0, ErrorCode::invalid_argument, kOrigin, "target_weights has ",
            weights[t], " at token ", t, ", it must not be negative or not a number");
}

Tensor upload_weights(Context& context, const std::vector<float>& weights, DType dtype) {
  return context.from_doubles(std::vector<double>(weights.begin(), weights.end()),
                              {static_cast<int64_t>(weights.size())}, stat_dtype(dtype));
}

}  // namespace

void validate_batch(const Context& context, const PackedBatchHost& host,
                    const ModelConfig& config) {
  const size_t tokens = host.target_in.size();
  require(!host.target_cu_seqlens.empty(), ErrorCode::shape_mismatch, kOrigin,
          "target_cu_seqlens is empty, it has one element more than there are sentences");
  const size_t sentences = host.target_cu_seqlens.size() - 1;
  check_length("target_out", host.target_out.size(), tokens);
  check_length("target_positions", host.target_positions.size(), tokens);
  check_boundaries("target_cu_seqlens", host.target_cu_seqlens, sentences, tokens);
  if (config.architecture == Architecture::encoder_decoder) {
    check_length("source_positions", host.source_positions.size(), host.source_ids.size());
    check_boundaries("source_cu_seqlens", host.source_cu_seqlens, sentences,
                     host.source_ids.size());
    validate_indices(context, "source_ids", host.source_ids, config.vocabulary);
    validate_indices(context, "source_positions", host.source_positions, config.max_positions);
  } else {
    require(host.source_ids.empty(), ErrorCode::invalid_argument, kOrigin,
            "a decoder-lm reads the source in target_in, source_ids must be empty");
  }
  validate_indices(context, "target_in", host.target_in, config.vocabulary);
  validate_indices(context, "target_out", host.target_out, config.vocabulary,
                   ops::CrossEntropyOptions{}.ignore_label);
  validate_indices(context, "target_positions", host.target_positions, config.max_positions);
  if (host.target_weights.empty()) return;
  check_length("target_weights", host.target_weights.size(), tokens);
  check_weights(context, host.target_weights);
}

Batch upload(Context& context, const PackedBatchHost& host, const ModelConfig& config,
             DType dtype) {
  const PhaseRange phase(context, "upload", true);
  validate_batch(context, host, config);
  Batch batch;
  batch.sentences = static_cast<int64_t>(host.target_cu_seqlens.size()) - 1;
  if (config.architecture == Architecture::encoder_decoder) {
    batch.longest_source = longest_sentence(host.source_cu_seqlens);
    batch.source_ids = to_device(context, host.source_ids);
    batch.source_positions = to_device(context, host.source_positions);
    batch.source_cu_seqlens = to_device(context, host.source_cu_seqlens);
  }
  batch.indices_validated = true;
  batch.longest_target = longest_sentence(host.target_cu_seqlens);
  batch.target_in = to_device(context, host.target_in);
  batch.target_out = to_device(context, host.target_out);
  batch.target_positions = to_device(context, host.target_positions);
  batch.target_cu_seqlens = to_device(context, host.target_cu_seqlens);
  batch.label_count = static_cast<double>(host.target_in.size());
  if (!host.target_weights.empty()) {
    batch.target_weights = upload_weights(context, host.target_weights, dtype);
    batch.label_count =
        std::accumulate(host.target_weights.begin(), host.target_weights.end(), 0.0);
  }
  return batch;
}

}  // namespace trafo
