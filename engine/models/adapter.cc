#include "engine/models/adapter.h"

#include <algorithm>
#include <cstring>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/io/checksum.h"
#include "engine/models/meta_model.h"
#include "engine/models/model_io.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

constexpr const char* kAdapterOrigin = "adapter";

std::vector<std::byte> exact_value(const Context& context, const ParameterStore& parameters,
                                   ParamId id) {
  std::vector<std::byte> bytes(static_cast<size_t>(element_count(parameters.shape(id))) *
                               dtype_size(parameters.master().dtype()));
  parameters.get_value(context, id, bytes.data(), bytes.size());
  return bytes;
}

// The same as a tensor in the dtype of the masters.
Tensor exact_tensor(Context& context, const ParameterStore& parameters, ParamId id) {
  const std::vector<std::byte> bytes = exact_value(context, parameters, id);
  return context.from_host(bytes.data(), bytes.size(), parameters.shape(id),
                           parameters.master().dtype());
}

template <class T>
void add_to(std::vector<std::byte>& values, int64_t first, const std::vector<T>& delta) {
  auto* at = values.data() + static_cast<size_t>(first) * sizeof(T);
  for (const T each : delta) {
    T value;
    std::memcpy(&value, at, sizeof value);
    value += each;
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
  }
}

std::vector<LowRankOptions> updates_of(const Model& model, const AdapterConfig& adapter) {
  std::vector<LowRankOptions> updates;
  const ParameterStore& parameters = model.parameters();
  for (const AdapterSite& site : adapter_sites(model, adapter)) {
    const std::string& name = parameters.name(site.matrix);
    require(parameters.inner_factor(site.matrix) == kNoParam, ErrorCode::unsupported,
            kAdapterOrigin, name.substr(0, name.rfind('.')),
            " is factorized: an adapter is for whole matrices. Adapt the model, merge the adapter, "
            "then factorize");
    LowRankOptions update{site.matrix, adapter.rank, adapter.scale(), {}};
    for (const AdapterModule& module : site.modules) update.ranges.push_back(module.range);
    updates.push_back(std::move(update));
  }
  return updates;
}

// The matrices that have an update.
std::vector<ParamId> updated_matrices(const ParameterStore& parameters) {
  std::vector<ParamId> ids;
  for (size_t i = 0; i < parameters.count(); ++i)
    if (parameters.low_rank(static_cast<ParamId>(i))) ids.push_back(static_cast<ParamId>(i));
  return ids;
}

void add_updates(Context& context, Model& model, const AdapterConfig& adapter, uint64_t seed) {
  ParameterStore& parameters = model.parameters();
  parameters.add_low_rank(context, updates_of(model, adapter), seed);
  if (parameters.has_int8()) return;
  for (const ParamId id : classifier_parameters(model))
    parameters.set_trainable(context, parameters.name(id), true);
}

void require_no_adapter(const AdapterState& state) {
  if (state.config || state.merged)
    fail(ErrorCode::invalid_argument, kAdapterOrigin, "the model has ",
         describe(state.config ? *state.config : state.merged->config),
         state.merged ? ", merged into its weights" : "", " already: remove it first");
}

}  // namespace

