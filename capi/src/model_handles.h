#pragma once

#include <memory>

#include "capi/src/handles.h"
#include "engine/models/model.h"

namespace trafo::capi {

// What a caller's configuration asks for; refuses a NULL one.
struct WantedModel {
  ModelConfig config;
  DType precision;
};
WantedModel wanted_model(const Call& call, const trafo_model_config* config);

}  // namespace trafo::capi

struct trafo_model {
  std::shared_ptr<trafo::Context> context;
  std::shared_ptr<trafo::Model> model;
};
