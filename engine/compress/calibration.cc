#include "engine/compress/calibration.h"

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/progress.h"
#include "engine/data/batcher.h"
#include "engine/models/upload.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

template <class T>
void add_to_sum(std::vector<double>& sum, const std::vector<T>& values) {
  sum.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) sum[i] += static_cast<double>(values[i]);
}

}  // namespace

void InputProducts::observe(Context& context, int32_t parameter, const Tensor& x) {
  if (!wanted_[static_cast<size_t>(parameter)]) return;
  Tensor rows = ops::contiguous(context, x);
  if (rows.dtype() == DType::bf16) rows = ops::cast(context, rows, DType::f32);
  const ExactGemms exact(context.backend());
  const Tensor product = ops::matmul(context, ops::transpose(context, rows, 0, 1), rows);
  std::vector<double>& sum = sums_[parameter];
  if (product.dtype() == DType::f64)
    add_to_sum(sum, context.values<double>(product));
  else
    add_to_sum(sum, context.values<float>(product));
}

std::vector<double> InputProducts::take(int32_t parameter, int64_t columns) {
  std::vector<double> sum = std::move(sums_[parameter]);
  sum.resize(static_cast<size_t>(columns * columns));
  return sum;
}

void check_calibration(const TokenizedCorpus& pairs, const ModelSpec& spec,
                       std::string_view origin) {
  require(pairs.size() > 0, ErrorCode::invalid_argument, origin,
          "the calibration data have no pair");
  require(pairs.options().form == sequence_form(spec), ErrorCode::invalid_argument, origin,
          "the calibration data was prepared for another architecture");
}

void observe_calibration(Context& context, Model& model, const TokenizedCorpus& pairs,
                         int32_t start_id, LinearObserver& observer, const CancelToken* cancel) {
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
  WorkProgress progress(Work::calibrate, std::min(pairs.target_tokens(), kCalibrationTokens));
  for (PackedBatchHost host; !host.last_in_epoch && tokens < kCalibrationTokens;) {
    stop_if_cancelled(cancel, "calibration");
    batcher.next(host);
    tokens += static_cast<int64_t>(host.target_in.size());
    model.logits(context, upload(context, host, model.spec(), model.parameters().dtype()));
    progress.add(std::ssize(host.target_in));
  }
  progress.finish();
}

}  // namespace trafo
