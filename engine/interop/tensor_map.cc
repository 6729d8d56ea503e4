#include "engine/interop/tensor_map.h"

#include <algorithm>

#include "engine/core/checked.h"
#include "engine/core/status.h"

namespace trafo::interop {
namespace {

std::string numbered(const char* prefix, int64_t i) {
  return prefix + std::to_string(i);
}

class Table {
 public:
  explicit Table(const ModelConfig& config) : width_(config.width), ffn_(config.ffn_width) {}

  void vector(std::string name, std::string parameter, int64_t rows, int64_t first = 0) {
    tensors_.push_back({std::move(name), {rows}, std::move(parameter), first, rows, false});
  }
  void matrix(std::string name, std::string parameter, int64_t rows, int64_t columns,
              int64_t first = 0) {
    tensors_.push_back(
        {std::move(name), {rows, columns}, std::move(parameter), first, rows, false});
  }
  // `rows` outputs of our product `parameter`, from output `first` on.
  void linear(const std::string& name, const std::string& parameter, int64_t rows, int64_t columns,
              int64_t first = 0) {
    matrix(name + ".weight", parameter + ".weight", rows, columns, first);
    vector(name + ".bias", parameter + ".bias", rows, first);
  }
  void norm(const std::string& name, const std::string& parameter) {
    vector(name + ".weight", parameter + ".weight", width_);
    vector(name + ".bias", parameter + ".bias", width_);
  }
  int64_t width() const { return width_; }
  // Of the layers that follow.
  int64_t ffn() const { return ffn_; }
  void set_ffn(int64_t ffn) { ffn_ = ffn; }

  std::vector<MappedTensor> take() { return std::move(tensors_); }
  std::vector<MappedTensor>& tensors() { return tensors_; }

 private:
  int64_t width_, ffn_;
  std::vector<MappedTensor> tensors_;
};

// q, k, v and output of a self-attention, separate.
void marian_self_attention(Table& t, const std::string& name, const std::string& parameter) {
  const int64_t w = t.width();
  t.linear(name + ".q_proj", parameter + ".qkv", w, w, 0);
  t.linear(name + ".k_proj", parameter + ".qkv", w, w, w);
  t.linear(name + ".v_proj", parameter + ".qkv", w, w, 2 * w);
  t.linear(name + ".out_proj", parameter + ".output", w, w);
}

void marian_feed_forward(Table& t, const std::string& name, const std::string& parameter) {
  t.linear(name + ".fc1", parameter + ".ffn.up", t.ffn(), t.width());
  t.linear(name + ".fc2", parameter + ".ffn.down", t.width(), t.ffn());
  t.norm(name + ".final_layer_norm", parameter + ".ffn_norm");
}

// A product of GPT-2: [in, out].
void conv1d(Table& t, const std::string& name, const std::string& parameter, int64_t out,
            int64_t in) {
  t.tensors().push_back({name + ".weight", {in, out}, parameter + ".weight", 0, out, true});
  t.vector(name + ".bias", parameter + ".bias", out);
}

// The tensors that CTranslate2 reads of a part of the model, as far as the model has them.
class Ct2Table : public Table {
 public:
  explicit Ct2Table(const ModelConfig& config) : Table(config), config_(config) {}

  void norm(const std::string& name, const std::string& parameter) {
    vector(name + "/layer_norm/gamma", parameter + ".weight", width());
    if (config_.norm == Norm::layer)
      vector(name + "/layer_norm/beta", parameter + ".bias", width());
  }
  void linear(const std::string& name, const std::string& parameter, int64_t rows, int64_t columns,
              int64_t first = 0) {
    matrix(name + "/weight", parameter + ".weight", rows, columns, first);
    if (config_.biases) vector(name + "/bias", parameter + ".bias", rows, first);
  }
  void self_attention(const std::string& name, const std::string& parameter) {
    const std::string there = name + "/self_attention", ours = parameter + ".attention";
    norm(there, parameter + ".attention_norm");
    linear(there + "/linear_0", ours + ".qkv", config_.qkv_width(), width());
    linear(there + "/linear_1", ours + ".output", width(), width());
  }
  void feed_forward(const std::string& name, const std::string& parameter) {
    norm(name + "/ffn", parameter + ".ffn_norm");
    if (config_.ffn == FeedForward::swiglu) {
      linear(name + "/ffn/linear_0", parameter + ".ffn.gate_up", ffn(), width());
      linear(name + "/ffn/linear_0_noact", parameter + ".ffn.gate_up", ffn(), width(), ffn());
    } else {
      linear(name + "/ffn/linear_0", parameter + ".ffn.up", ffn(), width());
    }
    linear(name + "/ffn/linear_1", parameter + ".ffn.down", width(), ffn());
  }

