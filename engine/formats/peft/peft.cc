#include "engine/formats/peft/peft.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/formats/hf/directory.h"
#include "engine/io/descriptor.h"
#include "engine/io/safetensors_header.h"
#include "engine/io/temporary_name.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"

namespace trafo {
namespace {

using interop::ConfigReader;
namespace fs = std::filesystem;

constexpr const char* kPeftOrigin = "adapter";
constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kTensorFile = "adapter_model.safetensors";
constexpr const char* kBaseKey = "base_crc32";  // of the metadata, see BaseChecksums
constexpr const char* kBaseVectorsKey = "base_vectors_crc32";

// --- names ---

enum class Form {
  marian,
  t5,
  t5_gated,
  llama,
  gpt2,
  bert,
  roberta,
  bare_encoder,
  modernbert,
  bare_modernbert
};

bool is_modernbert(Form form) {
  return form == Form::modernbert || form == Form::bare_modernbert;
}
bool is_encoder(Form form) {
  return form == Form::bert || form == Form::roberta || form == Form::bare_encoder ||
         is_modernbert(form);
}

Form form_of(const ModelSpec& spec) {
  const bool gated = spec.decoder.feed_forward.gated;
  if (spec.decoder.attention.relative) return gated ? Form::t5_gated : Form::t5;
  if (spec.has_encoder()) return Form::marian;
  const bool bare = spec.head.kind == EncoderHead::none;
  if (spec.architecture == Architecture::encoder && gated)
    return bare ? Form::bare_modernbert : Form::modernbert;
  if (spec.architecture == Architecture::encoder)
    return bare                                       ? Form::bare_encoder
           : spec.head.of_class == EncoderClass::bert ? Form::bert
                                                      : Form::roberta;
  return gated ? Form::llama : Form::gpt2;
}

// The module of a target inside its attention or feed-forward block.
struct LeafName {
  const char* target;
  const char* attention;
  const char* feed_forward;
};
constexpr LeafName kMarian[] = {{"query", "q_proj", ""}, {"key", "k_proj", ""},
                                {"value", "v_proj", ""}, {"output", "out_proj", ""},
                                {"up", "", "fc1"},       {"down", "", "fc2"}};
constexpr LeafName kT5[] = {{"query", "q", ""},  {"key", "k", ""}, {"value", "v", ""},
                            {"output", "o", ""}, {"up", "", "wi"}, {"down", "", "wo"}};
constexpr LeafName kT5Gated[] = {{"query", "q", ""},  {"key", "k", ""},     {"value", "v", ""},
                                 {"output", "o", ""}, {"gate", "", "wi_0"}, {"up", "", "wi_1"},
                                 {"down", "", "wo"}};
constexpr LeafName kLlama[] = {{"query", "q_proj", ""},   {"key", "k_proj", ""},
                               {"value", "v_proj", ""},   {"output", "o_proj", ""},
                               {"gate", "", "gate_proj"}, {"up", "", "up_proj"},
                               {"down", "", "down_proj"}};
constexpr LeafName kGpt2[] = {
    {"qkv", "c_attn", ""}, {"output", "c_proj", ""}, {"up", "", "c_fc"}, {"down", "", "c_proj"}};

constexpr LeafName kBert[] = {
    {"query", "attention.self.query", ""}, {"key", "attention.self.key", ""},
    {"value", "attention.self.value", ""}, {"output", "attention.output.dense", ""},
    {"up", "", "intermediate.dense"},      {"down", "", "output.dense"}};

constexpr LeafName kModernBert[] = {{"qkv", "attn.Wqkv", ""},
                                    {"output", "attn.Wo", ""},
                                    {"gate_up", "", "mlp.Wi"},
                                    {"down", "", "mlp.Wo"}};

const LeafName& leaf_of(Form form, std::string_view target) {
  const auto names = form == Form::marian     ? std::span<const LeafName>(kMarian)
                     : form == Form::t5       ? std::span<const LeafName>(kT5)
                     : form == Form::t5_gated ? std::span<const LeafName>(kT5Gated)
                     : is_modernbert(form)    ? std::span<const LeafName>(kModernBert)
                     : is_encoder(form)       ? std::span<const LeafName>(kBert)
                     : form == Form::llama    ? std::span<const LeafName>(kLlama)
                                              : std::span<const LeafName>(kGpt2);
  for (const LeafName& leaf : names)
    if (leaf.target == target) return leaf;
  fail(ErrorCode::internal, kPeftOrigin, "there is no name for the target ", target);
}

// The keys of cross-attention in decoder layer 3: "model.decoder.layers.3.encoder_attn.k_proj".
std::string peft_name(Form form, const AdapterModule& module) {
  const Place& place = module.place;
  const LeafName& names = leaf_of(form, module.target);
  const bool attention = place.sublayer != Sublayer::feed_forward;
  const char* leaf = attention ? names.attention : names.feed_forward;
  switch (form) {
    case Form::marian:
      return concat("model.", place.stack == Stack::encoder ? "encoder" : "decoder", ".layers.",
                    place.layer,
                    !attention                                    ? "."
                    : place.sublayer == Sublayer::cross_attention ? ".encoder_attn."
                                                                  : ".self_attn.",
                    leaf);
    case Form::t5:
    case Form::t5_gated: {
      const bool encoder = place.stack == Stack::encoder;
      return concat(encoder ? "encoder" : "decoder", ".block.", place.layer, ".layer.",
                    place.sublayer == Sublayer::attention ? "0.SelfAttention."
                    : attention                           ? "1.EncDecAttention."
                    : encoder                             ? "1.DenseReluDense."
                                                          : "2.DenseReluDense.",
                    leaf);
    }
    case Form::llama:
      return concat("model.layers.", place.layer, attention ? ".self_attn." : ".mlp.", leaf);
    case Form::gpt2:
      return concat("transformer.h.", place.layer, attention ? ".attn." : ".mlp.", leaf);
    case Form::bert:
    case Form::roberta:
    case Form::bare_encoder:
      return concat(form == Form::bert      ? "bert."
                    : form == Form::roberta ? "roberta."
                                            : "",
                    "encoder.layer.", place.layer, ".", leaf);
    case Form::modernbert:
    case Form::bare_modernbert:
      return concat(form == Form::modernbert ? "model." : "", "layers.", place.layer, ".", leaf);
  }
  fail(ErrorCode::internal, kPeftOrigin, "unknown form");
}

// The module in each layer that uses these parameters, that of the module's own layer first. PEFT
// has an adapter for each layer: those of layers that share their parameters are copies.
std::vector<AdapterModule> modules_of_layers(const ModelSpec& spec, const AdapterModule& module) {
  const int64_t own = module.place.layer;
  const std::vector<int64_t>& owners = spec.stack(module.place.stack).sharing.owners;
  std::vector<AdapterModule> modules;
  for (int64_t layer = own; layer < std::ssize(owners); ++layer)
    if (owners[static_cast<size_t>(layer)] == own)
      modules.push_back({module.target, module.place.of_layer(layer), module.range});
  return modules;
}

// The end of the names of a target's modules, by which PEFT finds them.
std::string module_suffix(Form form, const std::string& target) {
  const LeafName& names = leaf_of(form, target);
  const bool attention = *names.attention != '\0';
  const std::string leaf = attention ? names.attention : names.feed_forward;
  // GPT-2 has a c_proj in both blocks.
  return form == Form::gpt2 ? (attention ? "attn." : "mlp.") + leaf : leaf;
}

std::string tensor_name(Form form, const AdapterModule& module, const char* part) {
  return concat("base_model.model.", peft_name(form, module), ".", part, ".weight");
}

// A regular expression of the modules of an encoder. In BERT, the name of the feed-forward's second
// layer is the end of the attention's as well.
std::string encoder_modules(Form form, const AdapterConfig& adapter) {
  std::string all;
  for (const std::string& target : adapter.targets)
    all.append(all.empty() ? "" : "|").append(module_suffix(form, target));
  for (size_t dot = all.find('.'); dot != std::string::npos; dot = all.find('.', dot + 2))
    all.insert(dot, "\\");
  const char* const layer =
      is_modernbert(form) ? R"((.*\.)?layers\.\d+\.()" : R"(.*\.layer\.\d+\.()";
  return concat(layer, all, ")");
}

// The classifier's parameters with their names in PEFT.
std::vector<std::pair<std::string, ParamId>> saved_modules(const Model& model) {
  std::vector<std::pair<std::string, ParamId>> saved;
  const bool two = model.spec().head.kind == EncoderHead::sequence &&
                   !model.spec().head.has_transform() &&
                   model.spec().head.of_class != EncoderClass::bert;
  for (const ParamId id : classifier_parameters(model)) {
    const std::string& name = model.parameters().name(id);
    const char* part = !two                          ? "classifier"
                       : name.starts_with("pooler.") ? "classifier.dense"
                                                     : "classifier.out_proj";
    saved.emplace_back(concat("base_model.model.", part, name.substr(name.rfind('.'))), id);
  }
  return saved;
}

// --- writing ---

const char* task_type(const ModelSpec& spec) {
  switch (form_of(spec)) {
    case Form::marian:
      return "SEQ_2_SEQ_LM";
    case Form::llama:
    case Form::gpt2:
      return "CAUSAL_LM";
    default:
      return spec.head.kind == EncoderHead::sequence ? "SEQ_CLS"
             : spec.head.kind == EncoderHead::token  ? "TOKEN_CLS"
                                                     : "FEATURE_EXTRACTION";
  }
}

Json peft_config(const Model& model, const AdapterConfig& adapter) {
  const ModelSpec& spec = model.spec();
  const Form form = form_of(spec);
  Json::List modules;
  for (const std::string& target : adapter.targets)
    modules.emplace_back(module_suffix(form, target));
  Json json;
  json["peft_type"] = "LORA";
  json["task_type"] = task_type(spec);
  json["base_model_name_or_path"] = nullptr;
  json["r"] = adapter.rank;
  const auto whole = static_cast<int64_t>(adapter.alpha);
  json["lora_alpha"] =
      static_cast<double>(whole) == adapter.alpha ? Json(whole) : Json(adapter.alpha);
  json["lora_dropout"] = 0.0;
  json["target_modules"] = is_encoder(form) ? Json(encoder_modules(form, adapter)) : Json(modules);
  json["bias"] = "none";
  json["fan_in_fan_out"] = form == Form::gpt2;
  json["init_lora_weights"] = true;
  json["inference_mode"] = true;
  if (model.labels().empty())
    json["modules_to_save"] = nullptr;
  else
    json["modules_to_save"] = Json::List{"classifier"};
  json["use_rslora"] = false;
  json["use_dora"] = false;
  return json;
}

std::vector<float> floats_of(Context& context, const ParameterStore& parameters, ParamId id) {
  const auto count = static_cast<size_t>(element_count(parameters.shape(id)));
  std::vector<float> values(count);
  if (parameters.dtype() == DType::f64) {
    std::vector<double> wide(count);
    parameters.get_value(context, id, wide.data(), wide.size() * sizeof(double));
    std::transform(wide.begin(), wide.end(), values.begin(),
                   [](double value) { return static_cast<float>(value); });
  } else {
    parameters.get_value(context, id, values.data(), values.size() * sizeof(float));
  }
  require(std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }),
          ErrorCode::non_finite, kPeftOrigin, "the parameter ", parameters.name(id),
          " has values that are not finite");
  return values;
}

