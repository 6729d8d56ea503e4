#include "engine/formats/tensor_map.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "engine/core/cancel_scope.h"
#include "engine/core/checked.h"
#include "engine/core/file_memory.h"
#include "engine/core/progress.h"
#include "engine/core/status.h"
#include "engine/models/meta_model.h"
#include "engine/nn/part_index.h"

namespace trafo::interop {
namespace {

using Roles = std::initializer_list<Role>;

constexpr Place kEncoderPlace{Stack::encoder}, kDecoderPlace{Stack::decoder};

// The names that a format gives to the two tensors of a linear layer or a norm, after a prefix.
struct Suffixes {
  const char *weight = ".weight", *bias = ".bias";
};

// Collects the tensors of a format from the parts that the model declares.
class Table {
 public:
  // Formats have a tensor for each layer, and whole matrices.
  explicit Table(const ModelConfig& config, Suffixes linear = {}, Suffixes norm = {})
      : meta_(make_meta_model(whole(config))),
        index_(meta_.model->parameters()),
        linear_(linear),
        norm_(norm) {}

  const ModelSpec& spec() const { return meta_.model->spec(); }
  bool has(const Place& place, Role role, Piece piece = Piece::weight) const {
    return index_.find(place, role, piece) != nullptr;
  }
  // The rows of `roles` at `place`, which follow each other in one parameter.
  MappedTensor& add(std::string name, const Place& place, Roles roles,
                    Piece piece = Piece::weight) {
    const PartIndex::Found& first = index_.at(place, *roles.begin(), piece);
    const ParameterStore& parameters = meta_.model->parameters();
    MappedTensor tensor{.name = std::move(name),
                        .shape = {},
                        .parameter = parameters.name(first.parameter),
                        .first_row = first.part.first};
    for (const Role role : roles) {
      const PartIndex::Found& found = index_.at(place, role, piece);
      require(
          found.parameter == first.parameter && found.part.first == tensor.first_row + tensor.rows,
          ErrorCode::internal, "interop", tensor.name, " is not in consecutive rows");
      tensor.rows += found.part.rows;
    }
    tensor.shape = {tensor.rows};
    const Shape& shape = parameters.shape(first.parameter);
    if (shape.rank() == 2) tensor.shape.push_back(shape[1]);
    tensor.rows_are_tokens = *roles.begin() == Role::embedding ||
                             (*roles.begin() == Role::logits && meta_.model->config().labels == 0);
    tensor.of_sources = *roles.begin() == Role::embedding && place.stack == Stack::encoder;
    return tensors_.emplace_back(std::move(tensor));
  }
  // With the bias that the model has.
  void linear(const std::string& name, const Place& place, Roles roles) {
    pair(name, place, roles, linear_);
  }
  void norm(const std::string& name, const Place& place, Role role = Role::norm) {
    pair(name, place, {role}, norm_);
  }
  // The norm at the end of a stack, if it has one.
  void final_norm(const std::string& name, Stack stack) {
    if (has({stack}, Role::norm)) norm(name, {stack});
  }
  // The output matrix, where it is no embedding.
  void logits(std::string name) {
    if (has(kDecoderPlace, Role::logits)) add(std::move(name), kDecoderPlace, {Role::logits});
  }
  // The same, with the embedding where that is the output matrix.
  void logits_or_embedding(std::string name) {
    add(std::move(name), kDecoderPlace,
        {has(kDecoderPlace, Role::logits) ? Role::logits : Role::embedding});
  }

  std::vector<MappedTensor> take() { return std::move(tensors_); }

 private:
  static ModelConfig whole(const ModelConfig& config) {
    ModelConfig result = config.untied();
    result.factor_ranks.clear();
    result.base_precision = BasePrecision::none;
    return result;
  }
  void pair(const std::string& name, const Place& place, Roles roles, const Suffixes& suffixes) {
    add(name + suffixes.weight, place, roles);
    if (has(place, *roles.begin(), Piece::bias))
      add(name + suffixes.bias, place, roles, Piece::bias);
  }

