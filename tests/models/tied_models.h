// Models whose layers share parameters, and copies of them whose layers do not.
#pragma once

#include <cctype>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/model_forms.h"
#include "tests/train/training_support.h"

namespace trafo::testing {

// Forms whose layers share parameters in different ways.
inline ModelConfig tied_form(const std::string& form, double dropout = 0.2) {
  ModelConfig config = form_of(form, 4, dropout);
  config.encoder_layers = 3;
  config.decoder_tied_layers = {1, 1, 3, 3};
  if (form == "post-norm") config.decoder_tied_layers = {2, 1, 2, 1};  // names of sets, in turn
  if (form == "encdec") config.encoder_tied_layers = {3, 3, 3};
  return config;
}
inline const char* const kTiedForms[] = {"encdec", "post-norm", "lm", "llama"};

// The layer, from 0, whose parameters layer `layer` of a stack has: the first with its number.
inline size_t first_with_number(const std::vector<int64_t>& tied, size_t layer) {
  for (size_t i = 0; i < tied.size(); ++i)
    if (tied[i] == tied[layer]) return i;
  return layer;
}

// The number of a layer in the name of one of its parameters; -1: it is of no layer.
inline int layer_in(const std::string& name) {
  const size_t at = name.find('.') + 1;
  const bool is_layer = (name.starts_with("encoder.") || name.starts_with("decoder.")) &&
                        std::isdigit(static_cast<unsigned char>(name[at])) != 0;
  return is_layer ? name[at] - '0' : -1;
}

// The parameter of the model with shared layers that `name` of its copy is a copy of.
inline std::string shared_name(const ModelConfig& config, std::string name) {
  const int layer = layer_in(name);
  if (layer < 0) return name;
  const auto& tied =
      name.starts_with("encoder.") ? config.encoder_tied_layers : config.decoder_tied_layers;
  name[name.find('.') + 1] =
      static_cast<char>('0' + first_with_number(tied, static_cast<size_t>(layer)));
  return name;
}

// Of each decoder layer: which part of decoder.cross_kv it reads.
inline std::vector<size_t> cross_parts(const ModelConfig& config) {
  std::vector<size_t> parts;
  size_t next = 0;
  for (size_t i = 0; i < static_cast<size_t>(config.decoder_layers); ++i) {
    const size_t first = first_with_number(config.decoder_tied_layers, i);
    parts.push_back(first < i ? parts[first] : next++);
  }
  return parts;
}

template <class T>
std::vector<T> value_of(Context& context, const Model& model, const std::string& name) {
  const ParamId id = model.parameters().find(name);
  EXPECT_NE(id, kNoParam) << name;
  std::vector<T> values(static_cast<size_t>(element_count(model.parameters().shape(id))));
  model.parameters().get_value(context, id, values.data(), values.size() * sizeof(T));
  return values;
}

// T: double or float, as the model.
template <class T>
std::unique_ptr<Model> untied_copy(Context& context, const Model& model) {
  ModelConfig config = model.config();
  config.encoder_tied_layers = config.decoder_tied_layers = {};
  auto copy = make_model(context, config, 77, model.parameters().dtype());
  const std::vector<size_t> parts = cross_parts(model.config());
  for (ParamId id = 0; id < static_cast<ParamId>(copy->parameters().count()); ++id) {
    const std::string& name = copy->parameters().name(id);
    std::vector<T> values = value_of<T>(context, model, shared_name(model.config(), name));
    if (name.starts_with("decoder.cross_kv.")) {
      const std::vector<T> all = std::move(values);
      const size_t part =
          static_cast<size_t>(element_count(copy->parameters().shape(id))) / parts.size();
      values.clear();
      for (const size_t p : parts)
        values.insert(values.end(), all.begin() + static_cast<std::ptrdiff_t>(p * part),
                      all.begin() + static_cast<std::ptrdiff_t>((p + 1) * part));
    }
    copy->parameters().set_value(context, id, values.data(), values.size() * sizeof(T));
  }
  return copy;
}

// Biases and norms that are not what they are initialised as.
inline void disturb(Context& context, Model& model) {
  PhiloxStream random(3, 9);
  for (ParamId id = 0; id < static_cast<ParamId>(model.parameters().count()); ++id) {
    const auto count = static_cast<size_t>(element_count(model.parameters().shape(id)));
    const auto change = [&]<class T>(std::vector<T> values) {
      model.parameters().get_value(context, id, values.data(), count * sizeof(T));
      for (T& value : values) value += static_cast<T>(random.uniform(-0.2, 0.2));
      model.parameters().set_value(context, id, values.data(), count * sizeof(T));
    };
    if (model.parameters().dtype() == DType::f64)
      change(std::vector<double>(count));
    else
      change(std::vector<float>(count));
  }
}

}  // namespace trafo::testing
