// Models with quantized weights.
#include "engine/compress/quantize.h"

#include "capi/src/compression/calibration.h"
#include "capi/src/options.h"

using namespace trafo;
using namespace trafo::capi;

trafo_error* trafo_model_quantize(trafo_model* model, const trafo_quantize_options* options,
                                  const trafo_cancel* cancel, trafo_model** out) {
  return api(__func__, [&](const Call& call) {
    call.out(out);
    const ModelObject& m = call.handle(model, "model");
    call.use(m.context);
    const trafo_quantize_options wanted = read_options(call, options);
    if (wanted.method < TRAFO_QUANTIZE_NEAREST || wanted.method > TRAFO_QUANTIZE_GPTQ)
      call.refuse_argument("method",
                           " must be TRAFO_QUANTIZE_NEAREST (0) or TRAFO_QUANTIZE_GPTQ (1), got ",
                           wanted.method);
    QuantizeOptions settings;
    settings.bits = wanted.bits;
    settings.method = static_cast<QuantizeMethod>(wanted.method);
    settings.keep_float =
        lines_argument(call, wanted.keep_float, wanted.keep_float_count, "keep_float");
    const CancelArgument token(call, cancel);
    settings.cancel = token.get();
    const CalibrationArgument calibration(call, m, wanted);
    calibration.lend(settings);
    *out = new_handle<trafo_model>(
        m.context, std::shared_ptr<Model>(quantize_model(*m.context, *m.model, settings)));
  });
}