  MetaModel meta_;
  PartIndex index_;
  Suffixes linear_, norm_;
  std::vector<MappedTensor> tensors_;
};

// The places of a layer.
struct LayerPlaces {
  Place attention, cross, ffn;
  LayerPlaces(Stack stack, int64_t layer)
      : attention{stack, layer, Sublayer::attention},
        cross{stack, layer, Sublayer::cross_attention},
        ffn{stack, layer, Sublayer::feed_forward} {}
};

void marian_attention(Table& t, const std::string& name, const Place& place) {
  t.linear(name + ".q_proj", place, {Role::query});
  t.linear(name + ".k_proj", place, {Role::key});
  t.linear(name + ".v_proj", place, {Role::value});
  t.linear(name + ".out_proj", place, {Role::output});
  t.norm(name + "_layer_norm", place);
}

void marian_stack(Table& t, const std::string& name, Stack stack) {
  for (int64_t i = 0; i < t.spec().stack(stack).layers(); ++i) {
    const LayerPlaces at(stack, i);
    const std::string layer = concat(name, ".layers.", i);
    marian_attention(t, layer + ".self_attn", at.attention);
    if (t.has(at.cross, Role::query)) marian_attention(t, layer + ".encoder_attn", at.cross);
    t.linear(layer + ".fc1", at.ffn, {Role::up});
    t.linear(layer + ".fc2", at.ffn, {Role::down});
    t.norm(layer + ".final_layer_norm", at.ffn);
  }
  t.final_norm(name + ".layer_norm", stack);
}

void t5_attention(Table& t, const std::string& layer, const char* module, const Place& place) {
  const std::string name = concat(layer, ".", module);
  t.linear(name + ".q", place, {Role::query});
  t.linear(name + ".k", place, {Role::key});
  t.linear(name + ".v", place, {Role::value});
  t.linear(name + ".o", place, {Role::output});
  t.norm(layer + ".layer_norm", place);
}

void t5_stack(Table& t, const std::string& name, Stack stack) {
  for (int64_t i = 0; i < t.spec().stack(stack).layers(); ++i) {
    const LayerPlaces at(stack, i);
    const std::string layer = concat(name, ".block.", i, ".layer.");
    t5_attention(t, layer + "0", "SelfAttention", at.attention);
    const bool has_cross = t.has(at.cross, Role::query);
    if (has_cross) t5_attention(t, layer + "1", "EncDecAttention", at.cross);
    const std::string ffn = layer + (has_cross ? "2" : "1"), inner = ffn + ".DenseReluDense.";
    const bool gated = t.has(at.ffn, Role::gate);
    if (gated) t.linear(inner + "wi_0", at.ffn, {Role::gate});
    t.linear(inner + (gated ? "wi_1" : "wi"), at.ffn, {Role::up});
    t.linear(inner + "wo", at.ffn, {Role::down});
    t.norm(ffn + ".layer_norm", at.ffn);
  }
  t.add(name + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight", {stack},
        {Role::distance_bias});
  t.final_norm(name + ".final_layer_norm", stack);
}

// A product of GPT-2: [in, out].
void conv1d(Table& t, const std::string& name, const Place& place, Roles roles) {
  MappedTensor& matrix = t.add(name + ".weight", place, roles);
  std::swap(matrix.shape[0], matrix.shape[1]);
  matrix.transposed = true;
  t.add(name + ".bias", place, roles, Piece::bias);
}

void ctranslate2_stack(Table& t, const std::string& name, Stack stack) {
  for (int64_t i = 0; i < t.spec().stack(stack).layers(); ++i) {
    const LayerPlaces at(stack, i);
    const std::string layer = concat(name, "/layer_", i), self = layer + "/self_attention",
                      cross = layer + "/attention", ffn = layer + "/ffn";
    t.norm(self, at.attention);
    t.linear(self + "/linear_0", at.attention, {Role::query, Role::key, Role::value});
    t.linear(self + "/linear_1", at.attention, {Role::output});
    if (t.has(at.cross, Role::query)) {
      t.norm(cross, at.cross);
      t.linear(cross + "/linear_0", at.cross, {Role::query});
      t.linear(cross + "/linear_1", at.cross, {Role::key, Role::value});
      t.linear(cross + "/linear_2", at.cross, {Role::output});
    }
    t.norm(ffn, at.ffn);
    const bool gated = t.has(at.ffn, Role::gate);
    t.linear(ffn + "/linear_0", at.ffn, {gated ? Role::gate : Role::up});
    if (gated) t.linear(ffn + "/linear_0_noact", at.ffn, {Role::up});
    t.linear(ffn + "/linear_1", at.ffn, {Role::down});
  }
  t.final_norm(name, stack);
}

}  // namespace

int64_t MappedTensor::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count = checked_mul(count, size, "interop");
  return count;
}

