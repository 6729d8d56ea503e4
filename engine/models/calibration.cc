#include "engine/models/calibration.h"

#include "engine/data/batcher.h"
#include "engine/models/upload.h"

namespace trafo {

void observe_calibration(Context& context, Model& model, const TokenizedCorpus& pairs,
                         int32_t start_id, LinearObserver& observer) {
  struct Observed {
    ParameterStore& parameters;
    Observed(ParameterStore& store, LinearObserver& to) : parameters(store) {
      parameters.set_observer(&to);
    }
    ~Observed() { parameters.set_observer(nullptr); }
  } observed(model.parameters(), observer);
  const NoGrad no_grad(context);
  BatcherOptions order;
  order.start_id = start_id;
  Batcher batcher(pairs, order);
  int64_t tokens = 0;
  for (PackedBatchHost host; !host.last_in_epoch && tokens < kCalibrationTokens;) {
    batcher.next(host);
    tokens += static_cast<int64_t>(host.target_in.size());
    model.logits(context, upload(context, host, model.config(), model.parameters().dtype()));
  }
}

}  // namespace trafo