void require_savable(const Model& model) {
  require(model.adapter().has_value(), ErrorCode::invalid_argument, kPeftOrigin,
          model.merged_adapter() ? "the adapter is merged: unmerge it to save it alone"
                                 : "the model has no adapter to save");
  const ParameterStore& parameters = model.parameters();
  const std::vector<ParamId> saved = classifier_parameters(model);
  for (size_t i = 0; i < parameters.count(); ++i) {
    const ParameterGroup& group = parameters.group(static_cast<ParamId>(i));
    require(!group.trainable || group.name == kAdapter ||
                std::ranges::find(saved, static_cast<ParamId>(i)) != saved.end(),
            ErrorCode::invalid_argument, kPeftOrigin, parameters.name(static_cast<ParamId>(i)),
            " is trainable and in no adapter file: save the whole model");
  }
}

// --- reading ---

// Refuses kinds and features of PEFT adapters that adapters here do not have.
void refuse_other_kinds(const ConfigReader& config, const Model& model) {
  const std::string type = config.text("peft_type");
  require(type == "LORA", ErrorCode::unsupported, kPeftOrigin, config.label(), ": peft_type is ",
          quote(type), ", adapters here are LORA");
  for (const char* field : {"use_dora", "lora_bias", "use_qalora"})
    config.demand(field, false, false);
  if (model.labels().empty())
    config.refuse("modules_to_save", "adapters here are pairs of matrices in linear layers");
  for (const char* field : {"trainable_token_indices", "layer_replication",
                            "alora_invocation_tokens", "target_parameters", "arrow_config"})
    config.refuse(field, "adapters here are pairs of matrices in linear layers");
  for (const char* field : {"rank_pattern", "alpha_pattern"})
    if (config.has(field)) config.inside(field).allow({});
  if (!config.has("bias")) return;
  const std::string bias = config.text("bias");
  require(bias == "none", ErrorCode::unsupported, kPeftOrigin, config.label(), ": bias is ",
          quote(bias), ", adapters here train no biases");
}