std::vector<int64_t> MappedTensor::stored_shape() const {
  std::vector<int64_t> stored = shape;
  stored.front() += front_rows;
  // A bias may be stored as one row [1, rows].
  for (int64_t& size : stored)
    if (spare_rows > 0 && size == rows) {
      size += spare_rows;
      break;
    }
  return stored;
}

void set_stored_vocabulary(std::vector<MappedTensor>& tensors, const ModelConfig& config,
                           int64_t stored, int64_t sources) {
  for (MappedTensor& tensor : tensors)
    if (tensor.rows_are_tokens)
      tensor.spare_rows =
          tensor.of_sources ? sources - config.source_vocabulary : stored - config.vocabulary;
}

std::vector<MappedTensor> marian_tensors(const ModelConfig& config) {
  Table t(config);
  const bool shared = t.spec().embedding.shared;
  t.add(shared ? "model.shared.weight" : "model.decoder.embed_tokens.weight", kDecoderPlace,
        {Role::embedding});
  if (!shared) t.add("model.encoder.embed_tokens.weight", kEncoderPlace, {Role::embedding});
  t.logits("lm_head.weight");
  for (const auto& [place, name] :
       {std::pair{kEncoderPlace, "model.encoder"}, {kDecoderPlace, "model.decoder"}})
    if (t.spec().embedding.norm) {
      t.add(concat(name, ".embed_positions.weight"), place, {Role::positions}).front_rows = 2;
      t.norm(concat(name, ".layernorm_embedding"), place, Role::embedding_norm);
    }
  marian_stack(t, "model.encoder", Stack::encoder);
  marian_stack(t, "model.decoder", Stack::decoder);
  if (t.has(kDecoderPlace, Role::logits, Piece::bias))
    t.add("final_logits_bias", kDecoderPlace, {Role::logits}, Piece::bias).shape = {
        1, t.spec().vocabulary};
  return t.take();
}

std::vector<MappedTensor> t5_tensors(const ModelConfig& config) {
  Table t(config);
  t.add("shared.weight", kDecoderPlace, {Role::embedding});
  t5_stack(t, "encoder", Stack::encoder);
  t5_stack(t, "decoder", Stack::decoder);
  t.logits("lm_head.weight");
  return t.take();
}

std::vector<MappedTensor> gpt2_tensors(const ModelConfig& config) {
  Table t(config);
  t.add("transformer.wte.weight", kDecoderPlace, {Role::embedding});
  t.add("transformer.wpe.weight", kDecoderPlace, {Role::positions});
  for (int64_t i = 0; i < t.spec().decoder.layers(); ++i) {
    const LayerPlaces at(Stack::decoder, i);
    const std::string name = concat("transformer.h.", i);
    t.norm(name + ".ln_1", at.attention);
    conv1d(t, name + ".attn.c_attn", at.attention, {Role::query, Role::key, Role::value});
    conv1d(t, name + ".attn.c_proj", at.attention, {Role::output});
    t.norm(name + ".ln_2", at.ffn);
    conv1d(t, name + ".mlp.c_fc", at.ffn, {Role::up});
    conv1d(t, name + ".mlp.c_proj", at.ffn, {Role::down});
  }
  t.norm("transformer.ln_f", kDecoderPlace);
  t.logits("lm_head.weight");
  return t.take();
}

