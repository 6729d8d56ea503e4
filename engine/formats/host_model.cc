#include "engine/formats/host_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/cancel_scope.h"
#include "engine/core/file_memory.h"
#include "engine/core/numeric/half.h"
#include "engine/core/numeric/philox.h"
#include "engine/core/progress.h"
#include "engine/core/status.h"
#include "engine/decode/packing.h"
#include "engine/decode/search.h"
#include "engine/models/adapter.h"
#include "engine/nn/part_index.h"
#include "engine/ops/op_kernel.h"

namespace trafo::interop {
namespace {

constexpr const char* kHostModelOrigin = "interop";

std::span<float> span_of(const Tensor& value) {
  return {value.data<float>(), static_cast<size_t>(value.numel())};
}

// Before each tensor of a model: a cancelled call ends, and of memory in files one tensor is
// resident.
void before_tensor() {
  stop_if_call_is_cancelled(kHostModelOrigin);
  release_file_memory();
}

// Sentences of one to 48 tokens, drawn from the whole vocabulary of their side.
std::vector<SentencePair> fixed_pairs(const ModelSpec& spec, int32_t eos) {
  PhiloxStream random(7, 11);
  const int64_t longest = std::min<int64_t>(
      48, spec.has_encoder() ? spec.max_positions : std::max<int64_t>(1, spec.max_positions / 2));
  std::vector<SentencePair> pairs;
  for (const int64_t wanted : {int64_t{1}, int64_t{2}, int64_t{9}, int64_t{23}, int64_t{48}}) {
    const auto sentence = [&](int64_t vocabulary) {
      std::vector<int32_t> ids;
      for (int64_t i = 1; i < std::min(wanted, longest); ++i)
        ids.push_back(static_cast<int32_t>(random.next_u32() % static_cast<uint32_t>(vocabulary)));
      ids.push_back(eos);
      return ids;
    };
    pairs.push_back({sentence(spec.source_vocabulary()), sentence(spec.vocabulary)});
  }
  return pairs;
}

// In each linear layer of a forward pass: before_tensor().
class CancelledLinear final : public LinearObserver {
 public:
  explicit CancelledLinear(ParameterStore& parameters) : parameters_(parameters) {
    parameters_.set_observer(this);
  }
  ~CancelledLinear() override { parameters_.set_observer(nullptr); }
  void observe(Context&, int32_t, const Tensor&) override { before_tensor(); }

 private:
  ParameterStore& parameters_;
};

// The sources alone, of an encoder.
Batch pack_fixed(const HostModel& host, const std::vector<SentencePair>& pairs) {
  if (host.spec().architecture == Architecture::encoder) {
    std::vector<const std::vector<int32_t>*> texts;
    for (const SentencePair& pair : pairs) texts.push_back(&pair.source);
    return pack_texts(*host.context, host.spec(), texts);
  }
  std::vector<const SentencePair*> pointers;
  for (const SentencePair& pair : pairs) pointers.push_back(&pair);
  return pack_pairs(*host.context, host.spec(), SpecialTokens{}, pointers);
}

std::vector<float> fixed_logits(const HostModel& host) {
  const CancelledLinear stopping(host.model->parameters());
  const SpecialTokens tokens{};
  const NoGrad no_grad(*host.context);
  const ExactGemms exact(host.context->backend());  // the caller's may multiply in bfloat16
  const std::vector<SentencePair> pairs = fixed_pairs(host.spec(), tokens.eos);
  const Batch batch = pack_fixed(host, pairs);
  return host.context->values<float>(host.model->has_output()
                                         ? host.model->logits(*host.context, batch)
                                         : host.model->states(*host.context, batch));
}

// The value of a parameter of the copy whose layers share nothing and whose matrices are whole,
// from the parts of the model.
std::vector<std::byte> untied_value(Context& context, const Model& model, const PartIndex& index,
                                    const ParameterParts& parts) {
  std::vector<std::byte> result, values;
  ParamId read = kNoParam;
  for (const Part& rows : parts.rows) {
    Place place = rows.place;
    if (place.layer >= 0)
      place.layer =
          model.spec().stack(place.stack).sharing.owners.at(static_cast<size_t>(place.layer));
    const PartIndex::Found& from = index.at(place, rows.role, parts.piece);
    if (read != from.parameter) {
      read = from.parameter;
      values = whole_value(context, model.parameters(), read);
    }
    const size_t row = values.size() / static_cast<size_t>(model.parameters().shape(read)[0]);
    const auto begin = values.begin() + from.part.first * static_cast<std::ptrdiff_t>(row);
    result.insert(result.end(), begin, begin + rows.rows * static_cast<std::ptrdiff_t>(row));
  }
  return result;
}

}  // namespace

float* HostModel::values(const char* parameter) const {
  const ParamId id = parameters().find(parameter);
  require(id != kNoParam, ErrorCode::internal, kHostModelOrigin, "the model has no parameter ",
          parameter);
  return parameters().value(id).data<float>();
}

namespace {

std::shared_ptr<Context> not_owned(Context& context) {
  return {std::shared_ptr<Context>(), &context};
}

void require_finite_values(const std::string& parameter, std::span<const float> values) {
  require(std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }),
          ErrorCode::non_finite, kHostModelOrigin, "the parameter ", parameter,
          " has values that are not finite float32 numbers");
}