// Refuses an adapter that says it is of a base of the same shape with other weights.
void require_base_weights(const SafetensorsReader& reader, const Context& context,
                          const Model& model, std::optional<BaseChecksums>& checksums) {
  const auto said = [&](const char* key) {
    const auto found = reader.metadata().find(key);
    return found == reader.metadata().end() ? std::string() : found->second;
  };
  // Of matrices with codes on one side, no values are compared.
  const bool coded = model.parameters().has_codes() || said(kBaseKey).empty();
  const std::string base = said(coded ? kBaseVectorsKey : kBaseKey);
  if (base.empty()) return;  // written by PEFT
  if (!checksums) checksums = base_checksums(context, model);
  const std::string& own = coded ? checksums->vectors : checksums->all;
  const std::string& label = model.origin().file;
  require(base == own, ErrorCode::invalid_argument, kPeftOrigin, reader.label(),
          " is an adapter of another base: ", coded ? "norms and biases" : "the weights", " of ",
          label.empty() ? "this model" : label, " have the checksum ", own, ", those of its base ",
          quote(base));
}

// Refuses an adapter that says it is of another base.
void require_base(const SafetensorsReader& reader, const Context& context, const Model& model,
                  std::optional<BaseChecksums>& checksums) {
  if (reader.metadata().contains(kModelConfigKey)) {
    ModelConfig saved = read_model_config(reader);
    const ModelConfig& own = model.config();
    saved.dropout = own.dropout;  // they decide no weight
    saved.attention_dropout = own.attention_dropout;
    saved.ffn_dropout = own.ffn_dropout;
    saved.max_positions = own.max_positions;
    saved.base_precision = own.base_precision;
    const std::string differences = describe_differences(saved, own);
    require(differences.empty(), ErrorCode::invalid_argument, kPeftOrigin, reader.label(),
            " is an adapter of another base: ", differences);
  }
  const std::string vocabulary = read_vocabulary_checksum(reader), &own = model.origin().vocabulary;
  require(
      vocabulary.empty() || own.empty() || vocabulary == own, ErrorCode::invalid_argument,
      kPeftOrigin, reader.label(),
      " is an adapter of a base with another vocabulary than this model's: their checksums are ",
      vocabulary, " and ", own);
  require_base_weights(reader, context, model, checksums);
}