std::vector<ParamId> classifier_parameters(const Model& model) {
  std::vector<ParamId> found;
  const ModelSpec& spec = model.spec();
  const ParameterStore& parameters = model.parameters();
  const bool pooler = spec.head.of_class != EncoderClass::bert;  // ModernBERT has none
  for (size_t i = 0; i < parameters.count() && !model.labels().empty(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const std::string& name = parameters.name(id);
    if (name.starts_with("output.") || (pooler && name.starts_with("pooler."))) found.push_back(id);
  }
  return found;
}

void add_adapter(Context& context, Model& model, const AdapterConfig& adapter, uint64_t seed) {
  AdapterState& state = model.adapter_state();
  require_no_adapter(state);
  const AdapterConfig checked = validated(model, adapter);
  add_updates(context, model, checked, seed);
  state.config = checked;
}

std::unique_ptr<Model> adapted_model(Context& context, const Model& base,
                                     const AdapterConfig& adapter) {
  require_no_adapter(base.adapter_state());
  const AdapterConfig checked = validated(base, adapter);
  // Its modules, without memory.
  std::unique_ptr<Model> model = std::move(make_meta_model(base.config()).model);
  model->share_constants(base);
  model->set_labels(base.labels());
  model->parameters().share(context, base.parameters(), updates_of(base, checked),
                            classifier_parameters(base));
  model->set_origin(base.origin());
  model->set_tokens(base.tokens());
  model->adapter_state().config = checked;
  return model;
}

void remove_adapter(Context& context, Model& model) {
  AdapterState& state = model.adapter_state();
  require(state.config || state.merged, ErrorCode::invalid_argument, kAdapterOrigin,
          "the model has no adapter");
  if (state.config) model.parameters().remove_low_rank(context);
  state = {};
}

std::vector<std::byte> merged_value(Context& context, const ParameterStore& parameters,
                                    ParamId id) {
  std::vector<std::byte> values = exact_value(context, parameters, id);
  const auto& update = parameters.low_rank(id);
  if (!update) return values;
  const NoGrad no_grad(context);
  const ExactGemms exact(context.backend());
  const Tensor down = exact_tensor(context, parameters, update->down),
               up = exact_tensor(context, parameters, update->up);
  const int64_t rank = up.dim(1), columns = down.dim(1);
  int64_t row = 0;
  for (size_t i = 0; i < update->ranges->size(); ++i) {
    const ColumnRange& range = (*update->ranges)[i];
    const auto first = static_cast<int64_t>(i) * rank;
    const Tensor product =
        ops::scale(context,
                   ops::matmul(context, ops::slice(context, up, 0, row, row + range.count),
                               ops::slice(context, down, 0, first, first + rank)),
                   update->scale);
    if (product.dtype() == DType::f64)
      add_to(values, range.first * columns, context.values<double>(product));
    else
      add_to(values, range.first * columns, context.values<float>(product));
    row += range.count;
  }
  return values;
}

std::vector<std::byte> whole_value(Context& context, const ParameterStore& parameters, ParamId id) {
  const ParamId inner = parameters.inner_factor(id);
  if (inner == kNoParam) return merged_value(context, parameters, id);
  const NoGrad no_grad(context);
  const ExactGemms exact(context.backend());
  const Tensor product = ops::matmul(context, exact_tensor(context, parameters, id),
                                     exact_tensor(context, parameters, inner));
  std::vector<std::byte> values(product.bytes());
  context.to_host(product, values.data(), values.size());
  return values;
}

void merge_adapter(Context& context, Model& model) {
  AdapterState& state = model.adapter_state();
  ParameterStore& parameters = model.parameters();
  require(state.config.has_value(), ErrorCode::invalid_argument, kAdapterOrigin,
          state.merged ? "the adapter is merged already" : "the model has no adapter");
  require(!parameters.has_int8(), ErrorCode::unsupported, kAdapterOrigin,
          "an adapter is not merged into int8 weights: merge it into the float model and quantize "
          "that");
  require(parameters.base_precision() == BasePrecision::none, ErrorCode::unsupported,
          kAdapterOrigin, "an adapter is not merged into weights in ",
          enum_name(parameters.base_precision()),
          ": load it beside the float model and merge it there, or export the model, which has the "
          "dequantized weights with the adapter added");
  // All that needs memory comes before the first change.
  AdapterState::Merged merged{*state.config, {}, {}};
  std::vector<std::vector<std::byte>> values;
  for (const ParamId id : updated_matrices(parameters)) {
    const auto& update = parameters.low_rank(id);
    merged.base.emplace_back(id, exact_value(context, parameters, id));
    merged.adapter.push_back(exact_value(context, parameters, update->down));
    merged.adapter.push_back(exact_value(context, parameters, update->up));
    values.push_back(merged_value(context, parameters, id));
  }
  parameters.remove_low_rank(context);
  for (size_t i = 0; i < values.size(); ++i)
    parameters.set_value(context, merged.base[i].first, values[i].data(), values[i].size());
  state.config.reset();
  state.merged = std::move(merged);
}

void unmerge_adapter(Context& context, Model& model) {
  AdapterState& state = model.adapter_state();
  ParameterStore& parameters = model.parameters();
  require(state.merged.has_value(), ErrorCode::invalid_argument, kAdapterOrigin,
          state.config ? "the adapter is not merged" : "the model has no adapter");
  const AdapterState::Merged& merged = *state.merged;
  add_updates(context, model, merged.config, 0);
  for (size_t i = 0; i < merged.base.size(); ++i) {
    const auto& [id, base] = merged.base[i];
    parameters.set_value(context, id, base.data(), base.size());
    const ParameterStore::LowRank update = parameters.low_rank(id).value();
    const auto &down = merged.adapter[2 * i], &up = merged.adapter[2 * i + 1];
    parameters.set_value(context, update.down, down.data(), down.size());
    parameters.set_value(context, update.up, up.data(), up.size());
  }
  state.config = merged.config;
  state.merged.reset();
}

BaseChecksums base_checksums(const Context& context, const Model& model) {
  const ParameterStore& parameters = model.parameters();
  const std::vector<ParamId> classifier = classifier_parameters(model);
  uint32_t all = 0, vectors = 0;
  bool every = true;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (parameters.group(id).name == kAdapter ||
        std::ranges::find(classifier, id) != classifier.end())
      continue;
    if (parameters.is_int8(id) || parameters.is_coded(id)) {
      every = false;
      continue;
    }
    const std::vector<std::byte> bytes = exact_value(context, parameters, id);
    std::vector<BFloat16> rounded(static_cast<size_t>(element_count(parameters.shape(id))));
    const auto round = [&](auto value) {
      for (size_t k = 0; k < rounded.size(); ++k) {
        std::memcpy(&value, bytes.data() + k * sizeof value, sizeof value);
        rounded[k] = BFloat16::from_float(static_cast<float>(value));
      }
    };
    if (parameters.master().dtype() == DType::f64)
      round(double{});
    else
      round(float{});
    const auto values = std::as_bytes(std::span<const BFloat16>(rounded));
    all = crc32(values, all);
    if (parameters.shape(id).rank() == 1) vectors = crc32(values, vectors);
  }
  return {every ? crc32_text(all) : "", crc32_text(vectors)};
}

std::optional<AdapterConfig> read_adapter_config(const SafetensorsReader& reader,
                                                 const Model& model) {
  const auto found = reader.metadata().find(kAdapterKey);
  if (found == reader.metadata().end()) return std::nullopt;
  AdapterConfig adapter = adapter_config_from_json(found->second, reader.label());
  try {
    adapter = validated(model, adapter);
  } catch (const Error& error) {
    fail(ErrorCode::corrupt_file, kAdapterOrigin, reader.label(), ": ", error.message());
  }
  return adapter;
}

void require_same_adapter(const SafetensorsReader& reader, const Model& model) {
  const auto saved = read_adapter_config(reader, model);
  require(saved == model.adapter(), ErrorCode::invalid_argument, kAdapterOrigin, reader.label(),
          " holds a model with ", describe(saved), ", this one has ", describe(model.adapter()));
}

}  // namespace trafo
