// The directory of a CTranslate2 model, binary version 6, TransformerSpec revision 7 and
// TransformerDecoderSpec revision 8. All numbers are little-endian:
//
//   u32 version   string spec   u32 revision
//   u32 count     { string name   u8 rank   u32 dims[rank]   u8 type   u32 bytes   data }
//   u32 count     { string alias   string name }
//
// A string is a u16 length, which counts a final NUL, and the bytes.
//
// Embeddings and matrices of linear layers are stored as --weights says, as by CTranslate2's
// converter; int8 and int16 ones are followed by the variable NAME_scale. Everything else is
// float32, and float16 or bfloat16 beside such matrices.
#include <algorithm>
#include <cstring>
#include <map>

#include "engine/formats/binary_file.h"
#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/stored_weights.h"
#include "engine/io/atomic_file.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/text/tokenizer/marian/marian_tokenizer.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCtranslate2Format = "CTranslate2";
constexpr uint32_t kBinaryVersion = 6;
constexpr const char* kPositions = "decoder/position_encodings/encodings";
enum TypeId : uint8_t {
  kTypeFloat32 = 0,
  kTypeInt8 = 1,
  kTypeInt16 = 2,
  kTypeInt32 = 3,
  kTypeFloat16 = 4,
  kTypeBFloat16 = 5
};

// A specification of CTranslate2.
struct FileSpec {
  const char* name;
  uint32_t revision;
};
FileSpec file_spec(const ModelSpec& spec) {
  return spec.has_encoder() ? FileSpec{"TransformerSpec", 7}
                            : FileSpec{"TransformerDecoderSpec", 8};
}

int8_t activation_id(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return 0;
    case Activation::gelu:
      return 1;  // GELUTanh
    case Activation::silu:
      return 2;
    case Activation::gelu_erf:
      return 3;  // GELU
  }
  return 0;
}

TypeId type_of(ExportWeights weights) {
  switch (weights) {
    case ExportWeights::int8:
      return kTypeInt8;
    case ExportWeights::int16:
      return kTypeInt16;
    case ExportWeights::float16:
      return kTypeFloat16;
    case ExportWeights::bfloat16:
      return kTypeBFloat16;
    default:
      return kTypeFloat32;
  }
}

int64_t size_of(TypeId type) {
  return type == kTypeInt8 ? 1 : type == kTypeFloat32 || type == kTypeInt32 ? 4 : 2;
}

const WeightFormat& format_of(uint8_t type) {
  switch (type) {
    case kTypeInt8:
      return formats::kCtranslate2Int8;
    case kTypeInt16:
      return formats::kCtranslate2Int16;
    case kTypeFloat16:
      return formats::kFloat16;
    case kTypeBFloat16:
      return formats::kBfloat16;
    default:
      return formats::kFloat32;
  }
}

bool has_scale(TypeId type) {
  return type == kTypeInt8 || type == kTypeInt16;
}

struct Scalar {
  std::string name;
  TypeId type;
  double value;
};

template <class Put>
void put_scalar(const Scalar& scalar, const Put& put) {
  switch (scalar.type) {
    case kTypeInt8:
      return put(static_cast<int8_t>(scalar.value));
    case kTypeInt16:
      return put(static_cast<int16_t>(scalar.value));
    case kTypeInt32:
      return put(static_cast<int32_t>(scalar.value));
    default:
      return put(static_cast<float>(scalar.value));
  }
}

