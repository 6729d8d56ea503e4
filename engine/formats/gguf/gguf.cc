// GGUF files of models, as llama.cpp reads them: one file with weights and tokenizer. The families
// of gguf_family.h say which models, and the tensors and keys of each; gguf_tokenizer.h has the
// tokenizers.
//
// Norms are float32. In Q4_0 files the output matrix, which may be the embeddings as well, is Q8_0:
// every logit depends on it.
#include <algorithm>
#include <array>

#include "engine/formats/formats.h"
#include "engine/formats/gguf/gguf_family.h"
#include "engine/formats/gguf/gguf_tokenizer.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/stored_weights.h"
#include "engine/io/safetensors_header.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "model.gguf";
constexpr const char* kArchitectureKey = "general.architecture";
constexpr const char* kRopeDivisors = "rope_freqs.weight";  // see gguf_rope_divisors()

const std::array<const GgufFamily*, 3>& families() {
  static const std::array all = {&gguf_llama(), &gguf_gpt2(), &gguf_t5()};
  return all;
}

struct Found {
  const GgufFamily& family;
  const char* name;  // of the architecture
};
// Of a model that gguf_expressible() expresses.
Found found(const ModelSpec& spec) {
  auto form = static_cast<size_t>(std::max(0, match(spec, gguf_expressible()).form));
  for (const GgufFamily* family : families()) {
    if (form < family->architectures.size()) return {*family, family->architectures[form].name};
    form -= family->architectures.size();
  }
  fail(ErrorCode::internal, kOrigin, "no family has the form ", form);
}

// general.file_type: what most matrices are.
struct Stored {
  GgufType type;
  uint32_t file_type;
};
Stored stored_as(ExportWeights weights) {
  switch (weights) {
    case ExportWeights::float16:
      return {GgufType::f16, 1};
    case ExportWeights::q8_0:
      return {GgufType::q8_0, 7};
    case ExportWeights::q4_0:
      return {GgufType::q4_0, 2};
    default:
      return {GgufType::f32, 0};
  }
}

const WeightFormat& format_of(GgufType type) {
  switch (type) {
    case GgufType::f16:
      return formats::kFloat16;
    case GgufType::q8_0:
      return formats::kQ8_0;
    case GgufType::q4_0:
      return formats::kQ4_0;
    case GgufType::f32:
      break;
  }
  return formats::kFloat32;
}

// A tensor of the file, and where it comes from.
struct Placed {
  GgufTensor stored;
  GgufPlaced from;
};

std::vector<Placed> tensors_of(const HostModel& host, ExportWeights weights) {
  const auto& [family, name] = found(host.spec());
  std::vector<GgufPlaced> tensors = family.tensors(host.config(), host.spec(), name);
  const std::string output = "output.weight";
  const bool has_output = std::any_of(tensors.begin(), tensors.end(),
                                      [&](const GgufPlaced& each) { return each.name == output; });
  const std::string logits = has_output ? output : tensors.front().name;
  std::vector<Placed> placed;
  for (GgufPlaced& each : tensors) {
    const std::vector<int64_t>& shape = each.ours.shape;
    GgufType type = shape.size() == 1 || each.is_float32 ? GgufType::f32 : stored_as(weights).type;
    if (type == GgufType::q4_0 && each.name == logits) type = GgufType::q8_0;
    placed.push_back({{each.name, shape, type}, std::move(each)});
  }
  return placed;
}

// Row i of the first half of a head goes to row 2i, row i of the second half to row 2i + 1; or
// back.
std::vector<float> reordered(const std::vector<float>& values, const GgufPlaced& placed,
                             bool back) {
  if (placed.head_rows == 0) return values;
  const int64_t columns = placed.ours.shape[1], half = placed.head_rows / 2;
  std::vector<float> result(values.size());
  for (int64_t row = 0; row < placed.ours.rows; ++row) {
    const int64_t head = row / placed.head_rows, in_head = row % placed.head_rows;
    const int64_t there =
        head * placed.head_rows + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
    const int64_t from = back ? there : row, to = back ? row : there;
    std::copy_n(values.begin() + from * columns, columns, result.begin() + to * columns);
  }
  return result;
}

// The values of the model that the tensor has.
std::vector<float> values_of(const HostModel& host, const GgufPlaced& placed) {
  std::vector<float> values = gather(host.parameters(), placed.ours);
  if (placed.factor != 1)
    for (float& value : values) value *= placed.factor;
  return values;
}

