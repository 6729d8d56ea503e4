// A Llama model as other programs compute it, from the files alone: readers of GGUF, CTranslate2's
// model.bin, safetensors, compressed-tensors and PEFT, and the forward pass, written from the
// descriptions of the formats and of the model. They share no code with the exporters.
#include <cmath>
#include <cstring>
#include <map>

#include "engine/decode/packing.h"
#include "engine/formats/formats.h"
#include "engine/formats/peft/peft.h"
#include "engine/models/adapter.h"
#include "tests/interop/interop_support.h"

namespace trafo::testing {
namespace {

using Values = std::vector<double>;  // of a matrix [rows, columns], row by row, or of a vector

struct ForeignLlama {
  size_t layers = 0, width = 0, heads = 0, key_heads = 0, head_width = 0, vocabulary = 0;
  double epsilon = 0, theta = 0;
  bool turns_neighbours = false;          // llama.cpp; otherwise the halves of a head
  std::map<std::string, Values> weights;  // by the names of transformers

  const Values& weight(size_t layer, const std::string& name) const {
    return weights.at(concat("model.layers.", layer, ".", name, ".weight"));
  }
  static Values product(const Values& matrix, const Values& x) {
    Values result(matrix.size() / x.size());
    for (size_t r = 0; r < result.size(); ++r)
      for (size_t c = 0; c < x.size(); ++c) result[r] += matrix[r * x.size() + c] * x[c];
    return result;
  }
  Values norm(const Values& x, const Values& gamma) const {
    double sum = 0;
    for (const double each : x) sum += each * each;
    Values result(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      result[i] = x[i] / std::sqrt(sum / static_cast<double>(x.size()) + epsilon) * gamma[i];
    return result;
  }
  void turn(Values& x, size_t position) const {
    const size_t half = head_width / 2;
    for (size_t head = 0; head < x.size(); head += head_width)
      for (size_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(position) *
            std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(head_width));
        double& a = x[head + (turns_neighbours ? 2 * i : i)];
        double& b = x[head + (turns_neighbours ? 2 * i + 1 : i + half)];
        const double before = a;
        a = before * std::cos(angle) - b * std::sin(angle);
        b = before * std::sin(angle) + b * std::cos(angle);
      }
  }
  Values attend(const Values& query, const std::vector<Values>& keys,
                const std::vector<Values>& values) const {
    Values mixed(query.size());
    for (size_t head = 0; head < heads; ++head) {
      const size_t q = head * head_width, k = head / (heads / key_heads) * head_width;
      Values shares;
      double sum = 0;
      for (const Values& key : keys) {
        double score = 0;
        for (size_t i = 0; i < head_width; ++i) score += query[q + i] * key[k + i];
        shares.push_back(std::exp(score / std::sqrt(static_cast<double>(head_width))));
        sum += shares.back();
      }
      for (size_t t = 0; t < keys.size(); ++t)
        for (size_t i = 0; i < head_width; ++i) mixed[q + i] += shares[t] / sum * values[t][k + i];
    }
    return mixed;
  }
  // [tokens, vocabulary]
  Values logits(const std::vector<int32_t>& ids) const {
    Values all;
    std::vector<std::vector<Values>> keys(layers), values(layers);
    const Values& embeddings = weights.at("model.embed_tokens.weight");
    const auto head = weights.find("lm_head.weight");
    for (size_t position = 0; position < ids.size(); ++position) {
      const auto row = embeddings.begin() + ids[position] * static_cast<ptrdiff_t>(width);
      Values x(row, row + static_cast<ptrdiff_t>(width));
      const auto add = [&](const Values& more) {
        for (size_t i = 0; i < width; ++i) x[i] += more[i];
      };
      for (size_t l = 0; l < layers; ++l) {
        const Values h = norm(x, weight(l, "input_layernorm"));
        Values q = product(weight(l, "self_attn.q_proj"), h);
        Values k = product(weight(l, "self_attn.k_proj"), h);
        turn(q, position);
        turn(k, position);
        keys[l].push_back(k);
        values[l].push_back(product(weight(l, "self_attn.v_proj"), h));
        add(product(weight(l, "self_attn.o_proj"), attend(q, keys[l], values[l])));
        const Values f = norm(x, weight(l, "post_attention_layernorm"));
        Values gate = product(weight(l, "mlp.gate_proj"), f);
        const Values up = product(weight(l, "mlp.up_proj"), f);
        for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
        add(product(weight(l, "mlp.down_proj"), gate));
      }
      const Values row_logits = product(head == weights.end() ? embeddings : head->second,
                                        norm(x, weights.at("model.norm.weight")));
      all.insert(all.end(), row_logits.begin(), row_logits.end());
    }
    return all;
  }
};

// ---- bytes ----

struct Bytes {
  std::string text;
  size_t at = 0;

