#include "capi/src/model_handles.h"
#include "engine/train/checkpoint/run_models.h"

using namespace trafo;
using namespace trafo::capi;

namespace {

void load_frozen(const Call& call, trafo_model* model, const char* path, size_t path_length,
                 FrozenRole role) {
  const auto from = path_argument(call, path, path_length, "path");
  ModelObject& m = untrained(call, model);
  m.frozen = load_frozen_model(*m.context, *m.model, find_model_file(from), role);
}

void remove_frozen(const Call& call, trafo_model* model, FrozenRole role) {
  ModelObject& m = untrained(call, model);
  if (!m.frozen || m.frozen->role != role) call.refuse("the model has no ", role_name(role));
  m.frozen = nullptr;
}

}  // namespace

trafo_error* trafo_model_load_teacher(trafo_model* model, const char* path, size_t path_length) {
  return api(__func__, [&](const Call& call) {
    load_frozen(call, model, path, path_length, FrozenRole::teacher);
  });
}

trafo_error* trafo_model_remove_teacher(trafo_model* model) {
  return api(__func__, [&](const Call& call) { remove_frozen(call, model, FrozenRole::teacher); });
}

trafo_error* trafo_model_load_reference(trafo_model* model, const char* path, size_t path_length) {
  return api(__func__, [&](const Call& call) {
    load_frozen(call, model, path, path_length, FrozenRole::reference);
  });
}

trafo_error* trafo_model_remove_reference(trafo_model* model) {
  return api(__func__,
             [&](const Call& call) { remove_frozen(call, model, FrozenRole::reference); });
}