std::vector<MappedTensor> llama_tensors(const ModelConfig& config, bool joined) {
  Table t(config);
  const NormPlacement placement = t.spec().decoder.norm.placement;
  const bool of_outputs = placement == NormPlacement::on_output,
             sandwich = placement == NormPlacement::sandwich;
  t.add("model.embed_tokens.weight", kDecoderPlace, {Role::embedding});
  for (int64_t i = 0; i < t.spec().decoder.layers(); ++i) {
    const LayerPlaces at(Stack::decoder, i);
    const std::string name = concat("model.layers.", i), attention = name + ".self_attn.",
                      mlp = name + ".mlp.";
    t.norm(name + (of_outputs ? ".post_attention_layernorm" : ".input_layernorm"), at.attention);
    if (joined) {
      t.linear(attention + "qkv_proj", at.attention, {Role::query, Role::key, Role::value});
    } else {
      t.linear(attention + "q_proj", at.attention, {Role::query});
      t.linear(attention + "k_proj", at.attention, {Role::key});
      t.linear(attention + "v_proj", at.attention, {Role::value});
    }
    t.linear(attention + "o_proj", at.attention, {Role::output});
    if (t.has(at.attention, Role::query_norm)) {
      const bool first = t.spec().decoder.attention.qk_norm != QkNorm::head_after_rotary;
      t.add(attention + (first ? "q_norm" : "query_layernorm") + ".weight", at.attention,
            {Role::query_norm});
      t.add(attention + (first ? "k_norm" : "key_layernorm") + ".weight", at.attention,
            {Role::key_norm});
    }
    t.norm(name + (of_outputs ? ".post_feedforward_layernorm"
                   : sandwich ? ".pre_feedforward_layernorm"
                              : ".post_attention_layernorm"),
           at.ffn);
    if (sandwich) {
      t.norm(name + ".post_attention_layernorm", at.attention, Role::output_norm);
      t.norm(name + ".post_feedforward_layernorm", at.ffn, Role::output_norm);
    }
    if (joined) {
      t.linear(mlp + "gate_up_proj", at.ffn, {Role::gate, Role::up});
    } else {
      t.linear(mlp + "gate_proj", at.ffn, {Role::gate});
      t.linear(mlp + "up_proj", at.ffn, {Role::up});
    }
    t.linear(mlp + "down_proj", at.ffn, {Role::down});
  }
  t.norm("model.norm", kDecoderPlace);
  t.logits("lm_head.weight");
  std::vector<MappedTensor> tensors = t.take();
  if (sandwich)
    for (MappedTensor& tensor : tensors)
      if (tensor.name.ends_with("norm.weight")) tensor.less = 1;
  return tensors;
}

namespace {

// The head of an encoder, after its layers.
void bert_head(Table& t, const std::string& base) {
  const ModelSpec& spec = t.spec();
  const bool is_bert = spec.head.of_class == EncoderClass::bert;
  const bool is_sequence = spec.head.kind == EncoderHead::sequence;
  if (spec.head.pooler)
    t.linear(is_bert || !is_sequence ? base + "pooler.dense" : "classifier.dense", kDecoderPlace,
             {Role::pooler});
  if (spec.head.kind == EncoderHead::masked_lm) {
    const std::string head = is_bert ? "cls.predictions." : "lm_head.";
    const std::string transform = is_bert ? head + "transform." : head;
    t.linear(transform + "dense", kDecoderPlace, {Role::head});
    t.norm(transform + (is_bert ? "LayerNorm" : "layer_norm"), kDecoderPlace, Role::head_norm);
    t.logits(head + "decoder.weight");
    t.add(head + (spec.output.tied ? "bias" : "decoder.bias"), kDecoderPlace, {Role::logits},
          Piece::bias);
  } else if (spec.output.rows > 0) {
    t.linear(is_sequence && !is_bert ? "classifier.out_proj" : "classifier", kDecoderPlace,
             {Role::logits});
  }
}

}  // namespace