  explicit Bytes(const fs::path& file) : text(read_text_file(file, 1 << 24)) {}
  std::string take(size_t count) { return text.substr((at += count) - count, count); }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
};

template <class T>
std::vector<T> elements(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}
Values floats(const std::string& bytes) {
  const auto values = elements<float>(bytes);
  return {values.begin(), values.end()};
}
// IEEE 754 binary16, without infinities.
double half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}
double brain(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return static_cast<double>(value);
}

// ---- GGUF (ggml's docs/gguf.md, ggml-quants.c) ----

ForeignLlama read_gguf(const fs::path& file) {
  Bytes in(file);
  EXPECT_EQ(in.take(4), "GGUF");
  EXPECT_EQ(in.number<uint32_t>(), 3u);
  const auto tensors = in.number<uint64_t>(), pairs = in.number<uint64_t>();
  const auto string = [&] { return in.take(in.number<uint64_t>()); };
  std::map<std::string, double> numbers;
  for (uint64_t i = 0; i < pairs; ++i) {
    const std::string key = string();
    const auto value = [&](uint32_t type) {
      if (type == 4) numbers[key] = in.number<uint32_t>();
      if (type == 5) in.number<int32_t>();
      if (type == 6) numbers[key] = static_cast<double>(in.number<float>());
      if (type == 7) in.number<uint8_t>();
      if (type == 8) string();
    };
    const auto type = in.number<uint32_t>();
    if (type != 9) {
      value(type);
      continue;
    }
    const auto element = in.number<uint32_t>();
    for (auto left = in.number<uint64_t>(); left > 0; --left) value(element);
  }
  ForeignLlama model;
  const auto number = [&](const char* key) { return static_cast<size_t>(numbers.at(key)); };
  model.layers = number("llama.block_count");
  model.width = number("llama.embedding_length");
  model.heads = number("llama.attention.head_count");
  model.key_heads = number("llama.attention.head_count_kv");
  model.head_width = number("llama.rope.dimension_count");
  model.vocabulary = number("llama.vocab_size");
  model.epsilon = numbers.at("llama.attention.layer_norm_rms_epsilon");
  model.theta = numbers.at("llama.rope.freq_base");
  model.turns_neighbours = true;
  struct Place {
    std::string name;
    size_t count = 1;
    uint32_t type = 0;
    uint64_t offset = 0;
  };
  std::vector<Place> places(tensors);
  for (Place& place : places) {
    place.name = string();
    for (auto rank = in.number<uint32_t>(); rank > 0; --rank) place.count *= in.number<uint64_t>();
    place.type = in.number<uint32_t>();
    place.offset = in.number<uint64_t>();
  }
  const size_t data = (in.at + 31) / 32 * 32;
  const std::map<std::string, std::string> names = {
      {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
      {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
      {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"}};
  for (const Place& place : places) {
    in.at = data + place.offset;
    Values values;
    if (place.type == 0) values = floats(in.take(place.count * 4));
    if (place.type == 1)
      for (const uint16_t bits : elements<uint16_t>(in.take(place.count * 2)))
        values.push_back(half(bits));
    for (size_t block = 0; place.type > 1 && block < place.count / 32; ++block) {
      const double scale = half(in.number<uint16_t>());
      if (place.type == 8)
        for (int i = 0; i < 32; ++i) values.push_back(scale * in.number<int8_t>());
      if (place.type == 2) {
        const std::string codes = in.take(16);
        for (const char code : codes) values.push_back(scale * ((code & 15) - 8));
        for (const char code : codes)
          values.push_back(scale * ((static_cast<unsigned char>(code) >> 4) - 8));
      }
    }
    std::string name = place.name == "token_embd.weight"    ? "model.embed_tokens.weight"
                       : place.name == "output_norm.weight" ? "model.norm.weight"
                       : place.name == "output.weight"      ? "lm_head.weight"
                                                            : "";
    if (name.empty()) {
      const size_t dot = place.name.find('.', 4);
      const size_t end = place.name.find('.', dot + 1);
      name = concat("model.layers.", place.name.substr(4, dot - 4), ".",
                    names.at(place.name.substr(dot + 1, end - dot - 1)), ".weight");
    }
    model.weights[name] = std::move(values);
  }
  return model;
}

// ---- transformers, compressed-tensors, PEFT ----

struct RawTensor {
  std::string type, bytes;
  std::vector<size_t> shape;
};
std::map<std::string, RawTensor> read_safetensors(const fs::path& file) {
  Bytes in(file);
  const auto header = FileJson::parse(in.take(in.number<uint64_t>()));
  std::map<std::string, RawTensor> tensors;
  const size_t data = in.at;
  for (const auto& [name, info] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = info["data_offsets"][0], end = info["data_offsets"][1];
    in.at = data + begin;
    tensors[name] = {info["dtype"], in.take(end - begin), info["shape"]};
  }
  return tensors;
}

ForeignLlama read_transformers(const fs::path& directory) {
  const auto config = FileJson::parse(read_text_file(directory / "config.json", 1 << 20));
  ForeignLlama model;
  model.layers = config["num_hidden_layers"];
  model.width = config["hidden_size"];
  model.heads = config["num_attention_heads"];
  model.key_heads = config["num_key_value_heads"];
  model.head_width = config["head_dim"];
  model.vocabulary = config["vocab_size"];
  model.epsilon = config["rms_norm_eps"];
  model.theta = config["rope_theta"];
  const auto tensors = read_safetensors(directory / "model.safetensors");
  for (const auto& [name, tensor] : tensors) {
    if (tensor.type == "F32" && !name.ends_with("_scale"))
      model.weights[name] = floats(tensor.bytes);
    const bool int4 = name.ends_with("_packed");
    if (tensor.type != "I8" && !int4) continue;
    const std::string matrix = int4 ? name.substr(0, name.size() - 7) : name;
    const RawTensor& scales = tensors.at(matrix + "_scale");
    Values codes;
    if (int4)
      for (const uint32_t word : elements<uint32_t>(tensor.bytes))
        for (int i = 0; i < 8; ++i) codes.push_back(static_cast<int>(word >> (4 * i) & 15) - 8);
    else
      for (const int8_t code : elements<int8_t>(tensor.bytes)) codes.push_back(code);
    const Values each = floats(scales.bytes);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] *= each[i / (codes.size() / each.size())];
    model.weights[matrix] = std::move(codes);
  }
  return model;
}

// y = W x + alpha / r B A x.
void add_peft(ForeignLlama& model, const fs::path& directory) {
  const auto config = FileJson::parse(read_text_file(directory / "adapter_config.json", 1 << 20));
  const double scale = config["lora_alpha"].get<double>() / config["r"].get<double>();
  const auto tensors = read_safetensors(directory / "adapter_model.safetensors");
  for (const auto& [name, a] : tensors) {
    const size_t part = name.find(".lora_A.weight");
    if (part == std::string::npos) continue;
    const std::string module =
        name.substr(std::strlen("base_model.model."), part - std::strlen("base_model.model."));
    const RawTensor& b = tensors.at(name.substr(0, part) + ".lora_B.weight");
    const Values down = floats(a.bytes), up = floats(b.bytes);
    const size_t rank = a.shape[0], columns = a.shape[1], rows = b.shape[0];
    Values& weight = model.weights.at(module + ".weight");
    ASSERT_EQ(weight.size(), rows * columns) << name;
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < columns; ++c)
        for (size_t k = 0; k < rank; ++k)
          weight[r * columns + c] += scale * up[r * rank + k] * down[k * columns + c];
  }
}

// ---- CTranslate2 (python/ctranslate2/specs/model_spec.py) ----

ForeignLlama read_ctranslate2(const fs::path& directory) {
  Bytes in(directory / "model.bin");
  const auto string = [&] {
    std::string text = in.take(in.number<uint16_t>());
    text.pop_back();
    return text;
  };
  EXPECT_EQ(in.number<uint32_t>(), 6u);
  EXPECT_EQ(string(), "TransformerDecoderSpec");
  in.number<uint32_t>();
  struct Variable {
    std::vector<size_t> shape;
    uint8_t type = 0;
    std::string bytes;
  };
  std::map<std::string, Variable> variables;
  for (auto left = in.number<uint32_t>(); left > 0; --left) {
    Variable& variable = variables[string()];
    for (auto rank = in.number<uint8_t>(); rank > 0; --rank)
      variable.shape.push_back(in.number<uint32_t>());
    variable.type = in.number<uint8_t>();
    variable.bytes = in.take(in.number<uint32_t>());
  }
  for (auto left = in.number<uint32_t>(); left > 0; --left) {
    const std::string alias = string(), name = string();
    variables[alias] = variables.at(name);
    if (variables.contains(name + "_scale"))
      variables[alias + "_scale"] = variables.at(name + "_scale");
  }
  const auto values_of = [&](const std::string& name) {
    const Variable& variable = variables.at(name);
    Values values;
    if (variable.type == 0) return floats(variable.bytes);
    if (variable.type == 4 || variable.type == 5)
      for (const uint16_t bits : elements<uint16_t>(variable.bytes))
        values.push_back(variable.type == 4 ? half(bits) : brain(bits));
    if (variable.type == 1)
      for (const int8_t code : elements<int8_t>(variable.bytes)) values.push_back(code);
    if (variable.type == 2)
      for (const int16_t code : elements<int16_t>(variable.bytes)) values.push_back(code);
    if (variable.type > 2) return values;
    const Values scales = floats(variables.at(name + "_scale").bytes);  // code = value * scale
    for (size_t i = 0; i < values.size(); ++i)
      values[i] /= scales[i / (values.size() / scales.size())];
    return values;
  };
  const auto number = [&](const std::string& name) -> size_t {
    const Variable& variable = variables.at(name);
    if (variable.type == 2) return static_cast<size_t>(elements<int16_t>(variable.bytes)[0]);
    return static_cast<size_t>(elements<int32_t>(variable.bytes)[0]);
  };
  ForeignLlama model;
  const std::string first = "decoder/layer_0/self_attention/";
  model.width = variables.at("decoder/embeddings/weight").shape[1];
  model.vocabulary = variables.at("decoder/embeddings/weight").shape[0];
  model.heads = number("decoder/num_heads");
  model.key_heads =
      variables.contains(first + "num_heads_kv") ? number(first + "num_heads_kv") : model.heads;
  model.head_width = model.width / model.heads;
  model.theta = floats(variables.at(first + "rotary_base").bytes)[0];
  model.epsilon =
      FileJson::parse(read_text_file(directory / "config.json", 1 << 20))["layer_norm_epsilon"];
  EXPECT_EQ(elements<int8_t>(variables.at("decoder/scale_embeddings").bytes)[0], 0);
  EXPECT_EQ(elements<int8_t>(variables.at("decoder/activation").bytes)[0], 2);  // swish
  for (; variables.contains(concat("decoder/layer_", model.layers, "/ffn/linear_1/weight"));
       ++model.layers) {
    const std::string ct2 = concat("decoder/layer_", model.layers, "/");
    const auto put = [&](const char* name, Values values) {
      model.weights[concat("model.layers.", model.layers, ".", name, ".weight")] =
          std::move(values);
    };
    const Values qkv = values_of(ct2 + "self_attention/linear_0/weight");
    const auto q = static_cast<ptrdiff_t>(model.width * model.width);
    const auto kv = static_cast<ptrdiff_t>(model.key_heads * model.head_width * model.width);
    put("self_attn.q_proj", {qkv.begin(), qkv.begin() + q});
    put("self_attn.k_proj", {qkv.begin() + q, qkv.begin() + q + kv});
    put("self_attn.v_proj", {qkv.begin() + q + kv, qkv.end()});
    put("self_attn.o_proj", values_of(ct2 + "self_attention/linear_1/weight"));
    put("input_layernorm", values_of(ct2 + "self_attention/layer_norm/gamma"));
    put("post_attention_layernorm", values_of(ct2 + "ffn/layer_norm/gamma"));
    put("mlp.gate_proj", values_of(ct2 + "ffn/linear_0/weight"));
    put("mlp.up_proj", values_of(ct2 + "ffn/linear_0_noact/weight"));
    put("mlp.down_proj", values_of(ct2 + "ffn/linear_1/weight"));
  }
  model.weights["model.embed_tokens.weight"] = values_of("decoder/embeddings/weight");
  model.weights["model.norm.weight"] = values_of("decoder/layer_norm/gamma");
  model.weights["lm_head.weight"] = values_of("decoder/projection/weight");
  return model;
}

// ---- tests ----

class ForeignLlamaTest : public InteropTest {
 protected:
  static const Tokenizer& bytes_tokenizer() {
    static const Tokenizer trained = [] {
      TokenizerTrainOptions options;
      options.vocab_size = 300;
      options.hard_vocab_limit = false;
      options.model = TokenizerModel::bpe;
      options.byte_fallback = true;
      const std::vector<std::string> lines{"der Hund sieht einen Baum",
                                           "die Katze sucht ein Licht"};
      return Tokenizer::train(std::span<const std::string>(lines), options);
    }();
    return trained;
  }
  static ModelConfig config_of_form(int64_t kv_heads, bool tied) {
    ModelConfig config = llama_config(kv_heads, tied);
    config.vocabulary = bytes_tokenizer().vocab_size();
    config.width = 32;
    config.ffn_width = 64;
    config.norm_epsilon = 0.03;
    config.rope_theta = 500;
    return config;
  }
  // A stream of eight tokens, and what the model gives for it.
  static std::vector<float> own_logits(Context& context, const Model& model) {
    const NoGrad no_grad(context);
    const SentencePair pair{{5, 70, 6, 2}, {270, 9, 281, 30, 2}};
    const std::vector<const SentencePair*> pairs{&pair};
    const Batch batch = pack_pairs(context, model.spec(), SpecialTokens{}, pairs);
    return context.values<float>(model.logits(context, batch));
  }
  static void expect_same(const std::vector<float>& ours, const ForeignLlama& foreign) {
    const Values theirs = foreign.logits({5, 70, 6, 2, 270, 9, 281, 30});
    ASSERT_EQ(ours.size(), theirs.size());
    double largest = 0, gap = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      largest = std::max(largest, std::abs(theirs[i]));
      gap = std::max(gap, std::abs(theirs[i] - static_cast<double>(ours[i])));
    }
    EXPECT_LT(gap, 2e-5 * std::max(1.0, largest));
  }
  void exported_as(const Model& model, ExportFormat format, ExportWeights weights,
                   const std::string& name) {
    export_model(*context_, model, bytes_tokenizer(), format, path(name), weights);
  }
};

TEST_F(ForeignLlamaTest, TheFilesComputeWhatTheModelDoes) {
  using enum ExportWeights;
  for (const int64_t kv_heads : {0, 1})
    for (const bool tied : {false, true}) {
      const auto model = model_of(config_of_form(kv_heads, tied));
      const interop::HostModel host = interop::copy_to_host(*context_, *model);
      const auto check = [&](ExportFormat format, ExportWeights weights, const auto& read,
                             const auto& read_back) {
        SCOPED_TRACE(concat(enum_name(format), " ", enum_name(weights), " ", kv_heads, tied));
        const fs::path directory = path("files");
        fs::remove_all(directory);
        exported_as(*model, format, weights, "files");
        const ForeignLlama foreign = read(directory);
        if (weights == float32) return expect_same(own_logits(*context_, *model), foreign);
        const interop::HostModel rounded = read_back(directory);
        expect_same(own_logits(*rounded.context, *rounded.model), foreign);
      };
      for (const ExportWeights weights : {float32, float16, q8_0, q4_0})
        check(
            ExportFormat::gguf, weights,
            [](const fs::path& directory) { return read_gguf(directory / "model.gguf"); },
            [&](const fs::path& directory) {
              return interop::read_back_gguf(host, bytes_tokenizer(), weights, directory);
            });
      for (const ExportWeights weights : {float32, float16, bfloat16, int16, int8})
        check(ExportFormat::ctranslate2, weights, read_ctranslate2, [&](const fs::path& directory) {
          return interop::read_back_ctranslate2(host, weights, directory);
        });
      const auto none = [&](const fs::path&) { return interop::copy_to_host(*context_, *model); };
      check(ExportFormat::hf_llama, float32, read_transformers, none);
      for (const ExportWeights weights : {int8, int4})
        check(ExportFormat::hf_compressed, weights, read_transformers,
              [&](const fs::path& directory) {
                return interop::read_back_compressed_tensors(host, weights, directory);
              });
    }
}

TEST_F(ForeignLlamaTest, AnAdapterAddsWhatPeftSays) {
  const auto model = model_of(config_of_form(1, false));
  exported_as(*model, ExportFormat::hf_llama, ExportWeights::float32, "base");
  AdapterConfig adapter;
  adapter.rank = 3;
  adapter.alpha = 5;
  add_adapter(*context_, *model, adapter, 1);
  PhiloxStream random(4, 2);
  for (ParamId id = 0; id < static_cast<ParamId>(model->parameters().count()); ++id) {
    if (model->parameters().group(id).name != kAdapter) continue;
    std::vector<float> values(static_cast<size_t>(element_count(model->parameters().shape(id))));
    for (float& value : values) value = static_cast<float>(random.uniform(-0.3, 0.3));
    model->parameters().set_value(*context_, id, values.data(), values.size() * sizeof(float));
  }
  save_adapter(*context_, *model, path("adapter"));
  ForeignLlama foreign = read_transformers(path("base"));
  add_peft(foreign, path("adapter"));
  expect_same(own_logits(*context_, *model), foreign);
}

}  // namespace
}  // namespace trafo::testing