std::vector<std::byte> encoded(const GgufTensor& tensor, const std::vector<float>& values) {
  switch (tensor.type) {
    case GgufType::f16:
      return to_float16(tensor.name, values);
    case GgufType::q8_0:
    case GgufType::q4_0:
      return to_blocks(tensor.name, format_of(tensor.type), values);
    case GgufType::f32:
      break;
  }
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<float> decoded(const GgufTensor& tensor, const std::vector<std::byte>& bytes) {
  switch (tensor.type) {
    case GgufType::f16:
      return from_float16(bytes);
    case GgufType::q8_0:
    case GgufType::q4_0:
      return from_blocks(format_of(tensor.type), bytes);
    case GgufType::f32:
      break;
  }
  const auto* values = reinterpret_cast<const float*>(bytes.data());
  return {values, values + bytes.size() / sizeof(float)};
}

GgufTensor divisors_tensor(const std::vector<float>& divisors) {
  return {kRopeDivisors, {static_cast<int64_t>(divisors.size())}, GgufType::f32};
}

void check_widths(const StackSpec& decoder, ExportWeights weights) {
  if (weights != ExportWeights::q8_0 && weights != ExportWeights::q4_0) return;
  constexpr int64_t kBlockValues = formats::kQ8_0.group;
  static_assert(kBlockValues == formats::kQ4_0.group);
  const auto check = [&](const char* flag, int64_t width) {
    if (width % kBlockValues != 0)
      cannot_express(kGgufFormat,
                     concat(flag, " ", width, " with --weights ", enum_name(weights),
                            ", whose blocks have ", kBlockValues,
                            " values; train with a multiple of ", kBlockValues, " or use float16"));
  };
  check("--dim-emb", decoder.width);
  check("--transformer-dim-ffn", decoder.feed_forward.width);
  check("heads times head_width", decoder.attention.query_width());
}

GgufPairs pairs_of(const ModelSpec& spec, const ExportVocabulary& vocabulary,
                   ExportWeights weights) {
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  const auto& [family, name] = found(spec);
  const StackSpec& first = spec.encoder ? *spec.encoder : spec.decoder;
  GgufPairs pairs;
  const auto add = [&](std::string key, GgufValue value) {
    pairs.emplace_back(std::move(key), std::move(value));
  };
  const auto add_own = [&, front = std::string(name)](const char* key, GgufValue value) {
    add(concat(front, ".", key), std::move(value));
  };
  add(kArchitectureKey, name);
  add("general.name", concat("Trafo ", enum_name(spec.architecture)));
  add("general.file_type", stored_as(weights).file_type);
  add("general.quantization_version", number(2));
  add_own("vocab_size", number(spec.vocabulary));
  add_own("context_length", number(spec.max_positions));
  add_own("embedding_length", number(spec.width()));
  add_own("block_count", number(first.layers()));
  add_own("feed_forward_length", number(first.feed_forward.width));
  add_own("attention.head_count", number(first.attention.heads));
  family.add_keys(spec, name, add_own);
  const bool has_encoder = spec.has_encoder();
  if (has_encoder) add_own("decoder_start_token_id", number(vocabulary.tokens.special.start()));
  for (auto& [key, value] : tokenizer_pairs(*vocabulary.tokenizer, vocabulary.tokens, has_encoder))
    add(std::move(key), std::move(value));
  return pairs;
}

// The model that the metadata and the tensors describe, by the keys that llama.cpp reads.
ModelConfig described_by(const GgufReader& in) {
  const GgufKeys keys(in);
  ModelConfig config;
  config.vocabulary = keys.count("vocab_size");
  config.max_positions = keys.count("context_length");
  config.width = keys.count("embedding_length");
  config.ffn_width = keys.count("feed_forward_length");
  config.heads = keys.count("attention.head_count");
  config.decoder_layers = keys.count("block_count");
  for (const GgufFamily* family : families())
    for (const GgufFamily::Architecture& each : family->architectures)
      if (keys.architecture() == each.name) {
        family->describe(keys, config);
        return config;
      }
  fail(ErrorCode::corrupt_file, kOrigin, in.label(), ": ", kArchitectureKey, " is ",
       keys.architecture());
}

// Settings of the model that the file shows in its numbers alone, which are compared.
void take_over(const ModelConfig& ours, bool has_divisors, ModelConfig& config) {
  if (has_divisors) {
    config.rope_factor = ours.rope_factor;
    config.rope_original_positions = ours.rope_original_positions;
    config.rope_low_turns = ours.rope_low_turns;
    config.rope_high_turns = ours.rope_high_turns;
  }
  // Of a T5 whose output matrix is the embedding times a factor.
  if (config.separate_output && !ours.separate_output) {
    config.separate_output = false;
    config.logits_divisor = ours.logits_divisor;
  }
}

}  // namespace

