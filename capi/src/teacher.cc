#include "capi/src/model_handles.h"
#include "engine/train/checkpoint/run_models.h"

using namespace trafo;
using namespace trafo::capi;

trafo_error* trafo_model_load_teacher(trafo_model* model, const char* path, size_t path_length) {
  return api(__func__, [&](const Call& call) {
    const auto from = path_argument(call, path, path_length, "path");
    ModelObject& m = untrained(call, model);
    m.teacher = load_frozen_model(*m.context, *m.model, find_model_file(from));
  });
}

trafo_error* trafo_model_remove_teacher(trafo_model* model) {
  return api(__func__, [&](const Call& call) {
    ModelObject& m = untrained(call, model);
    if (!m.teacher) call.refuse("the model has no teacher");
    m.teacher = nullptr;
  });
}