std::vector<Scalar> scalars_of(const ModelSpec& spec) {
  std::vector<Scalar> scalars;
  const auto side = [&](const std::string& name, const StackSpec& stack) {
    const int8_t activation = activation_id(stack.feed_forward.activation);
    scalars.push_back(
        {name + "/num_heads", kTypeInt16, static_cast<double>(stack.attention.heads)});
    scalars.push_back({name + "/pre_norm", kTypeInt8, static_cast<double>(stack.pre_norm())});
    scalars.push_back({name + "/activation", kTypeInt8, static_cast<double>(activation)});
    scalars.push_back(
        {name + "/scale_embeddings", kTypeInt8, static_cast<double>(spec.embedding.scale != 1)});
  };
  if (spec.encoder) {
    side("encoder", *spec.encoder);
    scalars.push_back({"encoder/embeddings_merge", kTypeInt8, 0});
  }
  side("decoder", spec.decoder);
  scalars.push_back({"decoder/alignment_layer", kTypeInt16, -1});
  scalars.push_back({"decoder/alignment_heads", kTypeInt16, 1});
  scalars.push_back({"decoder/alibi", kTypeInt8, 0});
  scalars.push_back({"decoder/alibi_use_positive_positions", kTypeInt8, 0});
  scalars.push_back({"decoder/scale_alibi", kTypeInt8, 0});
  scalars.push_back({"decoder/start_from_zero_embedding", kTypeInt8, 0});
  const AttentionSpec& attention = spec.decoder.attention;
  if (!attention.rotary) return scalars;
  for (int64_t i = 0; i < spec.decoder.layers(); ++i) {
    const std::string name = concat("decoder/layer_", i, "/self_attention/");
    scalars.push_back({name + "rotary_dim", kTypeInt32, 0});  // whole heads
    scalars.push_back({name + "rotary_interleave", kTypeInt8, 0});
    scalars.push_back(
        {name + "rotary_base", kTypeFloat32, static_cast<float>(attention.rotary->theta)});
    if (attention.key_heads != attention.heads)
      scalars.push_back(
          {name + "num_heads_kv", kTypeInt32, static_cast<double>(attention.key_heads)});
  }
  return scalars;
}

// Names of one matrix after the first, which holds it. CTranslate2 gives the scale of a matrix the
// same aliases.
std::map<std::string, std::string> aliases_of(const ModelSpec& spec) {
  std::map<std::string, std::string> aliases;
  if (spec.output.tied) aliases["decoder/projection/weight"] = "decoder/embeddings/weight";
  if (spec.encoder && spec.embedding.shared)
    aliases["encoder/embeddings_0/weight"] = "decoder/embeddings/weight";
  if (spec.encoder) aliases["encoder/position_encodings/encodings"] = kPositions;
  return aliases;
}

// A tensor of model.bin, without aliases. The table of positions is a parameter of no model.
struct StoredTensor {
  MappedTensor tensor;
  TypeId type;
  bool computed() const { return tensor.parameter.empty(); }
};

std::vector<StoredTensor> stored_tensors(const HostModel& host, ExportWeights weights) {
  const ModelSpec& spec = host.spec();
  const TypeId type = type_of(weights), other = has_scale(type) ? kTypeFloat32 : type;
  const auto aliases = aliases_of(spec);
  std::vector<StoredTensor> stored;
  for (MappedTensor& tensor : ctranslate2_tensors(host.config())) {
    if (aliases.contains(tensor.name)) continue;
    const bool quantizable = tensor.shape.size() == 2 && tensor.name != kPositions;
    stored.push_back({std::move(tensor), quantizable ? type : other});
  }
  // Without one CTranslate2 would compute positions by another formula.
  if (spec.embedding.positions == PositionTable::sinusoidal)
    stored.push_back({{kPositions, {spec.max_positions, spec.width()}, "", 0, 0, false}, other});
  return stored;
}

std::vector<float> values_of(const HostModel& host, const StoredTensor& stored) {
  const ModelSpec& spec = host.spec();
  if (!stored.computed()) return gather(host.parameters(), stored.tensor);
  return host.context->values<float>(
      sinusoidal_positions(*host.context, spec.max_positions, spec.width(), DType::f32));
}

