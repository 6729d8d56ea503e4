#include "engine/models/upload.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <type_traits>

#include "engine/ops/cross_entropy/cross_entropy.h"

namespace trafo {
namespace {

constexpr const char* kUploadOrigin = "batch";
constexpr size_t kAlignment = 256;  // of a field in the block, in bytes

static_assert(ops::kIgnoreLabel == kIgnoreLabel);

size_t align(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

size_t token_count(const PackedBatchHost& host, BatchSide side) {
  return side == BatchSide::source ? host.source_ids.size() : host.target_in.size();
}

// Kernels index by boundaries unchecked, on the CPU too.
void validate_boundaries(const char* name, std::span<const int32_t> boundaries, size_t tokens) {
  const bool valid = boundaries.front() == 0 && boundaries.back() == static_cast<int64_t>(tokens) &&
                     std::is_sorted(boundaries.begin(), boundaries.end());
  require(valid, ErrorCode::invalid_argument, kUploadOrigin, name,
          " must start at 0, never decrease and end at the number of tokens, ", tokens);
}

// The ops check indices and weights themselves on the CPU. Kernels of an accelerator do not.
void validate_indices(const Context& context, const char* name, std::span<const int32_t> indices,
                      int64_t limit, std::optional<int32_t> ignored = {}) {
  if (context.device().kind == DeviceKind::cpu) return;
  for (size_t t = 0; t < indices.size(); ++t)
    require((indices[t] >= 0 && indices[t] < limit) || indices[t] == ignored,
            ErrorCode::invalid_argument, kUploadOrigin, name, " has ", indices[t], " at token ", t,
            ", the model knows 0 to ", limit - 1);
}

void validate_weights(const Context& context, const char* name, std::span<const float> weights) {
  if (context.device().kind == DeviceKind::cpu) return;
  for (size_t t = 0; t < weights.size(); ++t)
    require(weights[t] >= 0, ErrorCode::invalid_argument, kUploadOrigin, name, " has ", weights[t],
            " at token ", t, ", it must not be negative or not a number");
}

template <class T>
void validate_values(const Context& context, const BatchField& field, std::span<const T> values,
                     const ModelSpec& spec, size_t tokens) {
  if constexpr (std::is_same_v<T, float>) {
    if (field.check == FieldCheck::weight) validate_weights(context, field.name, values);
  } else if (field.check == FieldCheck::boundary) {
    validate_boundaries(field.name, values, tokens);
  } else if (field.check == FieldCheck::position) {
    validate_indices(context, field.name, values, spec.max_positions);
  } else if (field.check == FieldCheck::token_id) {
    validate_indices(context, field.name, values,
                     field.side == BatchSide::source ? spec.source_vocabulary() : spec.vocabulary);
  } else if (field.check == FieldCheck::label) {
    validate_indices(context, field.name, values, spec.output.rows, kIgnoreLabel);
  } else if (field.check == FieldCheck::token_type) {
    validate_indices(context, field.name, values, spec.embedding.token_types);
  }
}

// `given` tokens of a batch, then padding up to `count`.
template <class To, class From>
void write_tokens(const BatchField& field, const std::vector<From>& values, size_t given,
                  size_t count, double divisor, To* to) {
  if (values.empty() && field.if_absent)
    std::fill_n(to, given, static_cast<To>(*field.if_absent / divisor));
  else if constexpr (std::is_integral_v<To>)
    std::copy(values.begin(), values.end(), to);
  else
    std::transform(values.begin(), values.end(), to,
                   [&](From value) { return static_cast<To>(double{value} / divisor); });
  std::fill(to + given, to + count, static_cast<To>(field.padding));
}

// Padding tokens form sentences of at most `longest` tokens; what is left of the sentences is
// empty.
void write_padded_boundaries(std::span<const int32_t> boundaries, int64_t count, int64_t tokens,
                             int64_t longest, int32_t* to) {
  int32_t* const end = to + count;
  int64_t boundary = boundaries.back();
  for (to = std::copy(boundaries.begin(), boundaries.end(), to); to < end; ++to) {
    boundary = std::min(tokens, boundary + longest);
    *to = static_cast<int32_t>(boundary);
  }
}

}  // namespace

void validate_batch(const Context& context, const PackedBatchHost& host, const ModelSpec& spec) {
  require(!host.target_cu_seqlens.empty(), ErrorCode::shape_mismatch, kUploadOrigin,
          "target_cu_seqlens is empty, it has one element more than there are sentences");
  const size_t boundaries = host.target_cu_seqlens.size();
  for_each_batch_field(host, [&](const BatchField& field, const auto& values) {
    if (field.side == BatchSide::source && !spec.has_encoder()) {
      require(values.empty(), ErrorCode::invalid_argument, kUploadOrigin,
              "a model of one stream reads the source in target_in, ", field.name,
              " must be empty");
      return;
    }
    if (field.if_absent && values.empty()) return;
    const size_t expected =
        field.extent == FieldExtent::boundaries ? boundaries : token_count(host, field.side);
    require(values.size() == expected, ErrorCode::shape_mismatch, kUploadOrigin, field.name,
            " has ", values.size(), " elements, ", expected, " are needed");
  });
  for_each_batch_field(host, [&](const BatchField& field, const auto& values) {
    if (!values.empty())
      validate_values(context, field, std::span(values), spec, token_count(host, field.side));
  });
}

BatchLayout::BatchLayout(const BatchBucket& bucket, DType dtype, size_t header)
    : bucket_(bucket), stat_dtype_(trafo::stat_dtype(dtype)) {
  size_t bytes = align(header);
  for (const BatchField& field : kBatchFields) {
    if (!bucket.has(field.id)) continue;
    offsets_[static_cast<size_t>(field.id)] = bytes;
    bytes += align(static_cast<size_t>(count(field)) * dtype_size(this->dtype(field)));
  }
  words_ = static_cast<int64_t>(bytes / sizeof(int32_t));
}

void* BatchLayout::at(const BatchField& field, void* block) const {
  return static_cast<std::byte*>(block) + offsets_[static_cast<size_t>(field.id)];
}

int64_t BatchLayout::count(const BatchField& field) const {
  return field.extent == FieldExtent::boundaries ? bucket_.sentences + 1
                                                 : bucket_.tokens(field.side);
}

DType BatchLayout::dtype(const BatchField& field) const {
  return field.is_float ? stat_dtype_ : DType::i32;
}

void BatchLayout::write(const PackedBatchHost& host, void* block, double divisor) const {
  for_each_batch_field(host, [&](const BatchField& field, const auto& values) {
    if (!bucket_.has(field.id)) return;
    const auto to_tokens = [&]<class To>(To* to) {
      write_tokens(field, values, token_count(host, field.side), static_cast<size_t>(count(field)),
                   field.id == FieldId::target_weights ? divisor : 1, to);
    };
    void* const to = at(field, block);
    if constexpr (std::is_same_v<decltype(values), const std::vector<float>&>) {
      if (stat_dtype_ == DType::f64)
        to_tokens(static_cast<double*>(to));
      else
        to_tokens(static_cast<float*>(to));
    } else if (field.extent == FieldExtent::boundaries) {
      write_padded_boundaries(values, count(field), bucket_.tokens(field.side),
                              bucket_.longest(field.side), static_cast<int32_t*>(to));
    } else {
      to_tokens(static_cast<int32_t*>(to));
    }
  });
}

void BatchLayout::write_boundaries(void* block) const {
  for (const BatchField& field : kBatchFields) {
    if (!bucket_.has(field.id) || field.extent != FieldExtent::boundaries) continue;
    auto* boundaries = static_cast<int32_t*>(at(field, block));
    for (int64_t s = 0; s <= bucket_.sentences; ++s)
      boundaries[s] = static_cast<int32_t>(bucket_.tokens(field.side) * s / bucket_.sentences);
  }
}

Batch BatchLayout::view(const Tensor& block) const {
  Batch batch;
  batch.sentences = bucket_.sentences;
  batch.longest_source = bucket_.longest_source;
  batch.longest_target = bucket_.longest_target;
  batch.indices_validated = true;
  for (const BatchField& field : kBatchFields) {
    if (!bucket_.has(field.id)) continue;
    const size_t offset = offsets_[static_cast<size_t>(field.id)] / dtype_size(dtype(field));
    batch.field(field.id) =
        Tensor(block.storage(), dtype(field), {count(field)}, {1}, static_cast<int64_t>(offset));
  }
  return batch;
}

SequenceForm sequence_form(const ModelSpec& spec) {
  if (spec.has_encoder()) return SequenceForm::encoder_decoder;
  if (spec.architecture != Architecture::encoder) return SequenceForm::decoder_only;
  return spec.head.kind == EncoderHead::masked_lm ? SequenceForm::masked : SequenceForm::labelled;
}

double label_count(const PackedBatchHost& host) {
  if (host.elsewhere) return static_cast<double>(host.label_count);
  if (host.target_weights.empty()) return static_cast<double>(host.target_out.size());
  return std::accumulate(host.target_weights.begin(), host.target_weights.end(), 0.0);
}

Batch dry_run_batch(Context& meta, const BatchLayout& layout) {
  const Tensor block = meta.empty({layout.words()}, DType::i32);
  layout.write_boundaries(block.raw());
  Batch batch = layout.view(block);
  // Attention on the CPU compares these with the boundaries, which are not a real batch's.
  if (meta.device().kind == DeviceKind::cpu) batch.longest_source = batch.longest_target = 0;
  return batch;
}

Batch upload(Context& context, const PackedBatchHost& host, const BatchLayout& layout) {
  const PhaseRange phase(context, "upload", true);
  const Tensor block = context.empty({layout.words()}, DType::i32);
  if (context.device().kind == DeviceKind::cpu) {
    layout.write(host, block.raw());
  } else {
    std::vector<int32_t> staging(static_cast<size_t>(layout.words()));
    layout.write(host, staging.data());
    context.backend().copy_from_host(block.raw(), staging.data(), block.bytes());
  }
  Batch batch = layout.view(block);
  batch.label_count = label_count(host);
  return batch;
}

Batch upload(Context& context, const PackedBatchHost& host, const ModelSpec& spec, DType dtype) {
  validate_batch(context, host, spec);
  return upload(context, host, BatchLayout(exact_bucket(host, true), dtype));
}

}  // namespace trafo
