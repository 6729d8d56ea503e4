// The directory of a CTranslate2 model, binary version 6, TransformerSpec revision 7 and
// TransformerDecoderSpec revision 8. All numbers are little-endian:
//
//   u32 version   string spec   u32 revision
//   u32 count     { string name   u8 rank   u32 dims[rank]   u8 type   u32 bytes   data }
//   u32 count     { string alias   string name }
//
// A string is a u16 length, which counts a final NUL, and the bytes.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "engine/interop/directory.h"
#include "engine/interop/formats.h"
#include "engine/io/atomic_file.h"
#include "engine/ops/embedding/embedding.h"

namespace trafo::interop {
namespace {

static_assert(std::endian::native == std::endian::little);

namespace fs = std::filesystem;

constexpr const char* kFormat = "CTranslate2";
constexpr uint32_t kBinaryVersion = 6;
enum TypeId : uint8_t { kFloat32 = 0, kInt8 = 1, kInt16 = 2 };

struct Spec {
  const char* name;
  uint32_t revision;
};
Spec spec_of(const ModelConfig& config) {
  return !config.has_encoder() ? Spec{"TransformerDecoderSpec", 8} : Spec{"TransformerSpec", 7};
}

int8_t activation_id(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return 0;
    case Activation::gelu:
      return 1;  // GELUTanh
    case Activation::silu:
      return 2;
  }
  return 0;
}

class Writer {
 public:
  explicit Writer(ByteSink& sink) : sink_(sink) {}

  template <class T>
  void number(T value) {
    sink_.write(std::as_bytes(std::span(&value, 1)));
  }
  void text(const std::string& value) {
    number(static_cast<uint16_t>(value.size() + 1));
    sink_.write(std::string_view(value.c_str(), value.size() + 1));
  }
  void variable(const std::string& name, const std::vector<int64_t>& shape, TypeId type,
                std::span<const std::byte> data) {
    text(name);
    number(static_cast<uint8_t>(shape.size()));
    for (const int64_t size : shape) number(static_cast<uint32_t>(size));
    number(type);
    number(static_cast<uint32_t>(data.size()));
    sink_.write(data);
  }