namespace {

std::vector<MappedTensor> modernbert_tensors(const ModelConfig& config) {
  Table t(config);
  const ModelSpec& spec = t.spec();
  const std::string base = spec.head.kind == EncoderHead::none ? "" : "model.";
  t.add(base + "embeddings.tok_embeddings.weight", kDecoderPlace, {Role::embedding});
  t.norm(base + "embeddings.norm", kDecoderPlace, Role::embedding_norm);
  for (int64_t i = 0; i < spec.decoder.layers(); ++i) {
    const LayerPlaces at(Stack::decoder, i);
    const std::string layer = concat(base, "layers.", i);
    if (t.has(at.attention, Role::norm)) t.norm(layer + ".attn_norm", at.attention);
    t.linear(layer + ".attn.Wqkv", at.attention, {Role::query, Role::key, Role::value});
    t.linear(layer + ".attn.Wo", at.attention, {Role::output});
    t.norm(layer + ".mlp_norm", at.ffn);
    t.linear(layer + ".mlp.Wi", at.ffn, {Role::gate, Role::up});
    t.linear(layer + ".mlp.Wo", at.ffn, {Role::down});
  }
  t.norm(base + "final_norm", kDecoderPlace);
  if (spec.head.has_transform()) {
    t.linear("head.dense", kDecoderPlace, {Role::head});
    t.norm("head.norm", kDecoderPlace, Role::head_norm);
  }
  if (spec.head.kind == EncoderHead::masked_lm) {
    t.logits("decoder.weight");
    if (t.has(kDecoderPlace, Role::logits, Piece::bias))
      t.add("decoder.bias", kDecoderPlace, {Role::logits}, Piece::bias);
  } else if (spec.output.rows > 0) {
    t.linear("classifier", kDecoderPlace, {Role::logits});
  }
  return t.take();
}

}  // namespace

std::vector<MappedTensor> bert_tensors(const ModelConfig& config) {
  if (config.encoder_class == EncoderClass::modernbert) return modernbert_tensors(config);
  Table t(config);
  const ModelSpec& spec = t.spec();
  const bool is_bert = spec.head.of_class == EncoderClass::bert;
  const std::string base = spec.head.kind == EncoderHead::none ? ""
                           : is_bert                           ? "bert."
                                                               : "roberta.";
  const std::string embeddings = base + "embeddings.";
  t.add(embeddings + "word_embeddings.weight", kDecoderPlace, {Role::embedding});
  t.add(embeddings + "position_embeddings.weight", kDecoderPlace, {Role::positions}).front_rows =
      is_bert ? 0 : 2;
  t.add(embeddings + "token_type_embeddings.weight", kDecoderPlace, {Role::token_types});
  t.norm(embeddings + "LayerNorm", kDecoderPlace, Role::embedding_norm);
  for (int64_t i = 0; i < spec.decoder.layers(); ++i) {
    const LayerPlaces at(Stack::decoder, i);
    const std::string layer = concat(base, "encoder.layer.", i), self = layer + ".attention.self.";
    t.linear(self + "query", at.attention, {Role::query});
    t.linear(self + "key", at.attention, {Role::key});
    t.linear(self + "value", at.attention, {Role::value});
    t.linear(layer + ".attention.output.dense", at.attention, {Role::output});
    t.norm(layer + ".attention.output.LayerNorm", at.attention);
    t.linear(layer + ".intermediate.dense", at.ffn, {Role::up});
    t.linear(layer + ".output.dense", at.ffn, {Role::down});
    t.norm(layer + ".output.LayerNorm", at.ffn);
  }
  bert_head(t, base);
  return t.take();
}