// The targets of which the file has tensors.
std::vector<std::string> targets_in(const SafetensorsReader& reader, const Model& model,
                                    AdapterConfig all) {
  const Form form = form_of(model.spec());
  all.targets = adapter_targets(model);
  std::vector<std::string> targets;
  for (const AdapterSite& site : adapter_sites(model, all))
    for (const AdapterModule& module : site.modules)
      if (reader.find(tensor_name(form, module, "lora_A")) != nullptr)
        targets.push_back(module.target);
  require(!targets.empty(), ErrorCode::invalid_argument, kPeftOrigin, reader.label(),
          " has no tensor of a linear layer of this model (",
          enum_name(model.config().architecture), ")",
          reader.tensors().empty() ? "" : concat("; its first is ", reader.tensors().front().name));
  return targets;
}

// Finds a tensor and checks its shape.
const TensorInfo& tensor_at(const SafetensorsReader& reader, const std::string& name, int64_t rows,
                            int64_t columns) {
  const TensorInfo* info = reader.find(name);
  require(info != nullptr, ErrorCode::invalid_argument, kPeftOrigin, reader.label(),
          " lacks the tensor ", name,
          ": an adapter has both matrices in every layer of its targets");
  require(info->shape == std::vector<int64_t>{rows, columns}, ErrorCode::invalid_argument,
          kPeftOrigin, reader.label(), ": ", name, " is ",
          Shape(std::span<const int64_t>(info->shape)).str(), ", this model and rank need [", rows,
          ", ", columns, "]");
  return *info;
}

