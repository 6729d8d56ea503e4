#include "engine/optim/clipped_update.h"

#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"

namespace trafo {
namespace {

constexpr const char* kClippedUpdateOrigin = "clipped_update";

// Room for a struct; int32 because it needs no arithmetic.
template <class Struct>
Tensor device_struct(Context& context) {
  static_assert(sizeof(Struct) % sizeof(int32_t) == 0);
  return context.zeros({static_cast<int64_t>(sizeof(Struct) / sizeof(int32_t))}, DType::i32);
}

}  // namespace

ClippedUpdate::ClippedUpdate(Context& context, Optimizer& optimizer, const Schedule& schedule,
                             double max_norm)
    : context_(context),
      optimizer_(optimizer),
      schedule_(schedule),
      max_norm_(max_norm),
      rates_(device_struct<LearningRates>(context)),
      record_(device_struct<UpdateRecord>(context)) {
  require_argument(max_norm >= 0, kClippedUpdateOrigin, "max_norm",
                   " must be positive, or 0 for no clipping, got ", max_norm);
}

void ClippedUpdate::prepare(int64_t earliest, int64_t latest) {
  if (earliest >= first_rate_ && latest < past_rate_) return;
  require(latest - earliest < LearningRates::kCount, ErrorCode::internal, kClippedUpdateOrigin,
          latest - earliest, " updates are in flight");
  LearningRates rates{};
  rates.first = earliest;
  for (int64_t i = 0; i < LearningRates::kCount; ++i) {
    rates.rates[i] = schedule_(earliest + i);
    require(std::isfinite(rates.rates[i]) && rates.rates[i] >= 0, ErrorCode::invalid_argument,
            kClippedUpdateOrigin, "the learning rate of update ", earliest + i, " is ",
            rates.rates[i]);
  }
  context_.backend().copy_from_host(rates_.raw(), &rates, sizeof rates);
  first_rate_ = earliest;
  past_rate_ = earliest + LearningRates::kCount;
}

void ClippedUpdate::run_part(const Tensor& loss, const Tensor& nll, const Tensor& partials,
                             const ElementRange& range, bool continues) {
  require(past_rate_ > 0, ErrorCode::internal, kClippedUpdateOrigin,
          "no learning rate was prepared");
  require(!continues || partials.defined(), ErrorCode::internal, kClippedUpdateOrigin,
          "an update in parts has no norm of its own");
  const UpdateRange update(context_, kClippedUpdateOrigin);
  for (const Tensor& sum : {loss, nll})
    require(sum.dtype() == optimizer_.dtype(), ErrorCode::dtype_mismatch, kClippedUpdateOrigin,
            "loss and nll are ", dtype_name(sum.dtype()), ", the parameters ",
            dtype_name(optimizer_.dtype()));
  launch(context_, OpKernel::clipped_update, kClippedUpdateOrigin,
         ClippedUpdateParams{optimizer_.state(range), max_norm_, loss.raw(), nll.raw(),
                             static_cast<const LearningRates*>(rates_.raw()),
                             static_cast<const double*>(raw_or_null(partials)),
                             partials.defined() ? partials.numel() : 0,
                             static_cast<UpdateRecord*>(record_.raw()), continues});
  optimizer_.mark_written();
}

void ClippedUpdate::finish() {
  if (!optimizer_.needs_whole_matrices()) return;
  const UpdateRange update(context_, "finish_update");
  optimizer_.finish(static_cast<const UpdateRecord*>(record_.raw()), 0, 0);
  optimizer_.mark_written();
}

void ClippedUpdate::square(const Tensor& partials, const ElementRange& range) {
  const UpdateRange update(context_, "square_partials");
  const UpdateState state = optimizer_.state(range);
  launch(
      context_, OpKernel::square_partials, "square_partials",
      SquarePartialsParams{state.dtype, state.count, state.grad,
                           static_cast<double*>(partials.raw()) + range.begin / kSquaresElements});
}

void ClippedUpdate::set_updates(int64_t updates) {
  UpdateRecord record{};
  record.updates = updates;
  context_.backend().copy_from_host(record_.raw(), &record, sizeof record);
}

}  // namespace trafo
