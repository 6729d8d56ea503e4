// Models without data: the parameters of a configuration and their parts, in no memory.
#pragma once

#include <memory>

#include "engine/models/model.h"

namespace trafo {

struct MetaModel {
  std::unique_ptr<Context> context;  // on the meta device
  std::unique_ptr<Model> model;
};

// Errors as of make_model(). OUT_OF_MEMORY: more bytes than there are addresses.
MetaModel make_meta_model(const ModelConfig& config, DType dtype = DType::f32);

}  // namespace trafo
