#pragma once

#include <memory>

#include "capi/src/handles.h"
#include "engine/decode/translator.h"
#include "engine/models/model.h"

namespace trafo::capi {

// What a caller's configuration asks for; refuses a NULL one.
struct WantedModel {
  ModelConfig config;
  DType precision;
};
WantedModel wanted_model(const Call& call, const trafo_model_config* config);
DType checked_precision(const Call& call, int32_t precision);

struct ModelObject {
  std::shared_ptr<Context> context;
  std::shared_ptr<Model> model;
  bool frozen = false;
  std::shared_ptr<const PackedWeights> packed = nullptr;  // of a frozen one on the CPU
};

inline void check_not_frozen(const Call& call, const ModelObject& model) {
  if (model.frozen)
    call.refuse(
        "the model is frozen: its weights stay as they are; load it once more to change it");
}

}  // namespace trafo::capi