// Whether copy_to_host() would copy it as it is.
bool is_host_model(const Context& context, const Model& model) {
  const ParameterStore& parameters = model.parameters();
  if (context.device().kind != DeviceKind::cpu || parameters.dtype() != DType::f32 ||
      parameters.has_master() || parameters.has_int8() || model.adapter() ||
      !model.config().factor_ranks.empty() || model.config() != model.config().untied() ||
      parameters.base_precision() != BasePrecision::none)
    return false;
  for (size_t i = 0; i < parameters.count(); ++i)
    if (parameters.value(static_cast<ParamId>(i)).dtype() != DType::f32) return false;
  return true;
}

}  // namespace

HostModel make_host_model(const ModelConfig& config, Context* context,
                          const std::filesystem::path& memory) {
  HostModel host;
  if (context != nullptr) {
    host.context = not_owned(*context);
  } else {
    host.context =
        make_context({DeviceKind::cpu, 0},
                     static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u)));
    if (!memory.empty()) set_memory_directory(host.context->backend(), memory, kHostModelOrigin);
  }
  host.owned = make_model(*host.context, config, std::nullopt);
  host.model = host.owned.get();
  if (WorkProgress* const progress = WorkProgress::current(Work::convert_weights))
    progress->expect(host.parameters().parameter_count());
  return host;
}

bool are_same_function(ModelConfig read, const ModelConfig& written) {
  read.dropout = written.dropout;
  read.attention_dropout = written.attention_dropout;
  read.ffn_dropout = written.ffn_dropout;
  read.depth_scaled_init = written.depth_scaled_init;
  if (!info_of(read.architecture).has_encoder) read.encoder_layers = written.encoder_layers;
  return read == written;
}

bool has_bfloat16_values(const HostModel& host) {
  for (size_t i = 0; i < host.parameters().count(); ++i) {
    before_tensor();
    const std::span<const float> values = span_of(host.parameters().value(static_cast<ParamId>(i)));
    if (!std::ranges::all_of(values,
                             [](float v) { return BFloat16::from_float(v).to_float() == v; }))
      return false;
  }
  return true;
}

HostModel shared_with(const HostModel& host) {
  return {host.context, nullptr, host.model, host.is_bfloat16};
}

HostModel host_model_of(Context& context, const Model& model, const std::filesystem::path& memory) {
  if (!is_host_model(context, model)) return copy_to_host(context, model, memory);
  for (size_t i = 0; i < model.parameters().count(); ++i) {
    before_tensor();
    const auto id = static_cast<ParamId>(i);
    require_finite_values(model.parameters().name(id), span_of(model.parameters().value(id)));
  }
  // A host model's passes set its observer, and nothing else of it.
  return {not_owned(context), nullptr, const_cast<Model*>(&model), false};
}

HostModel copy_to_host(Context& context, const Model& model, const std::filesystem::path& memory) {
  ModelConfig config = model.config().untied();
  config.factor_ranks.clear();
  config.base_precision = BasePrecision::none;
  HostModel host = make_host_model(config, nullptr, memory);
  host.model->set_labels(model.labels());
  const PartIndex index(model.parameters());
  WorkProgress progress(Work::convert_weights, host.parameters().parameter_count());
  for (size_t i = 0; i < host.parameters().count(); ++i) {
    before_tensor();
    const auto id = static_cast<ParamId>(i);
    const std::string& name = host.parameters().name(id);
    const std::span<float> values = span_of(host.parameters().value(id));
    const std::vector<std::byte> bytes =
        untied_value(context, model, index, host.parameters().parts(id));
    if (model.parameters().dtype() == DType::f64) {
      std::vector<double> wide(values.size());
      if (!wide.empty()) std::memcpy(wide.data(), bytes.data(), bytes.size());
      std::transform(wide.begin(), wide.end(), values.begin(),
                     [](double value) { return static_cast<float>(value); });
    } else if (!values.empty()) {
      std::memcpy(values.data(), bytes.data(), bytes.size());
    }
    require_finite_values(name, values);
    progress.add(std::ssize(values));
  }
  progress.finish();
  return host;
}