void check_sizes(const HostModel& host, ExportWeights weights) {
  for (const StoredTensor& stored : stored_tensors(host, weights))
    if (stored.tensor.elements() > int64_t{UINT32_MAX} / size_of(stored.type))
      cannot_express(kCtranslate2Format, concat(stored.tensor.name, ", which is 4 GiB or more"));
  if (const int64_t heads = host.spec().decoder.attention.heads; heads > INT16_MAX)
    cannot_express(kCtranslate2Format, concat(heads, " heads (--transformer-heads)"));
}

class ModelWriter : public BinaryWriter {
 public:
  using BinaryWriter::BinaryWriter;

  void name(const std::string& value) {
    number(static_cast<uint16_t>(value.size() + 1));
    text({value.c_str(), value.size() + 1});
  }
  void variable(const std::string& variable, const std::vector<int64_t>& shape, TypeId type,
                std::span<const std::byte> data) {
    name(variable);
    number(static_cast<uint8_t>(shape.size()));
    for (const int64_t size : shape) number(static_cast<uint32_t>(size));
    number(type);
    number(static_cast<uint32_t>(data.size()));
    bytes(data);
  }
  template <class Code>
  void codes(const MappedTensor& tensor, TypeId type, const std::vector<float>& values) {
    const Codes<Code> stored = to_codes<Code>(format_of(type), values, tensor.shape[1]);
    variable(tensor.name, tensor.shape, type, std::as_bytes(std::span(stored.codes)));
    const bool rows = type == kTypeInt8;
    variable(tensor.name + "_scale", rows ? std::vector{tensor.shape[0]} : std::vector<int64_t>{},
             kTypeFloat32, std::as_bytes(std::span(stored.scales)));
  }
};

void write_tensor(ModelWriter& out, const StoredTensor& stored, const std::vector<float>& values) {
  const MappedTensor& tensor = stored.tensor;
  switch (stored.type) {
    case kTypeInt8:
      return out.codes<int8_t>(tensor, kTypeInt8, values);
    case kTypeInt16:
      return out.codes<int16_t>(tensor, kTypeInt16, values);
    case kTypeFloat16:
      return out.variable(tensor.name, tensor.shape, kTypeFloat16, to_float16(tensor.name, values));
    case kTypeBFloat16:
      return out.variable(tensor.name, tensor.shape, kTypeBFloat16,
                          to_bfloat16(tensor.name, values));
    default:
      return out.variable(tensor.name, tensor.shape, kTypeFloat32,
                          std::as_bytes(std::span(values)));
  }
}

void write_binary(const HostModel& host, ExportWeights weights, const fs::path& file) {
  const FileSpec spec = file_spec(host.spec());
  const std::vector<StoredTensor> tensors = stored_tensors(host, weights);
  const std::vector<Scalar> scalars = scalars_of(host.spec());
  const auto scales = std::count_if(tensors.begin(), tensors.end(),
                                    [](const StoredTensor& each) { return has_scale(each.type); });
  AtomicFile sink(file);
  ModelWriter out(sink);
  out.number(kBinaryVersion);
  out.name(spec.name);
  out.number(spec.revision);
  out.number(static_cast<uint32_t>(tensors.size() + scalars.size() + static_cast<size_t>(scales)));
  for (const StoredTensor& stored : tensors) {
    write_tensor(out, stored, values_of(host, stored));
  }
  for (const Scalar& scalar : scalars)
    put_scalar(scalar, [&](auto value) {
      out.variable(scalar.name, {}, scalar.type, std::as_bytes(std::span(&value, 1)));
    });
  const auto aliases = aliases_of(host.spec());
  out.number(static_cast<uint32_t>(aliases.size()));
  for (const auto& [alias, name] : aliases) {
    out.name(alias);
    out.name(name);
  }
  sink.commit();
}

