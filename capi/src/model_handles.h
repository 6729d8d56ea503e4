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

}  // namespace trafo::capi

struct trafo_model {
  std::shared_ptr<trafo::Context> context;
  std::shared_ptr<trafo::Model> model;
  bool frozen = false;
  std::shared_ptr<const trafo::PackedWeights> packed = nullptr;  // of a frozen one on the CPU
};

namespace trafo::capi {

inline void check_not_frozen(const Call& call, const trafo_model& model) {
  if (model.frozen)
    call.refuse(
        "the model is frozen: its weights stay as they are; load it once more to change it");
}

}  // namespace trafo::capi