std::unique_ptr<Model> copy_from_host(Context& context, const HostModel& host) {
  std::unique_ptr<Model> model = make_model(context, host.config(), std::nullopt);
  model->set_labels(host.model->labels());
  WorkProgress progress(Work::convert_weights, model->parameters().parameter_count());
  for (size_t i = 0; i < model->parameters().count(); ++i) {
    before_tensor();
    const auto id = static_cast<ParamId>(i);
    const std::span<float> values = span_of(host.parameters().value(id));
    model->parameters().set_value(context, id, values.data(), values.size_bytes());
    progress.add(std::ssize(values));
  }
  progress.finish();
  context.backend().synchronize();
  return model;
}

HostModel with_weights_of(const ModelConfig& config, const HostModel& other,
                          const std::filesystem::path& memory) {
  HostModel host = make_host_model(config, nullptr, memory);
  const ParameterStore& from = other.parameters();
  for (size_t i = 0; i < host.parameters().count(); ++i) {
    before_tensor();
    const auto id = static_cast<ParamId>(i);
    const std::string& name = host.parameters().name(id);
    const ParamId same = from.find(name);
    require(same != kNoParam && from.shape(same) == host.parameters().shape(id),
            ErrorCode::internal, kHostModelOrigin, "the two models differ in ", name);
    const std::span<float> values = span_of(from.value(same));
    std::copy(values.begin(), values.end(), host.parameters().value(id).data<float>());
  }
  return host;
}

double logit_difference(const HostModel& a, const HostModel& b) {
  const std::vector<float> ours = fixed_logits(a), theirs = fixed_logits(b);
  require(ours.size() == theirs.size(), ErrorCode::internal, kHostModelOrigin,
          "the two models have different vocabularies");
  double largest = 1, difference = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double gap = std::abs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i]));
    if (std::isnan(gap)) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, gap);
    largest = std::max(largest, std::abs(static_cast<double>(ours[i])));
  }
  return difference / largest;
}

bool has_output_bias(const HostModel& model) {
  if (model.parameters().find("output.bias") == kNoParam) return false;
  const float* bias = model.values("output.bias");
  return std::any_of(bias, bias + model.spec().vocabulary, [](float b) { return b != 0; });
}

HostModel fold_output_bias(const HostModel& lm, const std::filesystem::path& memory) {
  const ModelSpec& spec = lm.spec();
  require(!spec.has_encoder() && spec.decoder.pre_norm(), ErrorCode::internal, kHostModelOrigin,
          "only a pre-norm decoder ends with a layer norm");
  ModelConfig config = lm.config();
  config.tied_embeddings = config.output_bias = false;
  HostModel folded = make_host_model(config, nullptr, memory);
  ParameterStore& to = folded.parameters();
  for (size_t i = 0; i < to.count(); ++i) {
    before_tensor();
    const auto id = static_cast<ParamId>(i);
    const bool output = to.name(id) == "output.weight" && spec.output.tied;
    const ParamId source = lm.parameters().find(output ? "embedding.weight" : to.name(id));
    const std::span<float> values = span_of(lm.parameters().value(source));
    std::copy(values.begin(), values.end(), to.value(id).data<float>());
  }
  const auto width = static_cast<size_t>(spec.width());
  const float* gamma = folded.values("decoder.norm.weight");
  float* beta = folded.values("decoder.norm.bias");
  const float* bias = lm.values("output.bias");
  float* matrix = folded.values("output.weight");
  for (size_t c = 0; c < width; ++c)
    require(gamma[c] != 0, ErrorCode::unsupported, kHostModelOrigin, "decoder.norm.weight[", c,
            "] is 0: the output bias cannot be moved into the output matrix");
  for (size_t v = 0; v < static_cast<size_t>(spec.vocabulary); ++v) {
    float* row = matrix + v * width;
    double moved = bias[v];
    for (size_t c = 0; c < width; ++c)
      moved += static_cast<double>(row[c]) * (static_cast<double>(beta[c]) - gamma[c]);
    for (size_t c = 0; c < width; ++c)
      row[c] = static_cast<float>(row[c] + moved / (static_cast<double>(width) * gamma[c]));
  }
  std::copy(gamma, gamma + width, beta);
  return folded;
}

}  // namespace trafo::interop
