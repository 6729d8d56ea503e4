#include "engine/models/model.h"

#include <algorithm>

#include "engine/core/argument_error.h"
#include "engine/core/strings/utf8.h"
#include "engine/ops/checks.h"
#include "engine/ops/gather_rows/gather_rows.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

Tensor upload(Context& context, std::span<const int32_t> values) {
  return context.from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
}

std::unique_ptr<Model> make_architecture(Context& context, const ModelConfig& config,
                                         std::optional<uint64_t> seed, DType dtype,
                                         bool int8_weights) {
  switch (config.architecture) {
#define TRAFO_ARCHITECTURE(name, ...) \
  case Architecture::name:            \
    return make_##name(context, config, seed, dtype, int8_weights);
#include "engine/models/generated/architectures.def"
#undef TRAFO_ARCHITECTURE
  }
  fail(ErrorCode::internal, "model", "validate let an unknown architecture pass");
}

}  // namespace

Tensor project_logits(Context& context, const Tensor& hidden, const OutputProjection& output) {
  const Tensor logits = nn::linear(context, hidden, output.weight, output.bias);
  return output.soft_cap > 0 ? ops::soft_cap(context, logits, output.soft_cap) : logits;
}

Model::Model(const ModelConfig& config) : config_(config), spec_(spec_of(config)) {
  parameters_.set_factor_ranks(config.factor_ranks);
  parameters_.set_base_precision(config.base_precision);
  for (int64_t i = 0; i < config.labels; ++i) labels_.push_back(concat("LABEL_", i));
}

void Model::set_labels(std::vector<std::string> labels) {
  require_argument(std::ssize(labels) == config_.labels, "model", "labels", " are ", labels.size(),
                   " names, the head has ", config_.labels, " labels");
  for (const std::string& name : labels)
    require_argument(!name.empty() && name.find('\0') == std::string::npos &&
                         find_invalid_utf8(name) == kValidUtf8,
                     "model", "labels", " has a name that is empty or no text");
  labels_ = std::move(labels);
}

void Model::set_tokens(std::optional<VocabularyTokens> tokens) {
  const auto check = [&](const char* name, int32_t id, int32_t least) {
    require_argument(id >= least && id < spec_.vocabulary, "special tokens", name, " is ", id,
                     ", it must be ", least, " to ", spec_.vocabulary - 1);
  };
  if (tokens) {
    const SpecialTokens& special = tokens->special;
    check("eos", special.eos, 0);
    require_argument(special.eos < spec_.source_vocabulary(), "special tokens", "eos", " is ",
                     special.eos, ", sources have 0 to ", spec_.source_vocabulary() - 1);
    check("bos", special.bos, -1);
    check("pad", special.pad, -1);
    check("unk", special.unk, -1);
    for (const int32_t id : tokens->further_ends) check("further_ends", id, 0);
    require_argument(!tokens->frame.begin || special.bos >= 0, "special tokens", "bos",
                     " is -1, and the model's texts begin with it");
    require_argument(!spec_.has_encoder() || tokens->frame == TextFrame{}, "special tokens",
                     "frame", " of a model with an encoder is an end alone");
  }
  tokens_ = std::move(tokens);
}

void Model::declare_output(ParamId embedding, const Init& init) {
  const int64_t count = spec_.output.rows;
  const ParamId weight = spec_.output.tied
                             ? embedding
                             : parameters_.declare("output.weight", {count, spec_.width()}, init);
  const ParamId bias =
      spec_.output.bias ? parameters_.declare("output.bias", {count}, Init::zeros()) : kNoParam;
  const std::vector<Part> rows{{Role::logits, {Stack::decoder}, count}};
  if (!spec_.output.tied) parameters_.set_parts(weight, Piece::weight, rows);
  if (bias != kNoParam) parameters_.set_parts(bias, Piece::bias, rows);
  parameters_.allow_int8(weight);
  output_ = nn::Linear(parameters_, weight, bias);
}

Tensor Model::encoder_states(Context&, const Batch&, const DropoutPass&) const {
  return {};
}