void append(std::vector<float>& to, const SafetensorsReader& reader, const TensorInfo& info) {
  const std::vector<float> values = interop::read_floats(reader, info);
  require(std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }),
          ErrorCode::non_finite, kPeftOrigin, reader.label(), ": ", info.name,
          " has values that are not finite");
  to.insert(to.end(), values.begin(), values.end());
}

// The tensor of a module's own layer, which layers that share its parameters have too.
const TensorInfo& same_in_layers(const SafetensorsReader& reader, const ModelSpec& spec,
                                 const AdapterModule& module, const char* part, int64_t rows,
                                 int64_t columns) {
  const Form form = form_of(spec);
  const TensorInfo& own = tensor_at(reader, tensor_name(form, module, part), rows, columns);
  std::vector<float> values;
  for (const AdapterModule& of_layer : modules_of_layers(spec, module)) {
    const std::string name = tensor_name(form, of_layer, part);
    if (name == own.name) continue;
    const TensorInfo& copy = tensor_at(reader, name, rows, columns);
    if (values.empty()) values = interop::read_floats(reader, own);
    require(interop::read_floats(reader, copy) == values, ErrorCode::invalid_argument, kPeftOrigin,
            reader.label(), ": ", name, " differs from ", own.name,
            ", and these layers share their parameters in this model");
  }
  return own;
}

void refuse_surplus(const SafetensorsReader& reader, const Model& model,
                    const std::vector<AdapterSite>& sites) {
  const ModelSpec& spec = model.spec();
  std::vector<std::string> known;
  for (const auto& [name, id] : saved_modules(model)) known.push_back(name);
  for (const AdapterSite& site : sites)
    for (const AdapterModule& module : site.modules)
      for (const AdapterModule& of_layer : modules_of_layers(spec, module))
        for (const char* part : {"lora_A", "lora_B"})
          known.push_back(tensor_name(form_of(spec), of_layer, part));
  for (const TensorInfo& info : reader.tensors())
    require(std::find(known.begin(), known.end(), info.name) != known.end(),
            ErrorCode::invalid_argument, kPeftOrigin, reader.label(), " has the tensor ", info.name,
            ", which is of no linear layer of this model");
}