 private:
  const ModelConfig& config_;
};

}  // namespace

int64_t MappedTensor::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count = checked_mul(count, size, "interop");
  return count;
}

std::vector<int64_t> MappedTensor::stored_shape() const {
  std::vector<int64_t> stored = shape;
  // A bias may be stored as one row [1, rows].
  for (int64_t& size : stored)
    if (spare_rows > 0 && size == rows) {
      size += spare_rows;
      break;
    }
  return stored;
}

void set_stored_vocabulary(std::vector<MappedTensor>& tensors, const ModelConfig& config,
                           int64_t stored) {
  for (MappedTensor& tensor : tensors)
    if (tensor.parameter == "embedding.weight" || tensor.parameter == "output.weight" ||
        tensor.parameter == "output.bias")
      tensor.spare_rows = stored - config.vocabulary;
}

std::vector<MappedTensor> marian_tensors(const ModelConfig& config) {
  Table t(config);
  const int64_t w = config.width;
  t.matrix("model.shared.weight", "embedding.weight", config.vocabulary, w);
  t.set_ffn(config.encoder_side().ffn_width);
  for (int64_t i = 0; i < config.encoder_layers; ++i) {
    const std::string name = numbered("model.encoder.layers.", i);
    const std::string ours = numbered("encoder.", i);
    marian_self_attention(t, name + ".self_attn", ours + ".attention");
    t.norm(name + ".self_attn_layer_norm", ours + ".attention_norm");
    marian_feed_forward(t, name, ours);
  }
  if (config.pre_norm) t.norm("model.encoder.layer_norm", "encoder.norm");
  t.set_ffn(config.ffn_width);
  for (int64_t i = 0; i < config.decoder_layers; ++i) {
    const std::string name = numbered("model.decoder.layers.", i);
    const std::string ours = numbered("decoder.", i);
    marian_self_attention(t, name + ".self_attn", ours + ".attention");
    t.norm(name + ".self_attn_layer_norm", ours + ".attention_norm");
    t.linear(name + ".encoder_attn.q_proj", ours + ".cross.query", w, w);
    t.linear(name + ".encoder_attn.k_proj", "decoder.cross_kv", w, w, 2 * i * w);
    t.linear(name + ".encoder_attn.v_proj", "decoder.cross_kv", w, w, (2 * i + 1) * w);
    t.linear(name + ".encoder_attn.out_proj", ours + ".cross.output", w, w);
    t.norm(name + ".encoder_attn_layer_norm", ours + ".cross_norm");
    marian_feed_forward(t, name, ours);
  }
  if (config.pre_norm) t.norm("model.decoder.layer_norm", "decoder.norm");
  if (config.has_output_bias()) {
    t.vector("final_logits_bias", "output.bias", config.vocabulary);
    t.tensors().back().shape = {1, config.vocabulary};
  }
  return t.take();
}

std::vector<MappedTensor> gpt2_tensors(const ModelConfig& config) {
  Table t(config);
  const int64_t w = config.width;
  t.matrix("transformer.wte.weight", "embedding.weight", config.vocabulary, w);
  t.matrix("transformer.wpe.weight", "positions.weight", config.max_positions, w);
  for (int64_t i = 0; i < config.decoder_layers; ++i) {
    const std::string name = numbered("transformer.h.", i);
    const std::string ours = numbered("decoder.", i);
    t.norm(name + ".ln_1", ours + ".attention_norm");
    conv1d(t, name + ".attn.c_attn", ours + ".attention.qkv", 3 * w, w);
    conv1d(t, name + ".attn.c_proj", ours + ".attention.output", w, w);
    t.norm(name + ".ln_2", ours + ".ffn_norm");
    conv1d(t, name + ".mlp.c_fc", ours + ".ffn.up", config.ffn_width, w);
    conv1d(t, name + ".mlp.c_proj", ours + ".ffn.down", w, config.ffn_width);
  }
  t.norm("transformer.ln_f", "decoder.norm");
  if (!config.tied_embeddings) t.matrix("lm_head.weight", "output.weight", config.vocabulary, w);
  return t.take();
}