 private:
  ByteSink& sink_;
};

struct Scalar {
  std::string name;
  TypeId type;
  int16_t value;
};

std::vector<Scalar> scalars_of(const ModelConfig& config) {
  const bool lm = !config.has_encoder();
  std::vector<Scalar> scalars;
  const auto side = [&](const std::string& name) {
    scalars.push_back({name + "/num_heads", kInt16, static_cast<int16_t>(config.heads)});
    scalars.push_back({name + "/pre_norm", kInt8, config.pre_norm});
    scalars.push_back({name + "/activation", kInt8, activation_id(config.activation)});
    scalars.push_back({name + "/scale_embeddings", kInt8, !lm});
  };
  if (!lm) {
    side("encoder");
    scalars.push_back({"encoder/embeddings_merge", kInt8, 0});
  }
  side("decoder");
  scalars.push_back({"decoder/alignment_layer", kInt16, -1});
  scalars.push_back({"decoder/alignment_heads", kInt16, 1});
  scalars.push_back({"decoder/alibi", kInt8, 0});
  scalars.push_back({"decoder/alibi_use_positive_positions", kInt8, 0});
  scalars.push_back({"decoder/scale_alibi", kInt8, 0});
  scalars.push_back({"decoder/start_from_zero_embedding", kInt8, 0});
  return scalars;
}

// Names of one matrix after the first, which holds it.
std::map<std::string, std::string> aliases_of(const ModelConfig& config) {
  std::map<std::string, std::string> aliases;
  if (config.tied_embeddings) {
    aliases["decoder/projection/weight"] = "decoder/embeddings/weight";
    if (config.has_encoder()) aliases["encoder/embeddings_0/weight"] = "decoder/embeddings/weight";
  }
  if (config.has_encoder())
    aliases["encoder/position_encodings/encodings"] = "decoder/position_encodings/encodings";
  return aliases;
}

// The tensors of model.bin, without aliases. The table of positions is a parameter of no model.
std::vector<MappedTensor> stored_tensors(const ModelConfig& config) {
  const auto aliases = aliases_of(config);
  std::vector<MappedTensor> stored;
  for (MappedTensor& tensor : ctranslate2_tensors(config))
    if (!aliases.contains(tensor.name)) stored.push_back(std::move(tensor));
  return stored;
}

void check_expressible(const ModelConfig& config) {
  for (const MappedTensor& tensor : stored_tensors(config))
    if (tensor.elements() > int64_t{UINT32_MAX} / 4)
      cannot_express(kFormat, concat(tensor.name, ", which is 4 GiB or more"));
  if (config.heads > INT16_MAX)
    cannot_express(kFormat, concat(config.heads, " heads (--transformer-heads)"));
  if (config.max_positions * config.width > int64_t{UINT32_MAX} / 4)
    cannot_express(kFormat, concat(config.max_positions, " positions"));
}

void write_binary(const HostModel& host, const fs::path& file) {
  const ModelConfig& config = host.config();
  const Spec spec = spec_of(config);
  const std::vector<MappedTensor> tensors = stored_tensors(config);
  const std::vector<Scalar> scalars = scalars_of(config);
  const bool table = config.has_encoder();
  AtomicFile sink(file);
  Writer out(sink);
  out.number(kBinaryVersion);
  out.text(spec.name);
  out.number(spec.revision);
  out.number(static_cast<uint32_t>(tensors.size() + scalars.size() + (table ? 1 : 0)));
  for (const MappedTensor& tensor : tensors) {
    const std::vector<float> values = gather(host.parameters(), tensor);
    out.variable(tensor.name, tensor.shape, kFloat32, std::as_bytes(std::span(values)));
  }
  if (table) {
    // Without one CTranslate2 would compute positions by another formula.
    const std::vector<float> values = host.context->values<float>(
        sinusoidal_positions(*host.context, config.max_positions, config.width, DType::f32));
    out.variable("decoder/position_encodings/encodings", {config.max_positions, config.width},
                 kFloat32, std::as_bytes(std::span(values)));
  }
  for (const Scalar& scalar : scalars) {
    const auto narrow = static_cast<int8_t>(scalar.value);
    out.variable(scalar.name, {}, scalar.type,
                 scalar.type == kInt8 ? std::as_bytes(std::span(&narrow, 1))
                                      : std::as_bytes(std::span(&scalar.value, 1)));
  }
  const auto aliases = aliases_of(config);
  out.number(static_cast<uint32_t>(aliases.size()));
  for (const auto& [alias, name] : aliases) {
    out.text(alias);
    out.text(name);
  }
  sink.commit();
}

Json config_json(const ModelConfig& config, const Tokenizer& tokenizer) {
  Json json;
  if (config.has_encoder()) {
    json["add_source_bos"] = false;
    json["add_source_eos"] = true;
    json["decoder_start_token"] = tokenizer.token(tokenizer.bos_id());
  }
  json["bos_token"] =
      tokenizer.token(tokenizer.bos_id() < 0 ? tokenizer.eos_id() : tokenizer.bos_id());
  json["eos_token"] = tokenizer.token(tokenizer.eos_id());
  json["unk_token"] = tokenizer.token(tokenizer.unk_id());
  json["layer_norm_epsilon"] = config.norm_epsilon;
  return json;
}

class Reader {
 public:
  explicit Reader(Descriptor file) : file_(std::move(file)) {}

  void bytes(void* to, size_t count) {
    const std::span<std::byte> out(static_cast<std::byte*>(to), count);
    require(file_.read_at(position_, out) == count, ErrorCode::corrupt_file, kOrigin,
            file_.path().string(), " ends too early");
    position_ += count;
  }
  template <class T>
  T number() {
    T value;
    bytes(&value, sizeof value);
    return value;
  }
  std::string text() {
    std::string value(number<uint16_t>(), '\0');
    bytes(value.data(), value.size());
    require(!value.empty() && value.back() == '\0', ErrorCode::corrupt_file, kOrigin,
            file_.path().string(), " has a string without its end");
    value.pop_back();
    return value;
  }
  // Before anything of a size that the file claims is made.
  void require_left(uint64_t count) const {
    const uint64_t size = file_.size();
    require(count <= size - std::min(position_, size), ErrorCode::corrupt_file, kOrigin,
            file_.path().string(), " ends too early");
  }
  const Descriptor& file() const { return file_; }