void set_floats(Context& context, ParameterStore& parameters, ParamId id,
                const std::vector<float>& values) {
  if (parameters.dtype() == DType::f64) {
    const std::vector<double> wide(values.begin(), values.end());
    parameters.set_value(context, id, wide.data(), wide.size() * sizeof(double));
  } else {
    parameters.set_value(context, id, values.data(), values.size() * sizeof(float));
  }
}

// The parameters of a site.
const ParameterStore::LowRank& pair_of(const ParameterStore& parameters, const AdapterSite& site) {
  const auto& pair = parameters.low_rank(site.matrix);
  require(pair.has_value(), ErrorCode::internal, kPeftOrigin, parameters.name(site.matrix),
          " has no adapter");
  return *pair;
}

}  // namespace

void save_adapter(Context& context, const Model& model, const fs::path& directory) {
  require_savable(model);
  const ModelSpec& spec = model.spec();
  const AdapterConfig& adapter = *model.adapter();
  const Form form = form_of(spec);
  std::vector<std::vector<float>> storage;
  std::vector<TensorEntry> entries;
  for (const AdapterSite& site : adapter_sites(model, adapter)) {
    const auto& pair = pair_of(model.parameters(), site);
    storage.push_back(floats_of(context, model.parameters(), pair.down));
    auto down = std::as_bytes(std::span<const float>(storage.back()));
    storage.push_back(floats_of(context, model.parameters(), pair.up));
    auto up = std::as_bytes(std::span<const float>(storage.back()));
    const auto add = [&](const AdapterModule& module, const char* part, int64_t rows,
                         int64_t columns, std::span<const std::byte>& rest) {
      const size_t bytes = static_cast<size_t>(rows * columns) * sizeof(float);
      for (const AdapterModule& of_layer : modules_of_layers(spec, module))
        entries.push_back(
            {tensor_name(form, of_layer, part), DType::f32, {rows, columns}, rest.first(bytes)});
      rest = rest.subspan(bytes);
    };
    for (const AdapterModule& module : site.modules) {
      add(module, "lora_A", adapter.rank, site.columns, down);
      add(module, "lora_B", module.range.count, adapter.rank, up);
    }
  }
  for (const auto& [name, id] : saved_modules(model)) {
    storage.push_back(floats_of(context, model.parameters(), id));
    const Shape& shape = model.parameters().shape(id);
    std::vector<int64_t> sizes;
    for (int64_t d = 0; d < shape.rank(); ++d) sizes.push_back(shape[d]);
    entries.push_back({name, DType::f32, sizes, std::as_bytes(std::span(storage.back()))});
  }
  SafetensorsMetadata metadata = {{"format", "pt"},  // which readers of PyTorch look for
                                  {kModelConfigKey, to_json(model.config())},
                                  {kAdapterKey, to_json(adapter)}};
  const BaseChecksums base = base_checksums(context, model);
  if (!base.all.empty()) metadata[kBaseKey] = base.all;
  metadata[kBaseVectorsKey] = base.vectors;
  if (!model.origin().vocabulary.empty()) metadata[kTokenizerKey] = model.origin().vocabulary;
  MadeDirectory output(directory);
  save_safetensors(output.file(kTensorFile), entries, metadata);
  interop::write_json(output.file(kConfigFile), peft_config(model, adapter));
  output.keep();
}