GgufKeys::GgufKeys(const GgufReader& in) : in_(in) {
  const GgufValue* name = find_value(kArchitectureKey);
  const std::string* text = name == nullptr ? nullptr : std::get_if<std::string>(name);
  require(text != nullptr, ErrorCode::corrupt_file, kOrigin, in.label(), " has no ",
          kArchitectureKey);
  architecture_ = *text;
}

bool GgufKeys::has(std::string_view tensor) const {
  return std::any_of(in_.tensors().begin(), in_.tensors().end(),
                     [&](const GgufTensor& each) { return each.name == tensor; });
}

const GgufValue* GgufKeys::find_value(const std::string& key) const {
  for (const auto& [name, value] : in_.pairs())
    if (name == key) return &value;
  return nullptr;
}

const Expressible& gguf_expressible() {
  static const Expressible expressible = [] {
    Expressible all{kGgufFormat, {}};
    for (const GgufFamily* family : families())
      for (const GgufFamily::Architecture& each : family->architectures)
        all.forms.push_back(each.form);
    return all;
  }();
  return expressible;
}

void write_gguf(const HostModel& host, const ExportVocabulary& vocabulary, ExportWeights weights,
                const fs::path& directory) {
  check_widths(host.spec().decoder, weights);
  const auto& [family, name] = found(host.spec());
  family.check(host.spec(), name);
  const GgufPairs pairs = pairs_of(host.spec(), vocabulary, weights);
  const std::vector<Placed> placed = tensors_of(host, weights);
  std::vector<GgufTensor> tensors;
  for (const Placed& each : placed) tensors.push_back(each.stored);
  const std::vector<float> divisors = gguf_rope_divisors(host.spec());
  if (!divisors.empty()) tensors.push_back(divisors_tensor(divisors));
  size_t next = 0;
  write_gguf_file(directory / kFile, pairs, tensors, [&](const GgufTensor& tensor) {
    if (next == placed.size()) return encoded(tensor, divisors);
    const GgufPlaced& from = placed[next++].from;
    return encoded(tensor, reordered(values_of(host, from), from, false));
  });
}

HostModel read_back_gguf(const HostModel& host, const ExportVocabulary& vocabulary,
                         ExportWeights weights, const fs::path& directory) {
  GgufReader in(directory / kFile);
  const auto check = [&](bool condition, const auto&... message) {
    require(condition, ErrorCode::corrupt_file, kOrigin, in.label(), ": ", message...);
  };
  check(in.pairs() == pairs_of(host.spec(), vocabulary, weights), "the metadata are others");
  const std::vector<Placed> placed = tensors_of(host, weights);
  const std::vector<float> divisors = gguf_rope_divisors(host.spec());
  check(in.tensors().size() == placed.size() + (divisors.empty() ? 0 : 1),
        "another number of tensors");
  ModelConfig config = described_by(in);
  if (!divisors.empty()) {
    const GgufTensor tensor = divisors_tensor(divisors);
    check(in.tensors().back() == tensor && decoded(tensor, in.data(placed.size())) == divisors,
          kRopeDivisors, " is another tensor");
  }
  take_over(host.config(), !divisors.empty(), config);
  HostModel again = make_host_model(config, nullptr, directory);
  for (size_t i = 0; i < placed.size(); ++i) {
    const auto& [stored, from] = placed[i];
    check(in.tensors()[i] == stored, stored.name, " is another tensor");
    const std::vector<float> values = reordered(decoded(stored, in.data(i)), from, true);
    check_rounding(stored.name, format_of(stored.type), values_of(host, from), values,
                   from.ours.shape.back());
    if (from.factor == 1) scatter(again.parameters(), from.ours, values);
  }
  return again;
}

}  // namespace trafo::interop