 private:
  Descriptor file_;
  uint64_t position_ = 0;
};

}  // namespace

void write_ctranslate2(const HostModel& host, const Tokenizer& tokenizer,
                       const fs::path& directory) {
  require_architecture(kFormat, host.config(),
                       {Architecture::encoder_decoder, Architecture::decoder_lm});
  refuse_llama_form(kFormat, host.config());
  const ModelConfig& config = host.config();
  const bool lm = !config.has_encoder();
  check_expressible(config);
  require(lm || tokenizer.bos_id() >= 0, ErrorCode::invalid_argument, kOrigin,
          "the tokenizer has no <s>, from which the decoder starts");
  Json::List subwords;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) subwords.push_back(tokenizer.token(id));
  write_json(directory / "config.json", config_json(config, tokenizer));
  write_json(directory / (lm ? "vocabulary.json" : "shared_vocabulary.json"), subwords);
  write_file_atomically(directory / "vocab.spm", tokenizer.serialized());
  write_binary(host, directory / "model.bin");
}

HostModel read_back_ctranslate2(const ModelConfig& config, const fs::path& directory) {
  Reader in(open_file_for_reading(directory / "model.bin", FollowLinks::no));
  const auto check = [&](bool condition, const auto&... message) {
    require(condition, ErrorCode::corrupt_file, kOrigin, in.file().path().string(), ": ",
            message...);
  };
  std::map<std::string, MappedTensor> wanted;
  for (const MappedTensor& tensor : stored_tensors(config)) wanted.emplace(tensor.name, tensor);
  std::map<std::string, int16_t> scalars;
  for (const Scalar& scalar : scalars_of(config)) scalars.emplace(scalar.name, scalar.value);
  const Spec spec = spec_of(config);
  check(in.number<uint32_t>() == kBinaryVersion, "another binary version");
  check(in.text() == spec.name && in.number<uint32_t>() == spec.revision, "another specification");
  HostModel host = make_host_model(config);
  const auto count = in.number<uint32_t>();
  for (uint32_t i = 0; i < count; ++i) {
    const std::string name = in.text();
    std::vector<int64_t> shape(in.number<uint8_t>());
    for (int64_t& size : shape) size = in.number<uint32_t>();
    const auto type = in.number<uint8_t>();
    const auto bytes = in.number<uint32_t>();
    if (const auto scalar = scalars.extract(name)) {
      const int16_t value = type == kInt8 ? in.number<int8_t>() : in.number<int16_t>();
      check(shape.empty() && value == scalar.mapped(), name, " is ", value);
      continue;
    }
    check(type == kFloat32 && bytes % sizeof(float) == 0, name, " is of type ", int{type});
    in.require_left(bytes);
    std::vector<float> values(bytes / sizeof(float));
    in.bytes(values.data(), bytes);
    const auto tensor = wanted.extract(name);
    if (tensor.empty()) {
      check(name == "decoder/position_encodings/encodings", "the variable ", name, " is unknown");
      const Tensor table =
          sinusoidal_positions(*host.context, config.max_positions, config.width, DType::f32);
      check(host.context->values<float>(table) == values, "the positions are others");
      continue;
    }
    check(shape == tensor.mapped().shape, name, " has another shape");
    scatter(host.parameters(), tensor.mapped(), values);
  }
  check(wanted.empty() && scalars.empty(), "variables are missing");
  std::map<std::string, std::string> aliases;
  for (uint32_t left = in.number<uint32_t>(); left > 0; --left) {
    const std::string alias = in.text();
    aliases[alias] = in.text();
  }
  check(aliases == aliases_of(config), "the aliases are others");
  return host;
}

}  // namespace trafo::interop
