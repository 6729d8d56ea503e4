// Low rank.
#include "engine/compress/factorize.h"

#include <memory>

#include "capi/src/compression/calibration.h"
#include "capi/src/options.h"

using namespace trafo;
using namespace trafo::capi;

trafo_error* trafo_model_factorize(trafo_model* model, const trafo_factorize_options* options,
                                   const trafo_cancel* cancel, trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context, CallsBack::yes);  // to read the corpus
    if (!options) call.refuse_argument("options", " is NULL");
    const trafo_factorize_options wanted = read_options(call, options);
    FactorizeOptions settings;
    settings.rank = wanted.rank;
    settings.ratio = wanted.ratio;
    settings.layers = lines_argument(call, wanted.layers, wanted.layers_count, "layers");
    const CalibrationArgument calibration(call, m, wanted);
    calibration.lend(settings);
    const CancelArgument token(call, cancel);
    *out = new_handle<trafo_model>(
        m.context, std::shared_ptr<Model>(factorize(*m.context, *m.model, settings, token.get())));
  });
}
