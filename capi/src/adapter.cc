#include "engine/models/adapter.h"

#include "capi/src/model_handles.h"
#include "capi/src/options.h"
#include "engine/formats/peft/peft.h"

using namespace trafo;
using namespace trafo::capi;

trafo_error* trafo_model_add_adapter(trafo_model* model, int64_t rank, double alpha,
                                     const char* targets, size_t targets_length, uint64_t seed) {
  return api(__func__, [&](const Call& call) {
    const std::string_view names = call.text(targets, targets_length, "targets");
    const ModelObject& m = untrained(call, model);
    add_adapter(*m.context, *m.model, {rank, alpha, names_in(names)}, seed);
  });
}

trafo_error* trafo_model_load_adapter(trafo_model* model, const char* directory,
                                      size_t directory_length) {
  return api(__func__, [&](const Call& call) {
    const auto from = path_argument(call, directory, directory_length, "directory");
    const ModelObject& m = untrained(call, model);
    load_adapter(*m.context, *m.model, from);
  });
}

trafo_error* trafo_model_with_adapter(trafo_model* base, const char* directory,
                                      size_t directory_length, trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const auto from = path_argument(call, directory, directory_length, "directory");
    ModelObject& m = call.handle(base, "base");
    call.use(m.context);
    if (!m.for_inference)
      call.refuse_argument("base",
                           " must be prepared with trafo_model_prepare_inference: models with an "
                           "adapter share its weights, which may not change");
    std::shared_ptr<Model> model = load_adapted(*m.context, *m.model, from, m.checksums);
    auto packed = pack_for_decoding(*m.context, *model, m.packed);
    *out = new_handle<trafo_model>(m.context, std::move(model), nullptr, true, std::move(packed),
                                   m.model);
  });
}

trafo_error* trafo_model_save_adapter(const trafo_model* model, const char* directory,
                                      size_t directory_length) {
  return api(__func__, [&](const Call& call) {
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    save_adapter(*m.context, *m.model,
                 path_argument(call, directory, directory_length, "directory"));
  });
}

trafo_error* trafo_model_merge_adapter(trafo_model* model) {
  return api(__func__, [&](const Call& call) {
    const ModelObject& m = untrained(call, model);
    merge_adapter(*m.context, *m.model);
  });
}

trafo_error* trafo_model_unmerge_adapter(trafo_model* model) {
  return api(__func__, [&](const Call& call) {
    const ModelObject& m = untrained(call, model);
    unmerge_adapter(*m.context, *m.model);
  });
}

trafo_error* trafo_model_remove_adapter(trafo_model* model) {
  return api(__func__, [&](const Call& call) {
    const ModelObject& m = untrained(call, model);
    remove_adapter(*m.context, *m.model);
  });
}
