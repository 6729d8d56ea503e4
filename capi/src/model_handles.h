#pragma once

#include <memory>
#include <optional>

#include "capi/src/handles.h"
#include "engine/decode/search.h"
#include "engine/models/adapter.h"
#include "engine/models/model.h"
#include "engine/objective/frozen_model.h"

namespace trafo::capi {

// The model that a caller's configuration asks for; refuses a NULL one.
struct WantedModel {
  ModelConfig config;
  DType precision;
};
WantedModel wanted_model(const Call& call, const trafo_model_config* config);
DType checked_precision(const Call& call, int32_t precision);

struct ModelObject {
  std::shared_ptr<Context> context;
  std::shared_ptr<Model> model;
  std::shared_ptr<const FrozenModel> frozen = nullptr;  // of its trainers
  bool for_inference = false;  // trafo_model_prepare_inference: the weights stay as they are
  std::shared_ptr<const PackedWeights> packed = nullptr;  // on the CPU, of a model for inference
  std::shared_ptr<const Model> base = nullptr;            // whose weights this model shares
  std::optional<BaseChecksums> checksums = {};            // of a base for inference
};

inline ParamId checked_parameter(const Call& call, const ParameterStore& parameters,
                                 int64_t index) {
  if (index < 0 || static_cast<size_t>(index) >= parameters.count())
    call.refuse_argument("index", " must be 0 to ", static_cast<int64_t>(parameters.count()) - 1,
                         ", got ", index);
  return static_cast<ParamId>(index);
}

inline void check_changeable(const Call& call, const ModelObject& model) {
  if (model.for_inference)
    call.refuse("the model is prepared for inference; load it once more to change its weights");
}

// A model whose parameters may be grouped in another way.
inline ModelObject& untrained(const Call& call, trafo_model* model) {
  ModelObject& m = call.handle(model, "model");
  call.use(m.context);
  check_changeable(call, m);
  if (m.model.use_count() > 1) call.refuse("the model has a trainer: free that first");
  return m;
}

}  // namespace trafo::capi