Json ctranslate2_config(const ModelSpec& spec, const Tokenizer& tokenizer) {
  Json json;
  if (spec.has_encoder()) {
    json["add_source_bos"] = false;
    json["add_source_eos"] = true;
    json["decoder_start_token"] = tokenizer.token(tokenizer.special_tokens().start());
  }
  json["bos_token"] = tokenizer.token(tokenizer.special_tokens().start());
  json["eos_token"] = tokenizer.token(tokenizer.eos_id());
  json["unk_token"] = tokenizer.token(tokenizer.unk_id());
  json["layer_norm_epsilon"] = spec.decoder.norm.epsilon;
  if (spec.decoder.norm.kind == Norm::rms) {  // what the converter writes of Llama models
    json["multi_query_attention"] = true;
    json["quantization_type"] = 0;
    json["quantization_bits"] = nullptr;
    json["quantization_group_size"] = nullptr;
  }
  return json;
}

class Reader : public BinaryReader {
 public:
  using BinaryReader::BinaryReader;

  template <class... Parts>
  void check(bool condition, const Parts&... message) const {
    require(condition, ErrorCode::corrupt_file, kOrigin, label(), ": ", message...);
  }
  std::string name() {
    std::string value = text(number<uint16_t>());
    check(!value.empty() && value.back() == '\0', "a string has no end");
    value.pop_back();
    return value;
  }
  struct Variable {
    std::string name;
    std::vector<int64_t> shape;
    uint8_t type;
    std::vector<std::byte> data;
  };
  Variable variable() {
    Variable variable{name(), std::vector<int64_t>(number<uint8_t>()), 0, {}};
    for (int64_t& size : variable.shape) size = number<uint32_t>();
    variable.type = number<uint8_t>();
    variable.data = bytes(number<uint32_t>());
    return variable;
  }
};

template <class T>
std::span<const T> as(const std::vector<std::byte>& data) {
  return {reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T)};
}

// The values of a variable, whose scale is the next one.
std::vector<float> read_values(Reader& in, const Reader::Variable& variable) {
  if (variable.type == kTypeFloat16) return from_float16(variable.data);
  if (variable.type == kTypeBFloat16) return from_bfloat16(variable.data);
  if (variable.type == kTypeFloat32) {
    const auto values = as<float>(variable.data);
    return {values.begin(), values.end()};
  }
  const Reader::Variable scale = in.variable();
  const bool rows = variable.type == kTypeInt8;
  const std::vector<int64_t> shape =
      rows ? std::vector{variable.shape.front()} : std::vector<int64_t>{};
  in.check(scale.name == variable.name + "_scale" && scale.type == kTypeFloat32 &&
               scale.shape == shape &&
               std::cmp_equal(as<float>(scale.data).size(), rows ? shape.front() : 1),
           variable.name, " has no scale");
  const int64_t columns = variable.shape.back();
  const WeightFormat& format = format_of(variable.type);
  return rows ? from_codes(format, as<int8_t>(variable.data), as<float>(scale.data), columns)
              : from_codes(format, as<int16_t>(variable.data), as<float>(scale.data), columns);
}

double scalar_in(const Reader::Variable& variable) {
  const auto value = [&]<class T>(T) { return static_cast<double>(as<T>(variable.data).front()); };
  switch (variable.type) {
    case kTypeInt8:
      return value(int8_t{});
    case kTypeInt16:
      return value(int16_t{});
    case kTypeInt32:
      return value(int32_t{});
    default:
      return value(float{});
  }
}

void check_scalar(const Reader& in, const Reader::Variable& variable, const Scalar& wanted) {
  put_scalar(wanted, [&]<class T>(T expected) {
    T value{};
    const bool fits = variable.type == wanted.type && variable.data.size() == sizeof value;
    if (fits) std::memcpy(&value, variable.data.data(), sizeof value);
    in.check(fits && variable.shape.empty() && value == expected, variable.name, " is ", +value);
  });
}