nn::EncoderKeysValues Model::encode(Context&, const Batch&, const DropoutPass&) const {
  return {};
}

Tensor Model::hidden(Context& context, const Batch& batch, const DropoutPass& dropout) const {
  nn::BlockInputs inputs;
  inputs.sequences = {batch.target_cu_seqlens, batch.longest_target, batch.target_positions};
  inputs.dropout = dropout;
  inputs.token_types = batch.target_types;
  inputs.encoder = encode(context, batch, dropout);
  return decode(context, batch.target_in, inputs, batch.indices_validated);
}

Tensor Model::states(Context& context, const Batch& batch) const {
  const bool encodes = spec_.encoder || spec_.architecture == Architecture::encoder;
  return encodes ? encoder_states(context, batch, {}) : hidden(context, batch, {});
}

Tensor Model::logits(Context& context, const Batch& batch) const {
  require(has_output(), ErrorCode::unsupported, "logits",
          "the model is an encoder without head: it has hidden states and no logits");
  return project_logits(context, hidden(context, batch, {}), output_projection());
}

CrossAttentionInputs Model::cross_attention(Context& context, const Batch& batch,
                                            int64_t layer) const {
  require(spec_.encoder.has_value(), ErrorCode::unsupported, "cross_attention",
          "a decoder-lm has no cross-attention");
  require(layer >= 0 && layer < spec_.decoder.layers(), ErrorCode::invalid_argument,
          "cross_attention", "there is no decoder layer ", layer, ", the model has ",
          spec_.decoder.layers());
  const NoGrad no_grad(context);
  nn::QueryCapture capture{layer};
  nn::BlockInputs inputs;
  inputs.sequences = {batch.target_cu_seqlens, batch.longest_target, batch.target_positions};
  inputs.encoder = encode(context, batch, {});
  inputs.encoder.capture = &capture;
  decode(context, batch.target_in, inputs, batch.indices_validated);
  const int64_t part = spec_.decoder.sharing.sets[static_cast<size_t>(layer)];
  const ops::AttentionInput keys =
      inputs.encoder.part_keys(part, spec_.decoder.attention.kv_width());
  return {capture.queries, ops::slice(context, keys.tensor, 1, keys.column,
                                      keys.column + spec_.decoder.attention.kv_width())};
}

DecodeState Model::start_decoding(Context& context, const Batch& batch, int64_t capacity,
                                  const Tensor& storage) const {
  require_generation(spec_, "decoding");
  const NoGrad no_grad(context);
  DecodeState state;
  state.output = output_projection();
  state.cache = nn::KvCache(context,
                            {.layers = spec_.decoder.layers(),
                             .kv_width = spec_.decoder.attention.kv_width(),
                             .dtype = parameters_.dtype()},
                            batch.sentences, capacity, storage);
  state.encoder = encode(context, batch, {});
  if (!state.encoder.values.defined()) return state;
  if (context.device().kind == DeviceKind::cpu)
    state.encoder.set_parts_apart(context, spec_.decoder.attention.kv_width());
  const auto ends = context.values<int32_t>(batch.source_cu_seqlens);
  state.source_begin.assign(ends.begin(), ends.end() - 1);
  state.source_end.assign(ends.begin() + 1, ends.end());
  state.encoder.begin = upload(context, state.source_begin);
  state.encoder.end = upload(context, state.source_end);
  return state;
}

Tensor Model::appended(Context& context, const DecodeState& state, const Tensor& ids) const {
  nn::BlockInputs inputs;
  inputs.sequences = state.cache.sequences();
  inputs.encoder = state.encoder;
  inputs.cache = &state.cache;
  return decode(context, ids, inputs, state.indices_validated);
}