std::vector<MappedTensor> llama_tensors(const ModelConfig& config) {
  Table t(config);
  const int64_t w = config.width, ffn = config.ffn_width;
  const int64_t q = config.attention_width(), kv = config.kv_width();
  const auto linear = [&](const std::string& name, const std::string& parameter, int64_t rows,
                          int64_t columns, int64_t first, bool bias) {
    t.matrix(name + ".weight", parameter + ".weight", rows, columns, first);
    if (bias) t.vector(name + ".bias", parameter + ".bias", rows, first);
  };
  t.matrix("model.embed_tokens.weight", "embedding.weight", config.vocabulary, w);
  for (int64_t i = 0; i < config.decoder_layers; ++i) {
    const std::string name = numbered("model.layers.", i);
    const std::string attention = name + ".self_attn.", mlp = name + ".mlp.";
    const std::string ours = numbered("decoder.", i), qkv = ours + ".attention.qkv";
    const bool biased = config.has_qkv_biases(), ffn_biased = config.has_ffn_biases();
    t.vector(name + ".input_layernorm.weight", ours + ".attention_norm.weight", w);
    linear(attention + "q_proj", qkv, q, w, 0, biased);
    linear(attention + "k_proj", qkv, kv, w, q, biased);
    linear(attention + "v_proj", qkv, kv, w, q + kv, biased);
    linear(attention + "o_proj", ours + ".attention.output", w, q, 0,
           config.has_attention_output_bias());
    t.vector(name + ".post_attention_layernorm.weight", ours + ".ffn_norm.weight", w);
    linear(mlp + "gate_proj", ours + ".ffn.gate_up", ffn, w, 0, ffn_biased);
    linear(mlp + "up_proj", ours + ".ffn.gate_up", ffn, w, ffn, ffn_biased);
    linear(mlp + "down_proj", ours + ".ffn.down", w, ffn, 0, ffn_biased);
  }
  t.vector("model.norm.weight", "decoder.norm.weight", w);
  if (!config.tied_embeddings) t.matrix("lm_head.weight", "output.weight", config.vocabulary, w);
  return t.take();
}

std::vector<MappedTensor> ctranslate2_tensors(const ModelConfig& config) {
  Ct2Table t(config);
  const int64_t w = config.width, v = config.vocabulary;
  const bool lm = !config.has_encoder();
  if (!lm) {
    t.matrix("encoder/embeddings_0/weight",
             config.tied_embeddings ? "embedding.weight" : "source_embedding.weight", v, w);
    t.set_ffn(config.encoder_side().ffn_width);
    for (int64_t i = 0; i < config.encoder_layers; ++i) {
      const std::string name = numbered("encoder/layer_", i);
      const std::string ours = numbered("encoder.", i);
      t.self_attention(name, ours);
      t.feed_forward(name, ours);
    }
    if (config.pre_norm) t.norm("encoder", "encoder.norm");
  }
  t.matrix("decoder/embeddings/weight", "embedding.weight", v, w);
  t.set_ffn(config.ffn_width);
  if (lm && config.positions == Positions::standard)
    t.matrix("decoder/position_encodings/encodings", "positions.weight", config.max_positions, w);
  for (int64_t i = 0; i < config.decoder_layers; ++i) {
    const std::string name = numbered("decoder/layer_", i);
    const std::string ours = numbered("decoder.", i);
    t.self_attention(name, ours);
    if (!lm) {
      t.norm(name + "/attention", ours + ".cross_norm");
      t.linear(name + "/attention/linear_0", ours + ".cross.query", w, w);
      t.linear(name + "/attention/linear_1", "decoder.cross_kv", 2 * w, w, 2 * i * w);
      t.linear(name + "/attention/linear_2", ours + ".cross.output", w, w);
    }
    t.feed_forward(name, ours);
  }
  if (config.pre_norm) t.norm("decoder", "decoder.norm");
  t.matrix("decoder/projection/weight",
           config.tied_embeddings ? "embedding.weight" : "output.weight", v, w);
  if (config.has_output_bias()) t.vector("decoder/projection/bias", "output.bias", v);
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

}  // namespace

std::vector<float> gather(const ParameterStore& parameters, const MappedTensor& tensor) {
  int64_t columns = 0;
  const float* from = rows_of(parameters, tensor, columns);
  std::vector<float> values(from, from + tensor.elements());
  if (tensor.transposed)
    for (int64_t r = 0; r < tensor.rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        values[static_cast<size_t>(c * tensor.rows + r)] = from[r * columns + c];
  return values;
}

void scatter(ParameterStore& parameters, const MappedTensor& tensor,
             const std::vector<float>& values) {
  int64_t columns = 0;
  float* to = rows_of(parameters, tensor, columns);
  require(static_cast<int64_t>(values.size()) == tensor.elements(), ErrorCode::internal, "interop",
          tensor.name, " has ", values.size(), " elements");
  if (!tensor.transposed) {
    std::copy(values.begin(), values.end(), to);
    return;
  }
  for (int64_t r = 0; r < tensor.rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      to[r * columns + c] = values[static_cast<size_t>(c * tensor.rows + r)];
}

}  // namespace trafo::interop