// The model that a directory describes, by what CTranslate2 reads: scalars, names and shapes of
// variables, and config.json.
struct Described {
  std::map<std::string, double> scalars;
  std::map<std::string, std::vector<int64_t>> shapes;  // of the others
  std::map<std::string, std::string> aliases;

  bool has(const std::string& name) const { return shapes.contains(name); }
  double scalar(const std::string& name) const {
    const auto found = scalars.find(name);
    return found == scalars.end() ? 0 : found->second;
  }
  int64_t rows(const std::string& name) const { return shapes.at(name).front(); }
  int64_t layers(const char* side) const {
    int64_t count = 0;
    while (has(concat(side, "/layer_", count, "/self_attention/linear_0/weight"))) ++count;
    return count;
  }
  // Rotary positions have no end in the files: rotary_positions is that of the model.
  ModelConfig config(const fs::path& directory, int64_t rotary_positions) const;
};

ModelConfig Described::config(const fs::path& directory, int64_t rotary_positions) const {
  const std::string first = "decoder/layer_0/", attention = first + "self_attention/";
  ModelConfig config;
  config.encoder_layers = layers("encoder");
  config.decoder_layers = layers("decoder");
  config.architecture =
      config.encoder_layers > 0 ? Architecture::encoder_decoder : Architecture::decoder_lm;
  if (config.encoder_layers == 0) config.encoder_layers = ModelConfig{}.encoder_layers;
  config.vocabulary = rows("decoder/embeddings/weight");
  config.width = shapes.at("decoder/embeddings/weight").back();
  config.ffn_width = rows(first + "ffn/linear_0/weight");
  if (const std::string encoder = "encoder/layer_0/ffn/linear_0/weight";
      has(encoder) && rows(encoder) != config.ffn_width)
    config.encoder_ffn_width = rows(encoder);
  config.heads = static_cast<int64_t>(scalar("decoder/num_heads"));
  config.kv_heads = static_cast<int64_t>(scalar(attention + "num_heads_kv"));
  config.pre_norm = scalar("decoder/pre_norm") != 0;
  for (const Activation each :
       {Activation::relu, Activation::gelu, Activation::silu, Activation::gelu_erf})
    if (scalar("decoder/activation") == activation_id(each)) config.activation = each;
  config.norm = has(attention + "layer_norm/beta") ? Norm::layer : Norm::rms;
  config.ffn = has(first + "ffn/linear_0_noact/weight") ? FeedForward::swiglu : FeedForward::plain;
  config.biases = has(attention + "linear_0/bias");
  config.output_bias = !config.biases || has("decoder/projection/bias");
  config.tied_embeddings = aliases.contains("decoder/projection/weight");
  if (has(kPositions)) {
    config.max_positions = rows(kPositions);
  } else {
    config.positions = Positions::rotary;
    config.max_positions = rotary_positions;
    config.rope_theta = scalar(attention + "rotary_base");
  }
  config.norm_epsilon = ConfigReader(directory / "config.json").number("layer_norm_epsilon");
  return config;
}

// The head of the file; how many variables follow.
uint32_t read_head(Reader& in, const HostModel& host) {
  const FileSpec spec = file_spec(host.spec());
  in.check(in.number<uint32_t>() == kBinaryVersion, "another binary version");
  in.check(in.name() == spec.name && in.number<uint32_t>() == spec.revision,
           "another specification");
  return in.number<uint32_t>();
}