namespace {

struct AdapterFiles {
  AdapterConfig adapter;
  struct Values {
    std::vector<float> down, up;
  };
  std::vector<std::pair<AdapterSite, Values>> sites;
  std::vector<std::pair<ParamId, std::vector<float>>> classifier;
};

AdapterConfig adapter_in(const ConfigReader& json) {
  AdapterConfig adapter;
  adapter.rank = json.integer("r", 1, limits::kModelDimension);
  adapter.alpha = json.number("lora_alpha");
  // rsLoRA (Kalajdzievski, arXiv 2312.03732) scales by alpha / sqrt(rank).
  if (json.flag("use_rslora", false)) adapter.alpha *= std::sqrt(static_cast<double>(adapter.rank));
  return adapter;
}

// The classifier's parameters that the file has.
std::vector<std::pair<ParamId, std::vector<float>>> classifier_in(const SafetensorsReader& reader,
                                                                  const Model& model) {
  std::vector<std::pair<ParamId, std::vector<float>>> classifier;
  for (const auto& [name, id] : saved_modules(model)) {
    const TensorInfo* info = reader.find(name);
    if (info == nullptr) continue;  // the classifier of the base
    const Shape& shape = model.parameters().shape(id);
    require(Shape(std::span<const int64_t>(info->shape)) == shape, ErrorCode::invalid_argument,
            kPeftOrigin, reader.label(), ": ", name, " is not ", shape.str());
    append(classifier.emplace_back(id, std::vector<float>{}).second, reader, *info);
  }
  return classifier;
}

AdapterFiles read_adapter(const Context& context, const Model& model, const fs::path& directory,
                          std::optional<BaseChecksums>& checksums) {
  const ConfigReader json(directory / kConfigFile);
  refuse_other_kinds(json, model);
  AdapterFiles files{adapter_in(json), {}, {}};
  AdapterConfig& adapter = files.adapter;
  const SafetensorsReader reader = SafetensorsReader::open_foreign(directory / kTensorFile);
  require_base(reader, context, model, checksums);
  adapter.targets = targets_in(reader, model, adapter);
  adapter = validated(model, adapter);
  // The tensors are written first: a file that says otherwise is of another adapter.
  if (const auto found = reader.metadata().find(kAdapterKey); found != reader.metadata().end()) {
    const AdapterConfig written = adapter_config_from_json(found->second, reader.label());
    require(written == adapter, ErrorCode::corrupt_file, kPeftOrigin, reader.label(), " has ",
            describe(written), ", ", json.label(), " says ", describe(adapter));
  }
  const std::vector<AdapterSite> sites = adapter_sites(model, adapter);
  refuse_surplus(reader, model, sites);
  for (const AdapterSite& site : sites) {
    AdapterFiles::Values values;
    for (const AdapterModule& module : site.modules) {
      append(values.down, reader,
             same_in_layers(reader, model.spec(), module, "lora_A", adapter.rank, site.columns));
      append(
          values.up, reader,
          same_in_layers(reader, model.spec(), module, "lora_B", module.range.count, adapter.rank));
    }
    files.sites.emplace_back(site, std::move(values));
  }
  files.classifier = classifier_in(reader, model);
  return files;
}

void set_values(Context& context, ParameterStore& parameters, const AdapterFiles& files) {
  for (const auto& [id, of_classifier] : files.classifier)
    set_floats(context, parameters, id, of_classifier);
  for (const auto& [site, values] : files.sites) {
    const ParameterStore::LowRank pair = pair_of(parameters, site);
    set_floats(context, parameters, pair.down, values.down);
    set_floats(context, parameters, pair.up, values.up);
  }
}

}  // namespace

void load_adapter(Context& context, Model& model, const fs::path& directory) {
  std::optional<BaseChecksums> checksums;
  const AdapterFiles files = read_adapter(context, model, directory, checksums);
  add_adapter(context, model, files.adapter, 0);
  set_values(context, model.parameters(), files);
}

std::unique_ptr<Model> load_adapted(Context& context, const Model& base, const fs::path& directory,
                                    std::optional<BaseChecksums>& checksums) {
  const AdapterFiles files = read_adapter(context, base, directory, checksums);
  std::unique_ptr<Model> model = adapted_model(context, base, files.adapter);
  set_values(context, model->parameters(), files);
  return model;
}

}  // namespace trafo