Tensor Model::prefill(Context& context, DecodeState& state,
                      std::span<const std::vector<int32_t>> prompts) const {
  require(static_cast<int64_t>(prompts.size()) == state.rows(), ErrorCode::shape_mismatch,
          "prefill", prompts.size(), " prompts for ", state.rows(), " rows");
  const bool has_empty = std::ranges::any_of(prompts, [](auto& prompt) { return prompt.empty(); });
  require(!spec_.has_encoder() || (state.cache.longest() == 0 && !has_empty),
          ErrorCode::invalid_argument, "prefill",
          "with an encoder, every row is empty and gets a token at least");
  const NoGrad no_grad(context);
  std::vector<int32_t> ids, counts, last;
  for (const std::vector<int32_t>& prompt : prompts) {
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    counts.push_back(static_cast<int32_t>(prompt.size()));
    if (!prompt.empty()) last.push_back(static_cast<int32_t>(ids.size()) - 1);
  }
  state.cache.begin_append(context, counts);
  Tensor hidden = appended(context, state, upload(context, ids));
  state.cache.end_append();
  if (hidden.dim(0) > std::ssize(last))
    hidden = ops::gather_rows(context, hidden, upload(context, last));
  return project_logits(context, hidden, state.output);
}

Tensor Model::decode_step(Context& context, DecodeState& state, const Tensor& ids) const {
  require(
      ids.defined() && ids.dtype() == DType::i32 && ids.rank() == 1 && ids.dim(0) == state.rows(),
      ErrorCode::shape_mismatch, "decode_step", "ids must be int32 [", state.rows(), "]");
  const NoGrad no_grad(context);
  const std::vector<int32_t> counts(static_cast<size_t>(state.rows()), 1);
  state.cache.begin_append(context, counts);
  Tensor logits = step_logits(context, state, ids);
  state.cache.end_append();
  return logits;
}

Tensor Model::step_logits(Context& context, const DecodeState& state, const Tensor& ids) const {
  const NoGrad no_grad(context);
  return project_logits(context, appended(context, state, ids), state.output);
}

void reorder(Context& context, DecodeState& state, std::span<const int32_t> parents) {
  if (!state.cache.reorder(context, parents) || !state.encoder.values.defined()) return;
  const auto reordered = [&](std::vector<int32_t>& of_rows) {
    std::vector<int32_t> moved;
    for (const int32_t parent : parents)
      moved.push_back(of_rows[static_cast<size_t>(std::max(parent, 0))]);
    of_rows = std::move(moved);
    return upload(context, of_rows);
  };
  state.encoder.begin = reordered(state.source_begin);
  state.encoder.end = reordered(state.source_end);
  state.encoder.sequences.cu_seqlens = {};  // row i no longer belongs to sentence i
}

void restrict_output(Context& context, DecodeState& state, std::span<const int32_t> tokens) {
  const NoGrad no_grad(context);
  state.output.weight = nn::gather_rows(context, state.output.weight, tokens);
  if (state.output.bias.defined())
    state.output.bias = ops::gather_rows(context, state.output.bias, upload(context, tokens));
}

std::unique_ptr<Model> make_model(Context& context, const ModelConfig& config,
                                  std::optional<uint64_t> seed, DType dtype, bool int8_weights) {
  validate(config);
  require(!int8_weights || (context.device().kind == DeviceKind::cpu && dtype == DType::f32),
          ErrorCode::unsupported, "model",
          "int8 weights are for models that compute in float32 on the CPU, not in ",
          dtype_name(dtype), " on ", device_name(context.device()));
  require(computes_with(context.device(), dtype), ErrorCode::unsupported, "model",
          "a model cannot be ", dtype_name(dtype), " on ", device_name(context.device()),
          dtype == DType::bf16
              ? ": it stays float32 there, and multiplies in bfloat16 if the context's "
                "matmul_precision says so"
          : dtype == DType::f64 ? ": float64 is for gradient checks on the CPU"
                                : "");
  std::unique_ptr<Model> model = make_architecture(context, config, seed, dtype, int8_weights);
  const ParameterStore& parameters = model->parameters();
  for (const auto& [matrix, rank] : config.factor_ranks)
    require(parameters.find(matrix + kOuterFactor) != kNoParam, ErrorCode::invalid_argument,
            "model", "there is no linear layer with the matrix ", matrix,
            ", which is to have factors of rank ", rank);
  return model;
}

}  // namespace trafo