// CORRUPT_FILE names what is not as it was written.
Described check_file(Reader& in, const HostModel& host, ExportWeights weights) {
  std::map<std::string, StoredTensor> tensors;
  for (StoredTensor& stored : stored_tensors(host, weights))
    tensors.emplace(stored.tensor.name, std::move(stored));
  std::map<std::string, Scalar> scalars;
  for (Scalar& scalar : scalars_of(host.spec())) scalars.emplace(scalar.name, std::move(scalar));
  Described described;
  const uint32_t count = read_head(in, host);
  for (uint32_t read = 0; read < count; ++read) {
    const Reader::Variable variable = in.variable();
    if (const auto scalar = scalars.extract(variable.name)) {
      check_scalar(in, variable, scalar.mapped());
      described.scalars[variable.name] = scalar_in(variable);
      continue;
    }
    const auto node = tensors.extract(variable.name);
    in.check(!node.empty(), "the variable ", variable.name, " is unknown");
    const StoredTensor& stored = node.mapped();
    const auto bytes = stored.tensor.elements() * size_of(stored.type);
    in.check(variable.type == stored.type && variable.shape == stored.tensor.shape &&
                 std::cmp_equal(variable.data.size(), bytes),
             variable.name, " is of type ", int{variable.type}, " or has another shape");
    const std::vector<float> values = read_values(in, variable);
    if (has_scale(stored.type)) ++read;  // the scale is a variable as well
    const auto columns = stored.tensor.shape.back();
    check_rounding(variable.name, format_of(stored.type), values_of(host, stored), values, columns);
    described.shapes[variable.name] = variable.shape;
  }
  in.check(tensors.empty() && scalars.empty(), "variables are missing");
  for (uint32_t left = in.number<uint32_t>(); left > 0; --left) {
    const std::string alias = in.name();
    described.aliases[alias] = in.name();
  }
  in.check(described.aliases == aliases_of(host.spec()), "the aliases are others");
  return described;
}

}  // namespace

const Expressible& ctranslate2_expressible() {
  static const Expressible expressible{"CTranslate2",
                                       {{{"architecture", "encoder-decoder decoder-lm"},
                                         {"positions", "sinusoidal learned"},
                                         {"embedding_scale", "1 sqrt(width)"},
                                         {"norm placement", "before after"},
                                         {"activation", "*"},
                                         {"norm_epsilon", "*"},
                                         {"embeddings", "*"},
                                         {"output_bias", "*"}},
                                        llama_form()}};
  return expressible;
}

void write_ctranslate2(const HostModel& host, const Tokenizer& tokenizer, ExportWeights weights,
                       const fs::path& directory) {
  check_sizes(host, weights);
  const bool lm = !host.spec().has_encoder();
  Json::List subwords;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) subwords.push_back(tokenizer.token(id));
  write_json(directory / "config.json", ctranslate2_config(host.spec(), tokenizer));
  write_json(directory / (lm ? "vocabulary.json" : "shared_vocabulary.json"), subwords);
  if (tokenizer.kind() == MarianTokenizer::kKind)
    write_marian_vocabulary(tokenizer, directory);
  else
    write_file_atomically(directory / tokenizer.file_name(), tokenizer.serialized());
  write_binary(host, weights, directory / "model.bin");
}

HostModel read_back_ctranslate2(const HostModel& host, ExportWeights weights,
                                const fs::path& directory) {
  const auto open = [&] {
    return Reader(open_file_for_reading(directory / "model.bin", FollowLinks::no));
  };
  Reader first = open();
  const Described described = check_file(first, host, weights);
  HostModel again =
      make_host_model(described.config(directory, host.spec().max_positions), nullptr, directory);
  // Once more, now that there is a place for each tensor.
  std::map<std::string, MappedTensor> tensors;
  for (StoredTensor& stored : stored_tensors(host, weights))
    if (!stored.computed()) tensors.emplace(stored.tensor.name, std::move(stored.tensor));
  Reader in = open();
  const uint32_t count = read_head(in, host);
  for (uint32_t read = 0; read < count; ++read) {
    const Reader::Variable variable = in.variable();
    const auto tensor = tensors.find(variable.name);
    if (tensor == tensors.end()) continue;
    scatter(again.parameters(), tensor->second, read_values(in, variable));
    if (has_scale(static_cast<TypeId>(variable.type))) ++read;  // the scale is a variable as well
  }
  return again;
}

}  // namespace trafo::interop
