#pragma once

#include <memory>

#include "capi/src/handles.h"
#include "engine/models/model.h"

struct trafo_model {
  std::shared_ptr<trafo::Context> context;
  std::shared_ptr<trafo::Model> model;
};
