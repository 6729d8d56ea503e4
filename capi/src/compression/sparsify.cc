// Unstructured pruning.
#include "engine/compress/sparsify.h"

#include <memory>
#include "capi/src/compression/calibration.h"

using namespace trafo;
using namespace trafo::capi;

trafo_error* trafo_model_sparsify(trafo_model* model, const trafo_sparsify_options* options,
                                  const trafo_cancel* cancel, trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context, CallsBack::yes);  // to read the corpus
    const trafo_sparsify_options wanted = read_options(call, options);
    SparsifyOptions settings;
    settings.sparsity = wanted.sparsity;
    settings.score = static_cast<PruneScore>(wanted.score);
    settings.pattern = static_cast<SparsityPattern>(wanted.pattern);
    const CalibrationArgument calibration(call, m, wanted);
    calibration.lend(settings);
    const CancelArgument token(call, cancel);
    *out = new_handle<trafo_model>(
        m.context, std::shared_ptr<Model>(sparsify(*m.context, *m.model, settings, token.get())));
  });
}

trafo_error* trafo_model_get_zeros(const trafo_model* model, int64_t index, int64_t* out_zeros) {
  return api(__func__, [&](const Call& call) {
    call.out(out_zeros, "out_zeros");
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    const ParameterStore& parameters = m.model->parameters();
    *out_zeros = count_zeros(*m.context, parameters, checked_parameter(call, parameters, index));
  });
}