std::vector<MappedTensor> ctranslate2_tensors(const ModelConfig& config) {
  Table t(config, {"/weight", "/bias"}, {"/layer_norm/gamma", "/layer_norm/beta"});
  if (t.spec().has_encoder()) {
    t.add("encoder/embeddings_0/weight",
          t.has(kEncoderPlace, Role::embedding) ? kEncoderPlace : kDecoderPlace, {Role::embedding});
    ctranslate2_stack(t, "encoder", Stack::encoder);
  }
  t.add("decoder/embeddings/weight", kDecoderPlace, {Role::embedding});
  if (t.has(kDecoderPlace, Role::positions))
    t.add("decoder/position_encodings/encodings", kDecoderPlace, {Role::positions});
  ctranslate2_stack(t, "decoder", Stack::decoder);
  t.logits_or_embedding("decoder/projection/weight");
  if (t.has(kDecoderPlace, Role::logits, Piece::bias))
    t.add("decoder/projection/bias", kDecoderPlace, {Role::logits}, Piece::bias);
  return t.take();
}

namespace {

// The rows of the parameter that the tensor is, in host memory.
float* rows_of(const ParameterStore& parameters, const MappedTensor& tensor, int64_t& columns) {
  const ParamId id = parameters.find(tensor.parameter);
  require(id != kNoParam, ErrorCode::internal, "interop", "the model has no parameter ",
          tensor.parameter);
  const Tensor& value = parameters.value(id);
  columns = value.rank() == 2 ? value.dim(1) : 1;
  require(
      tensor.first_row + tensor.rows <= value.dim(0) && tensor.rows * columns == tensor.elements(),
      ErrorCode::internal, "interop", tensor.name, " does not fit into ", tensor.parameter, " ",
      value.shape().str());
  return value.data<float>() + tensor.first_row * columns;
}

// The work that a tensor is a piece of. Of memory in files, one tensor at a time is resident.
void count_weights(const MappedTensor& tensor) {
  stop_if_call_is_cancelled("interop");
  release_file_memory();
  if (WorkProgress* const progress = WorkProgress::current(Work::convert_weights))
    progress->add(tensor.elements());
}

}  // namespace

bool is_as_stored(const MappedTensor& tensor) {
  return !tensor.transposed && tensor.less == 0 && tensor.front_rows == 0 && tensor.spare_rows == 0;
}

std::span<const float> stored_values(const ParameterStore& parameters, const MappedTensor& tensor) {
  count_weights(tensor);
  int64_t columns = 0;
  const float* from = rows_of(parameters, tensor, columns);
  return {from, static_cast<size_t>(tensor.elements())};
}

std::vector<float> gather(const ParameterStore& parameters, const MappedTensor& tensor) {
  count_weights(tensor);
  int64_t columns = 0;
  const float* from = rows_of(parameters, tensor, columns);
  std::vector<float> values(from, from + tensor.elements());
  if (tensor.less != 0)
    for (float& value : values) value -= tensor.less;
  if (tensor.transposed)
    for (int64_t r = 0; r < tensor.rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        values[static_cast<size_t>(c * tensor.rows + r)] = from[r * columns + c];
  return values;
}

void scatter(ParameterStore& parameters, const MappedTensor& tensor,
             const std::vector<float>& values) {
  count_weights(tensor);
  int64_t columns = 0;
  float* to = rows_of(parameters, tensor, columns);
  require(static_cast<int64_t>(values.size()) == tensor.elements(), ErrorCode::internal, "interop",
          tensor.name, " has ", values.size(), " elements");
  if (!tensor.transposed) {
    std::transform(values.begin(), values.end(), to,
                   [&](float value) { return tensor.less == 0 ? value : value + tensor.less; });
    return;
  }
  for (int64_t r = 0; r < tensor.rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      to[r * columns + c] = values[static_cast<size_t>(c * tensor.rows + r)];
}

}  // namespace trafo::interop
