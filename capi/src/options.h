// Options of the C ABI as the engine's and back; generated/options.cc follows from the tables in
// schema/.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "capi/include/trafo.h"
#include "capi/src/handles.h"
#include "engine/decode/translator.h"
#include "engine/metrics/evaluation.h"
#include "engine/models/model_config.h"
#include "engine/train/run/options.h"

namespace trafo::capi {

// The precision of a model is not part of its configuration: to_c gives float32, from_c leaves it
// out.
trafo_model_config to_c(const ModelConfig& config);
ModelConfig from_c(const Call& call, const trafo_model_config& config);

trafo_trainer_options to_c(const TrainOptions& options);
TrainOptions from_c(const Call& call, const trafo_trainer_options& options);

// max_length and the table of the shortlist have their defaults in to_c; from_c leaves them out.
trafo_translate_options to_c(const TranslateOptions& options);
TranslateOptions from_c(const Call& call, const trafo_translate_options& options);

// The model of tokenize flores200 has its default in to_c; from_c leaves it out.
trafo_evaluation_options to_c(const EvaluationOptions& options);
EvaluationOptions from_c(const Call& call, const trafo_evaluation_options& options);

// Both functions change the defaults.
struct Preset {
  const char* name;
  void (*model)(trafo_model_config& config);
  void (*training)(trafo_trainer_options& options);
};
std::span<const Preset> presets();
// NOT_FOUND lists the names.
const Preset& preset(const Call& call, std::string_view name);

// Fills the caller's struct, whose size the caller has set, with the preset of `change`.
template <class Options>
void write_preset(const Call& call, Options* options, const char* name, void (*change)(Options&)) {
  if (!options) call.refuse_argument(name, " is NULL");
  read_options(call, options);  // checks struct_size
  Options changed = defaults(options);
  change(changed);
  const size_t size = options->struct_size;
  std::memcpy(static_cast<void*>(options), &changed, std::min(size, sizeof changed));
  options->struct_size = size;
}

// "query,value" -> {"query", "value"}
std::vector<std::string> names_in(std::string_view list);

}  // namespace trafo::capi
